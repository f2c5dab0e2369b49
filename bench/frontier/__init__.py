"""The frontier alone: admission, leases, standing queues, recovery."""
