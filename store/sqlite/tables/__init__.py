"""Statements on the tables of a SQLite store, a subject a module."""
