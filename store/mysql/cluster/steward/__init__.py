"""Who takes writes: what follows from what is seen, and how it is put into force."""
