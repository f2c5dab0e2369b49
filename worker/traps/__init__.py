"""Traps: shapes of URLs that bring nothing new, judged by what was fetched of them."""
