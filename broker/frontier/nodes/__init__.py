"""One Redis node and all of them: connection, clock, breaker, keys, memory, placement."""
