"""Pages about one crawl: its progress, its options, and its failures."""
