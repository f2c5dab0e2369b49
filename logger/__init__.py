"""A logger: it keeps what all other processes say, in files of a day, and answers who asks."""
