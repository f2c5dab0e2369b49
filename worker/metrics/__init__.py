"""What a worker counts, in memory shared with its supervisor, and who serves it."""
