"""Statements on the tables of a MySQL store, a subject a module, as on SQLite."""
