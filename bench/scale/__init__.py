"""What comes with more processes, hosts and nodes, and the model that foretells it."""
