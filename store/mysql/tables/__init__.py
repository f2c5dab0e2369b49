"""Statements on the tables of a MySQL store, a subject a module, as in ``store.sqlite.tables``."""
