"""robots.txt: its parser, and the rules of each origin, shared by all workers."""
