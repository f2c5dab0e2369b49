"""What a process needs of the system it runs on, whichever it is."""
