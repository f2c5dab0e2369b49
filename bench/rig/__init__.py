"""Parts that benchmarks share: webs to crawl, windows of measurement, the record of a run."""
