"""Main text compared with other libraries: how much of it is found, and how much CPU this takes."""
