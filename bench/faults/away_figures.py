"""Figures from the web's log and the store of ``bench.faults.away``: rates, losses, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from greencrawl.schema.net.urls import host_of
from greencrawl.store.base import Store

EVERY_SECONDS = 5
"""Pages are counted in steps of this length, and memory is sampled as often."""
ROBOTS = "/robots.txt"

Row = tuple[float, float, str, str, int]
"""A row of the web's log: arrived, answered, host, path, status."""


class Times(NamedTuple):
    """Times in Unix seconds: when counting began and ended, and when the node went away, was back,
    and had got what it missed."""

    began: float
    away: float
    back: float
    paid: float
    ended: float


def account(
    store: Store, stats: Mapping[str, Any], seeds: Sequence[str], names: set[str]
) -> dict[str, Any]:
    """Compare the links and seeds in the store with the URLs that the queue knows."""
    known, links, there = set(map(hash, seeds)), 0, 0
    for chunk in store.replay_links(0):
        for _, found in chunk:
            known.update(hash(link.url) for link in found)
            links += len(found)
            there += sum(host_of(link.url).partition(":")[0] in names for link in found)
    settled = stats["finished"] + stats["waiting"] + stats["later"] + stats["overflow"]
    return {
        "known_to_store": len(known),
        "known_to_queue": stats["admitted"],
        "settled_or_waiting": settled,
        "share_of_links": there / links,
        "state": {name: value for name, value in stats.items() if isinstance(value, int)},
    }


def figures(rows: Sequence[Row], names: set[str], times: Times) -> dict[str, Any]:
    """Return pages a second by node and time, and their ratios.

    ``worst`` is the worst step of the node that stayed, while the other was away all the time.
    """

    def rate(first: float, last: float, *, gone: bool | None = None) -> float:
        count = sum(
            first <= answered < last and path != ROBOTS and gone in (None, name in names)
            for _, answered, name, path, _ in rows
        )
        return count / (last - first)

    before, away = (times.began, times.away), (times.away, times.back)
    steps = int((times.back - times.away) // EVERY_SECONDS)
    firsts = [times.away + EVERY_SECONDS * step for step in range(steps)]
    other = rate(*before, gone=False)
    return {
        "before": other,
        "away": rate(*away, gone=False),
        "before_all": rate(*before),
        "away_all": rate(*away),
        "gone_before": rate(*before, gone=True),
        "gone_after": rate(times.ended - 2 * EVERY_SECONDS, times.ended, gone=True),
        "ratio": rate(*away, gone=False) / other,
        "ratio_all": rate(*away) / rate(*before),
        "worst": min(rate(at, at + EVERY_SECONDS, gone=False) for at in firsts) / other,
    }


def by_step(
    rows: Sequence[Row], names: set[str], first: float, last: float
) -> dict[str, list[float]]:
    """Return pages a second in each step of :data:`EVERY_SECONDS`: for hosts that stay, and for
    hosts that go."""
    counts: Counter[tuple[bool, int]] = Counter()
    for _, answered, name, path, _ in rows:
        if path != ROBOTS and first <= answered < last:
            counts[name in names, int((answered - first) // EVERY_SECONDS)] += 1
    steps = range(int((last - first) // EVERY_SECONDS))
    return {
        what: [counts[gone, step] / EVERY_SECONDS for step in steps]
        for what, gone in (("stays", False), ("goes", True))
    }


def twice(rows: Sequence[Row]) -> int:
    """Return the number of pages that were fetched again."""
    pages = Counter((name, path) for _, _, name, path, _ in rows if path != ROBOTS)
    return sum(count - 1 for count in pages.values())


def cpu_ms(one: Mapping[str, Any]) -> tuple[float, float]:
    """Return the CPU of worker and broker a page, in ms: before, and while the node was away."""
    times, (before, away) = one["times"], one["cpu_seconds"]
    pages = one["before_all"] * (times["away"] - times["began"])
    pages_away = one["away_all"] * (times["back"] - times["away"])
    return before * 1000 / pages, away * 1000 / pages_away
