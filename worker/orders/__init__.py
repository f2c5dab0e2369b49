"""What a worker is ordered while it works: learnt from a broker, kept in a file, and followed."""
