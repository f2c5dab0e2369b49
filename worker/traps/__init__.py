"""Traps: shapes of URLs that bring nothing new, judged by their fetched pages."""
