"""The work that a broker does by itself, under duties: upkeep, refill, purge, retention."""
