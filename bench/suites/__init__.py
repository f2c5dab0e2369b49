"""Suites of cases that others wrote, read by ours and by the best libraries in the same run."""
