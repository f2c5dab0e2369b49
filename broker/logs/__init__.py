"""Log lines of processes, on their way to the loggers and back.

``sender`` keeps a process's lines until a logger has them. ``asking`` is for brokers, which ask all
loggers; ``records`` is for loggers, too.
"""
