"""Pages about what was fetched: lists of pages, one page, one URL."""
