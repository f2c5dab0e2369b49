"""The frontier alone: admission, leases, idle crawls, recovery."""
