"""Counters of a crawl: each partition keeps its own, and a scan adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.schema.records import Totals

_COUNTERS = {
    "adm": "admitted", "wait": "waiting", "leased": "leased", "later": "later", "fin": "finished",
    "stored": "stored", "over": "overflow", "dead": "dead", "retries": "retries", "bytes": "bytes",
    "hosts": "hosts", "f:parked": "parked", "rewritten": "rewritten",
    "f:unchanged": "unchanged",
}  # fmt: skip


class Scan(NamedTuple):
    """Counters of a crawl over all partitions, and its states there."""

    totals: Totals
    states: frozenset[str]
    """States of ``lua/crawls/crawl.lua``; more than one while a change is on its way."""


def total(partitions: Iterable[Sequence[bytes]]) -> Totals:
    """Return the sum of the counter hashes of all partitions, each as Lua returns it."""
    sums: dict[str, int] = dict.fromkeys(_COUNTERS.values(), 0)
    failures: dict[str, int] = {}
    put_off: dict[str, int] = {}
    for flat in partitions:
        for key, value in part.fields(flat).items():
            if key in _COUNTERS:
                sums[_COUNTERS[key]] += int(value)
            elif key.startswith("f:"):
                failures[key[2:]] = failures.get(key[2:], 0) + int(value)
            elif key.startswith("p:"):
                put_off[key[2:]] = put_off.get(key[2:], 0) + int(value)
    return Totals(failures=failures, put_off=put_off, **sums)
