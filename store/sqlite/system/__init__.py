"""Tables that operators see and change: one module for each."""
