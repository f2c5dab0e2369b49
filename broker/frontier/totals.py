"""Counters of a crawl: each partition keeps its own, and a scan adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from broker.frontier import partition as part


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one crawl over all partitions, from one undisturbed scan."""

    admitted: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    finished: int = 0
    stored: int = 0
    dead: int = 0
    retries: int = 0
    bytes: int = 0
    hosts: int = 0
    failures: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def open(self) -> int:
        """Tasks still to do."""
        return self.waiting + self.leased + self.later


_COUNTERS = {
    "adm": "admitted", "wait": "waiting", "leased": "leased", "later": "later", "fin": "finished",
    "stored": "stored", "dead": "dead", "retries": "retries", "bytes": "bytes", "hosts": "hosts",
}  # fmt: skip


def total(partitions: Iterable[Sequence[bytes]]) -> Totals:
    """The sum of the counter hashes of all partitions, each as Lua returns it."""
    sums: dict[str, int] = dict.fromkeys(_COUNTERS.values(), 0)
    failures: dict[str, int] = {}
    for flat in partitions:
        for key, value in part.fields(flat).items():
            if key.startswith("f:"):
                failures[key[2:]] = failures.get(key[2:], 0) + int(value)
            elif key in _COUNTERS:
                sums[_COUNTERS[key]] += int(value)
    return Totals(failures=failures, **sums)
