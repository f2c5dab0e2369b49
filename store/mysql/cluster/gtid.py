"""Positions in the binary logs: MariaDB's GTIDs, one ``domain-server-sequence`` for each domain."""

from __future__ import annotations

from collections.abc import Mapping

Position = Mapping[int, int]
"""Domain → sequence number of its last transaction."""


def parse(text: str) -> dict[int, int]:
    """Parse a position such as ``0-1-100,1-2-7``; an empty text is the start. Raises ValueError."""
    found: dict[int, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        domain, _, sequence = part.split("-")
        found[int(domain)] = max(int(sequence), found.get(int(domain), 0))
    return found


def covers(have: Position, wanted: Position) -> bool:
    """Return whether every transaction up to ``wanted`` is among those up to ``have``."""
    return all(have.get(domain, 0) >= sequence for domain, sequence in wanted.items())


def missing(have: Position, wanted: Position) -> int:
    """Return how many transactions up to ``wanted`` are not among those up to ``have``."""
    return sum(max(0, sequence - have.get(domain, 0)) for domain, sequence in wanted.items())


def later(one: Position, other: Position) -> dict[int, int]:
    """Return the position that covers both."""
    return {domain: max(one.get(domain, 0), other.get(domain, 0)) for domain in {*one, *other}}
