"""A worker's counters, in memory shared with its supervisor, and the process that serves them."""
