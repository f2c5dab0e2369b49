"""The queue itself: what waits to be fetched, in Redis. See docs/architecture.md."""

from broker.frontier.frontier import Admitted, Frontier
from broker.frontier.partition import Mode

__all__ = ["Admitted", "Frontier", "Mode"]
