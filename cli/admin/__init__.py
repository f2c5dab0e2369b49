"""Commands for who keeps the system: the servers of the store, migrations, repair."""
