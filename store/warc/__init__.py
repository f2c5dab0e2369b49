"""Bodies in WARC 1.1 files, and pages as WARC records."""
