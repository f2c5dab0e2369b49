"""The calendar: when a page of a crawl that begins again is asked for next, on any database.

All times are starts of periods, as the store has them: no clock of a worker counts. A page that was
fetched is due in the next period. A page that is gone waits twice as long after each look. It is
*retired* after some looks that lie days apart; its row stays, and says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple
from zlib import crc32

from greencrawl.schema import wire
from greencrawl.schema.net.urls import host_of, partition_of
from greencrawl.schema.records import (
    Admission,
    Commit,
    FrontierIdentity,
    Observation,
    Planned,
    Recrawl,
    TaskKind,
)
from greencrawl.store import rows

GONE_MISSES = 4
"""A page that was gone this many times in a row is retired, after :data:`GONE_SECONDS`."""
GONE_SECONDS = 3 * 86_400
"""A page is retired only if the first and the last of these looks are this far apart."""
MOST_SECONDS = 64 * 86_400
"""The longest wait before a page that is gone is asked for again."""
RETIRED_S = 2**32 - 1
"""The due time of a retired page: never."""
MOST_MISSES = 255

Key = tuple[int, int]


class Plan(NamedTuple):
    """A crawl's calendar: the start of its latest period, the time between periods, the depth.

    Pages up to this depth are in the calendar (-1: none).
    """

    started_s: int
    every_s: int
    deepest: int


class Row(NamedTuple):
    """A row of ``calendar``, in the order of :data:`COLUMNS`."""

    crawl: int
    fingerprint: int
    partition: int
    host: int
    depth: int
    task: int
    due_s: int
    queued: int
    checked_ms: int
    misses: int
    missed_s: int

    @property
    def planned(self) -> Planned:
        """Return what people see of this row."""
        retired = self.due_s == RETIRED_S
        return Planned(self.due_s, self.queued > 0, self.checked_ms, self.misses, retired)


COLUMNS = (
    "crawl, fingerprint, partition, host, depth, task, due_s, queued, checked_ms, misses, missed_s"
)


def plan_of(recrawl: str | None, begun_ms: int | None, started_ms: int) -> Plan:
    """Make the plan of a crawl from its option (JSON) and the starts of its latest period and of
    the crawl."""
    option = wire.from_json(recrawl, Recrawl) if recrawl and recrawl != "null" else None
    started_s = (started_ms if begun_ms is None else begun_ms) // 1000
    if option is None:
        return Plan(started_s, 1, -1)
    return Plan(started_s, max(option.every_ms // 1000, 1), option.deepest)


def observed(work: Commit, crawls: Collection[int]) -> list[Observation]:
    """Return the observations of URLs of these crawls in a commit."""
    found = [
        Observation(
            page.crawl, page.fingerprint, page.fetched_ms, "page", page.url, page.depth, page.task
        )
        for page in work.pages if page.crawl in crawls
    ]  # fmt: skip
    found += [
        Observation(one.crawl, one.fingerprint, one.at_ms, "page", one.url, one.depth, one.task)
        for one in work.checks if one.crawl in crawls
    ]  # fmt: skip
    for last in work.finals:
        if last.crawl in crawls:
            state = last.state if last.state in ("gone", "excluded") else "failed"
            found.append(
                Observation(
                    last.crawl, last.fingerprint, last.at_ms, state, last.url, last.depth, last.task
                )
            )
    return found


def named(work: Commit) -> set[int]:
    """Return the crawls that a commit writes for."""
    found = {page.crawl for page in work.pages}
    found.update(last.crawl for last in work.finals)
    found.update(one.crawl for one in work.checks)
    return found


class Settled(NamedTuple):
    """The changes by observations: new or changed rows, and retired URLs."""

    changed: list[Row]
    retired: frozenset[Key]


def settle(
    observations: Iterable[Observation],
    known: Mapping[Key, Row],
    plans: Mapping[int, Plan],
    partitions: int,
) -> Settled:
    """Apply observations to the rows in ``known``."""
    now = dict(known)
    changed: dict[Key, Row] = {}
    retired: set[Key] = set()
    for seen in sorted(observations, key=attrgetter("at_ms")):
        key, plan = seen[:2], plans[seen.crawl]
        row = now.get(key)
        after = _first(seen, plan, partitions) if row is None else _after(row, seen, plan)
        if after is not None:
            now[key] = changed[key] = row = after
        gone = seen.found in ("gone", "excluded")
        if gone and row is not None and row.due_s == RETIRED_S:
            retired.add(key)
        elif retired:
            retired.discard(key)
    return Settled(list(changed.values()), frozenset(retired))


def _first(seen: Observation, plan: Plan, partitions: int) -> Row | None:
    """Return the first row of a URL; None if the URL does not belong into the calendar."""
    if seen.found not in ("page", "gone") or not seen.url or seen.depth > plan.deepest:
        return None
    partition, host = _place_of(host_of(seen.url), partitions)
    due_s, misses, missed_s = _next(None, seen.found, plan)
    return Row(
        seen.crawl, seen.fingerprint, partition, host, min(max(seen.depth, 0), 2**31 - 1),
        asked_as(seen.task), due_s, 0, rows.bounded(seen.at_ms), misses, missed_s,
    )  # fmt: skip


def _after(row: Row, seen: Observation, plan: Plan) -> Row | None:
    """Return the row after an observation; None if nothing changes.

    A row that is on its way is settled by any fetch except the one that it already records:
    workers' clocks differ. A late observation changes no row that waits.
    """
    at_ms = rows.bounded(seen.at_ms)
    if not (at_ms > row.checked_ms or (row.queued and at_ms != row.checked_ms)):
        return None
    depth = min(row.depth, max(seen.depth, 0), 2**31 - 1)
    due_s, misses, missed_s = _next(row, seen.found, plan)
    return Row(*row[:4], depth, row.task, due_s, 0, at_ms, misses, missed_s)


@lru_cache(4096)
def _place_of(host: str, partitions: int) -> tuple[int, int]:
    """Return the partition of a host, and a hash that distinguishes it from other hosts there."""
    return partition_of(host, partitions), crc32(host.encode("utf-8", "replace"))


def _next(row: Row | None, found: str, plan: Plan) -> tuple[int, int, int]:
    """Return the next date of a row (None: a new row), its misses, and when the first one was."""
    if found == "page":
        return plan.started_s + 1, 0, 0
    misses, missed_s = (row.misses, row.missed_s) if row else (0, 0)
    if row and row.due_s == RETIRED_S and misses:
        return RETIRED_S, misses, missed_s
    if found == "failed":
        return plan.started_s + 1, misses, missed_s
    missed_s = missed_s if misses else plan.started_s
    misses = min(misses + 1, MOST_MISSES)
    if misses >= GONE_MISSES and plan.started_s - missed_s >= GONE_SECONDS:
        return RETIRED_S, misses, missed_s
    # Half a period less: so a period that begins a little late is not counted as one more.
    wait_s = min(2 ** min(misses - 1, 30) * plan.every_s, max(MOST_SECONDS, plan.every_s))
    due_s = plan.started_s + max(wait_s - plan.every_s // 2, 1)
    return min(due_s, RETIRED_S - 1), misses, missed_s


def asked_as(task: TaskKind) -> TaskKind:
    """Return the kind of task with which a URL is asked for again."""
    return _ASKED_AS.get(task, TaskKind.REFETCH)


_ASKED_AS = {kind: TaskKind.SITEMAP for kind in TaskKind if kind.is_sitemap} | {
    TaskKind.REQUISITE: TaskKind.REQUISITE
}


def item_of(url: str | None, depth: int, task: int) -> Admission | None:
    """Return the admission that queues a row."""
    return None if url is None else Admission(url, depth, kind=TaskKind(task))


def partitions_of(identity: str | None) -> int:
    """Return how many partitions a frontier has, by its record (JSON); 1 if there is none yet."""
    return wire.from_json(identity, FrontierIdentity).partitions if identity else 1


def grouped(keys: Iterable[Key]) -> dict[int, list[int]]:
    """Return fingerprints in order by crawl."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for crawl, number in sorted(set(keys)):
        found[crawl].append(number)
    return found
