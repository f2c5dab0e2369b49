"""Long work of pages, which must not delay leases: in slices of time, or in the background."""
