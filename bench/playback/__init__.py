"""Whether an archive plays back whole: what a browser asks pywb for, and what of it is missing."""
