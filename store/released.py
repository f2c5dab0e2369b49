"""The released shapes of a crawl, on any database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import EVERY_SHAPE, RELEASED
from greencrawl.store.rows import shape_name


def united(known: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Return ``known`` and ``new`` shapes together; ``*`` stands for all.

    Raises InvalidConfig for too many.
    """
    found = tuple(dict.fromkeys((*known, *map(shape_name, new))))
    if EVERY_SHAPE in found:
        return (EVERY_SHAPE,)
    if len(found) > RELEASED:
        what = f"a crawl keeps {RELEASED:,} released shapes at most: release all"
        raise InvalidConfig([("shape", what)])
    return found


def holds(released: Sequence[str], shape: str) -> bool:
    """Tell whether a shape is released."""
    return shape in released or EVERY_SHAPE in released
