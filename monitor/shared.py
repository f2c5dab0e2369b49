"""Results that are made once a second for all readers.

If several readers ask for the same at the same time, one request makes it, and the others wait for
it. So a hundred open pages cost what one does, and a store that is away is asked once a second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from gevent.lock import BoundedSemaphore

from greencrawl.schema.clock import Clock, monotonic

T = TypeVar("T")

SECONDS = 1.0
MOST = 500
"""At most this many results are kept; the oldest are dropped first."""


class _Made:
    __slots__ = ("at", "error", "turn", "value")

    def __init__(self) -> None:
        self.turn = BoundedSemaphore(1)
        self.at = float("-inf")
        self.value: Any = None
        self.error: Exception | None = None


class Shared:
    """Values by key. An error is kept as long as a value, and raised again."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()

    def forget(self) -> None:
        """Forget all values, since something was changed; also those that are being made now."""
        self._made = OrderedDict()

    def has(self, key: Hashable, seconds: float = SECONDS) -> bool:
        """Return whether a value or an error is at most ``seconds`` old."""
        made = self._made.get(key)
        return made is not None and self._clock() - made.at < seconds

    def get(self, key: Hashable, make: Callable[[], T], seconds: float = SECONDS) -> T:
        """Return what ``make`` returned, or raised, up to ``seconds`` ago."""
        kept = self._made
        made = kept.setdefault(key, _Made())
        with made.turn:
            if self._clock() - made.at >= seconds:
                try:
                    made.value, made.error = make(), None
                except Exception as error:  # noqa: BLE001 - it is raised below, for each who asks
                    made.value, made.error = None, error
                made.at = self._clock()
                kept[key] = made
                kept.move_to_end(key)
                while len(kept) > MOST:
                    kept.popitem(last=False)
            if made.error is not None:
                raise made.error
            return cast(T, made.value)
