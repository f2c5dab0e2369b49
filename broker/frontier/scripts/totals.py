"""Counters of a crawl: each partition keeps its own, and a scan adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from greencrawl.schema.records import Totals

_COUNTERS = {
    b"adm": "admitted", b"wait": "waiting", b"leased": "leased", b"later": "later",
    b"fin": "finished", b"stored": "stored", b"over": "overflow", b"dead": "dead",
    b"retries": "retries", b"bytes": "bytes", b"hosts": "hosts", b"f:parked": "parked",
    b"rewritten": "rewritten", b"f:unchanged": "unchanged", b"requeued": "requeued",
}  # fmt: skip


class Scan(NamedTuple):
    """Counters of a crawl over all partitions, and its states there."""

    totals: Totals
    states: frozenset[str]
    """States of ``lua/crawls/crawl.lua``; more than one while a change is on its way."""


def total(partitions: Iterable[Sequence[bytes]]) -> Totals:
    """Return the sum of the counter hashes of all partitions, each as Lua returns it.

    Many partitions have many crawls: nothing is decoded that is not kept.
    """
    sums: dict[str, int] = dict.fromkeys(_COUNTERS.values(), 0)
    failures: dict[str, int] = {}
    put_off: dict[str, int] = {}
    for flat in partitions:
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            if (counter := _COUNTERS.get(key)) is not None:
                sums[counter] += int(value)
            elif key.startswith((b"f:", b"p:")):
                kinds, kind = failures if key.startswith(b"f:") else put_off, key[2:].decode()
                kinds[kind] = kinds.get(kind, 0) + int(value)
    return Totals(failures=failures, put_off=put_off, **sums)
