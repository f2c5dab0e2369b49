"""How far a replica lags behind the writer, by positions, so that no two clocks are compared.

Now and then the writer's position is noted with the time. The newest note that a replica covers
gives the most that it can lag.
"""

from __future__ import annotations

from collections import deque

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.gtid import Position

SAMPLES = 120


class LagHistory:
    """The writer's positions in the last minutes."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._positions: deque[tuple[float, Position]] = deque(maxlen=SAMPLES)

    def add(self, position: Position) -> None:
        """Note that the writer is at ``position`` now."""
        self._positions.append((self._clock(), position))

    def lag_seconds(self, position: Position) -> float | None:
        """Return how many seconds a server at ``position`` lags at most; None if that is not
        known."""
        for since, noted in reversed(self._positions):
            if gtid.covers(position, noted):
                return self._clock() - since
        return None

    def age_seconds(self) -> float:
        """Return the seconds since the last note."""
        return self._clock() - self._positions[-1][0] if self._positions else float("inf")
