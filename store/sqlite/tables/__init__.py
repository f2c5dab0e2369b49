"""Statements on the tables of a SQLite store, one module for each subject."""
