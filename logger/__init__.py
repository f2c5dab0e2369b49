"""A logger: it keeps the log lines of all processes, in a file for each day, and answers
queries."""
