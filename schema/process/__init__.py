"""What a process needs from its system, whichever system that is."""
