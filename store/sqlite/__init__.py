"""The store in a SQLite file, which the processes of one machine share."""
