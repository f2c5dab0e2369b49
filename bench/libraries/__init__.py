"""Code of our own beside the libraries for the same standards."""
