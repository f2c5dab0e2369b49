"""Commands for operators: the servers of the store, migrations, repair."""
