"""Decides who takes writes: the conclusions from what is observed, and how they take effect."""
