"""Main text beside other libraries: how much of it is found, and what that costs."""
