"""Which logger a member tells: the first, by rendezvous hashing, of those that answer.

Each member ranks all loggers by a hash of both names (Thaler and Ravishankar, 1998). So each logger
has about the same share of members; when one goes only its own members move, and back when it
comes again.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def ranked(member: str, loggers: Iterable[str]) -> list[str]:
    """``loggers``, the one to tell first; the same order wherever it is asked."""

    def weight(logger: str) -> int:
        return xxhash.xxh3_64_intdigest(f"{member}\n{logger}".encode())

    return sorted(set(loggers), key=lambda logger: (-weight(logger), logger))
