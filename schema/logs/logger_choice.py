"""Which logger a member sends to: the first, by rendezvous hashing, that answers.

Each member ranks all loggers by a hash of both names (Thaler and Ravishankar, 1998). So each logger
has about the same share of members. When a logger goes, only its own members move, and they return
when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def ranked(member: str, loggers: Iterable[str]) -> list[str]:
    """Return ``loggers`` in order of preference; every process gets the same order."""

    def weight(logger: str) -> int:
        return xxhash.xxh3_64_intdigest(f"{member}\n{logger}".encode())

    return sorted(set(loggers), key=lambda logger: (-weight(logger), logger))
