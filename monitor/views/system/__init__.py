"""Pages about the system: hosts, the frontier, the store, nodes, logs and orders."""
