"""The queue itself: what waits to be fetched, in Redis. See docs/architecture.md."""

from greencrawl.broker.frontier.frontier import Admitted, Frontier
from greencrawl.broker.frontier.partition import Mode

__all__ = ["Admitted", "Frontier", "Mode"]
