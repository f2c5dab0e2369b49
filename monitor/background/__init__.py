"""Work beside leases: in slices of time, and in the background."""
