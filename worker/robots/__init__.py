"""robots.txt and tdmrep.json: their parsers, and what each origin says, shared by all workers."""
