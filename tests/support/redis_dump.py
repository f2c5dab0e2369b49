"""The data in a frontier's Redis: read out, recounted, copied and restored."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import redis

from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.schema.net.urls import task_path

Key = tuple[int, str]
"""(crawl, URL)."""


def unpacked(packed: str) -> dict[str, Any]:
    """Return a record, read as Latin-1."""
    record: dict[str, Any] = msgspec.msgpack.decode(packed.encode("latin-1"))
    return record


def dump(raw: redis.Redis, pattern: str = "gc:{*") -> dict[str, Any]:
    """Return all keys and values without the expiries; ``raw`` decodes as Latin-1."""
    names = sorted(raw.keys(pattern))
    pipe = raw.pipeline(transaction=False)
    for key in names:
        pipe.type(key)
    for key, kind in zip(names, pipe.execute(), strict=True):
        {
            "hash": pipe.hgetall, "set": pipe.smembers, "string": pipe.get,
            "list": lambda k: pipe.lrange(k, 0, -1),
            "zset": lambda k: pipe.zrange(k, 0, -1, withscores=True),
        }[kind](key)  # fmt: skip
    return dict(zip(names, pipe.execute(), strict=True))


@dataclass
class Copy:
    """A copy of all keys of the frontier at one time; the test handles ``shift``."""

    keys: dict[bytes, tuple[bytes, int]]
    shift: float

    @classmethod
    def of(cls, server: redis.Redis, shift: float) -> Copy:
        names = sorted(server.keys("gc:*"))
        pipe = server.pipeline(transaction=False)
        for name in names:
            pipe.dump(name)
            pipe.pttl(name)
        flat = pipe.execute()
        return cls(dict(zip(names, zip(flat[::2], flat[1::2], strict=True), strict=True)), shift)

    def put_back(self, server: redis.Redis) -> None:
        pipe = server.pipeline(transaction=True)
        pipe.flushall()
        for name, (value, left) in self.keys.items():
            pipe.restore(name, max(left, 0), value)
        pipe.execute()


@dataclass
class Contents:
    """The place of each URL by a dump, and the members of the sets."""

    places: Counter[Key] = field(default_factory=Counter)
    at: dict[Key, str] = field(default_factory=dict)
    counts: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    """(partition, crawl, place) → tasks."""
    bytes: Counter[int] = field(default_factory=Counter)
    """Partition → bytes of the paths and entries of tasks, and of hosts. Only hosts count that have
    waiting tasks, or that run low while more tasks wait in the overflow."""
    seen: dict[int, set[int]] = field(default_factory=dict)
    spilled: dict[int, set[int]] = field(default_factory=dict)
    crawls: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    waits: set[tuple[int, int, str]] = field(default_factory=set)
    again: dict[int, set[int]] = field(default_factory=dict)
    """Crawl → fingerprints of tasks on their way, in crawls with a calendar."""
    marks: dict[int, list[int]] = field(default_factory=dict)
    """Crawl → the same fingerprints, from the marks of the tasks."""
    refetches: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(host, crawl) → tasks with a mark that fetch known pages again."""
    refetches_at: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(host, crawl) → those of these tasks that wait."""


TASK_BYTES, HOST_BYTES = 24, 240
"""As in ``lua/shared/common.lua``."""


def mark_of(entry: str) -> tuple[int, bool] | None:
    """Return the fingerprint in an entry, and whether its URL is new."""
    found = re.match(r"\d+,\d+,\d+,\d+,(00)?(0?)(\d+)", entry)
    return ((-1 if found[2] else 1) * int(found[3]), bool(found[1])) if found else None


def contents(found: dict[str, Any]) -> Contents:
    """Read a dump. Raises AssertionError for a fingerprint in two buckets."""
    out = Contents()

    def met(p: int, crawl: int, host: str, entry: str, place: str) -> None:
        url = part.task_of(0, host, "A" + entry).url
        out.places[(crawl, url)] += 1
        out.at[(crawl, url)] = place
        out.counts[(p, crawl, place)] += 1
        out.bytes[p] += len(task_path(url)) + TASK_BYTES
        if place == "waiting":
            out.waits.add((p, crawl, host))
        if mark := mark_of(entry):
            out.marks.setdefault(crawl, []).append(mark[0])
            out.refetches[(host, crawl)] += not mark[1]
            out.refetches_at[(host, crawl)] += place == "waiting" and not mark[1]

    for key, value in found.items():
        p = int(key[4 : key.index("}")])
        kind, *rest = key.split("}:", 1)[1].split(":", 2)
        if kind == "h":
            host = ":".join(rest)
            out.hosts[host] = unpacked(value) or {}  # Lua packs an empty record as a list
            for crawl, queue in out.hosts[host].get("q", {}).items():
                for entry in queue.get("e", ()):
                    met(p, int(crawl), host, entry[1:], "waiting")
        elif kind == "w":
            for entry in value:
                met(p, int(rest[0]), rest[1].rpartition(":")[0], entry, "waiting")
        elif kind == "s":
            for name, entry in value.items():
                if name[0] == "t":
                    met(p, int(value["crawl"]), value["host"], entry[1:], "leased")
            assert int(value["left"]) == sum(name[0] == "t" for name in value)
        elif kind == "later":
            for member, _ in value:
                crawl, host, entry = member.split("\n")
                met(p, int(crawl), host, entry[1:], "later")
        elif kind in "zyg":
            of_kind = {"z": out.seen, "y": out.spilled, "g": out.again}[kind]
            sets = of_kind.setdefault(int(rest[0]), set())
            numbers = {int(one) for one in value}
            assert not sets & numbers, "a fingerprint stands in two buckets"
            sets |= numbers
        elif kind == "dry":
            out.bytes[p] += HOST_BYTES * len(value)
        elif kind == "c":
            out.crawls[(p, int(rest[0]))] = unpacked(value)
    for p, _, _ in out.waits:
        out.bytes[p] += HOST_BYTES
    return out
