"""Our code compared with libraries for the same standards."""
