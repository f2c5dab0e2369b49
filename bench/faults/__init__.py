"""Faults made on purpose – of machines, networks, pages, nodes –, and what came of the crawl."""
