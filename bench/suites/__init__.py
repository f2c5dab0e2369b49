"""Suites of cases that others wrote, read by us and by the best libraries in the same run."""
