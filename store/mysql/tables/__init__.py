"""Statements on the tables of a MySQL store, one module for each subject, as on SQLite."""
