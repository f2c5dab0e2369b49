"""Orders for a running worker: received from a broker, kept in a file, and followed."""
