"""Redis nodes: connection, clock, breaker, keys, memory, placement."""
