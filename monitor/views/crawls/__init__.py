"""Pages about one crawl: how it goes, its options, and what came to nothing."""
