"""The part in C fed with broken pages, under sanitizers and without."""
