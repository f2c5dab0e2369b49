"""Commands that read one page, and say what is in it."""
