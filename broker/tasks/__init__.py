"""Background work of a broker, under duties: upkeep, refill, purge, retention."""
