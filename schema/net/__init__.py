"""URLs, origins, public suffixes, scope, and the addresses that may be reached."""
