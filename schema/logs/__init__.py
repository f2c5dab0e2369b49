"""Log lines of processes, on their way to the loggers and back.

``sender`` keeps a process's lines until a logger has them. ``records`` is also for loggers, and for
brokers, which ask all loggers (``broker/loggers.py``).
"""
