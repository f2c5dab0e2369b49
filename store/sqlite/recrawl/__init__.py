"""Crawls that begin again, on SQLite: their periods, their rounds, and when pages are due."""
