"""The part in C is fed with broken pages, under sanitizers and without."""
