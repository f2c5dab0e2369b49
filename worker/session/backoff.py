"""Waits for a part of our own that is away: with patience, and not all at the same moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import inf
from typing import TypeVar

import gevent

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger

T = TypeVar("T")

log = logger("worker")

AWAY_PATIENCE_SECONDS = 5.0
"""How long a session waits for a Redis node that is away; then its place is of use to others."""
AWAY_REST_SECONDS = 15.0
"""How long the session's host rests after that, if the host itself is on another node."""


def delays(first: float = 0.1, most: float = 2.0) -> Iterator[float]:
    """Yield seconds to wait before each try.

    They double from ``first`` up to ``most``, with full jitter in the upper half, so that workers
    do not come back together.
    """
    ceiling = first
    while True:
        yield random.uniform(ceiling / 2, ceiling)
        ceiling = min(most, ceiling * 2)


def until_available(
    action: Callable[[], T],
    what: str,
    *,
    wait: Callable[[float], object] = gevent.sleep,
    most: float = inf,
) -> T:
    """Call ``action`` until it does not raise Unavailable, for as long as that takes.

    After ``most`` seconds Unavailable is raised. ``what`` names the part that is away in the log,
    once when the trouble begins and once when it is over. Every other exception passes.
    """
    limit = monotonic() + most
    for count, delay in enumerate(delays()):
        try:
            result = action()
        except Unavailable as error:
            if monotonic() >= limit:
                raise
            if count == 0:
                log.warning("wait_started", what=what, reason=str(error))
            wait(delay)
            continue
        if count:
            log.info("wait_ended", what=what, tries=count + 1)
        return result
    raise AssertionError("delays never end")
