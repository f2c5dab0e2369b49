"""Crawls that begin again, on MySQL: their periods, their rounds, and when pages are due."""
