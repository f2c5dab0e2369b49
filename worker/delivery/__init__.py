"""Delivery of a worker's results: rows for the store, links for the frontier, outcomes for the
broker."""
