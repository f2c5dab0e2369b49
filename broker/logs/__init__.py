"""What processes say, on its way to the loggers and back.

:class:`Sender` is what a process keeps its lines with until a logger has them. The rest is for
brokers, which ask the loggers, and for the loggers themselves.
"""

from greencrawl.broker.logs.sender import Sender

__all__ = ["Sender"]
