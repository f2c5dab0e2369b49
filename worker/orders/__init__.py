"""Orders for a worker while it works: learnt from a broker, kept in a file, and followed."""
