"""Who takes writes: the conclusions from what is seen, and how they are put into force."""
