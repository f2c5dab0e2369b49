"""Deliberate faults of machines, networks, pages and nodes, and their effect on a crawl."""
