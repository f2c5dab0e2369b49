"""The results that leave a worker: rows for the store, links for the frontier, outcomes for the
broker."""
