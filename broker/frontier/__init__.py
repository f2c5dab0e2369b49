"""The queue itself: what waits to be fetched, in Redis. See docs/architecture.md."""

from broker.frontier.frontier import Frontier
from broker.frontier.partition import Mode

__all__ = ["Frontier", "Mode"]
