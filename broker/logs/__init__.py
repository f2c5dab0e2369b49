"""What processes say, on its way to the loggers and back.

``sender`` is what a process keeps its lines with until a logger has them. ``asking`` is for
brokers, which ask all loggers; ``records`` is for loggers, too.
"""
