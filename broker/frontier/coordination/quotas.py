"""Under ``max_pages`` each partition has a quota: tasks that it may still lease.

Opening a session takes its tasks from the quota. A task that is released, fails or is not stored is
added to the quota again. So the sum of stored, leased and remaining tasks in a partition stays the
same, whatever happens there. Only the broker that shares quotas out changes the sum: over all
partitions it never exceeds the limit.

Redis counts a page that is fetched again as stored once more, but the store has it once. So the
number of these pages is added to the limit.

One broker does this, under a duty. Each of its passes has a higher number than the pass before; the
upper part of the number is the epoch of the duty. A pass first reads every partition under its
number, and a partition keeps the highest number that it has seen. The partition refuses a quota
under a lower number: such a quota came late, or from an earlier holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gevent
from gevent.event import Event

from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.leasing import Calls
from greencrawl.broker.frontier.scripts.partition import fields
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, Duty
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

log = logger("quotas")

SOON_MS = 1000
"""A partition whose next host is due later than this needs no quota yet."""
APART_SECONDS = 0.02
"""Least seconds between two passes of a broker."""
AWAY_SECONDS = 1.0
"""Seconds after a pass that failed."""
PASSES = 1 << 24
"""How many pass numbers an epoch has."""


class Row(NamedTuple):
    """A crawl in a partition. ``due``: a host of it may be opened soon."""

    quota: int
    waiting: int
    leased: int
    stored: int
    due: bool
    requeued: int = 0
    """Known URLs that were queued again: ``stored`` may count pages twice."""

    @property
    def sum(self) -> int:
        """Return the sum that only the sharing broker changes."""
        return self.quota + self.leased + self.stored


class _Known(NamedTuple):
    """What is known of a crawl whose quotas were shared out under an epoch of the duty.

    A partition that is away has the numbers that it reported last. ``sums`` are upper bounds;
    ``stored`` and ``twice`` are lower bounds. ``twice`` is how many more pages Redis counts as
    stored than there are.
    """

    epoch: int
    sums: dict[int, int]
    stored: dict[int, int]
    twice: int = 0


def plan(limit: int, rows: Mapping[int, Row], *, half: bool = False) -> dict[int, int]:
    """Return partition → the change of its quota.

    Quota goes where tasks wait and are due, in proportion to how many wait. It is taken from what
    no partition has yet, and then from partitions that have more than their share. With ``half``,
    half of what is left is kept: sessions that wait for a login must leave room for the errands of
    this login.
    """
    left = limit - sum(row.leased + row.stored for row in rows.values())
    free = left - sum(row.quota for row in rows.values())
    if free < 0:
        return _drawn({p: row.quota for p, row in rows.items()}, -free)
    if half:
        left -= left // 2
        free = max(left - sum(row.quota for row in rows.values()), 0)
    waiting = sum(row.waiting for row in rows.values())
    share = {p: left * row.waiting // waiting if waiting else 0 for p, row in rows.items()}
    needs = {
        p: max(share[p] - row.quota, 1)
        for p, row in rows.items()
        if row.due and row.waiting > row.quota and (not row.quota or 2 * row.quota <= share[p])
    }
    if not needs:
        return {}
    spare = {
        p: row.quota - max(share[p], int(row.due and row.waiting > 0))
        for p, row in rows.items()
        if p not in needs and row.quota > share[p]
    }
    gives = _split(needs, free + sum(spare.values()))
    taken = _drawn(spare, sum(gives.values()) - free)
    without_quota = [p for p in needs if not rows[p].quota and not gives.get(p)]
    if without_quota:  # partitions that are not due soon can do without quota for now
        idle = {p: row.quota for p, row in rows.items() if not row.due and p not in taken}
        more = _drawn(idle, len(without_quota))
        taken |= more
        gives |= dict.fromkeys(without_quota[: -sum(more.values())], 1)
    return {p: n for p, n in (taken | gives).items() if n}


def _drawn(sources: Mapping[int, int], wanted: int) -> dict[int, int]:
    """Take ``wanted`` tasks, or all there are, from the sources, the largest source first."""
    drawn: dict[int, int] = {}
    for p in sorted(sources, key=lambda p: -sources[p]):
        some = min(sources[p], wanted)
        if some <= 0:
            break
        drawn[p] = -some
        wanted -= some
    return drawn


def _split(needs: Mapping[int, int], have: int) -> dict[int, int]:
    """Share out what there is by need; the remainder goes one by one, the neediest first."""
    total = sum(needs.values())
    if have >= total:
        return dict(needs)
    gives = {p: have * need // total for p, need in needs.items()}
    rest = have - sum(gives.values())
    for p in sorted(needs, key=lambda p: (gives[p], -needs[p]))[:rest]:
        gives[p] += 1
    return gives


class Quotas:
    """Shares quotas out for the crawls that :meth:`want` names; a greenlet calls ``run``."""

    def __init__(
        self, calls: Calls, store: Store, duties: Duties, partitions: Iterable[int]
    ) -> None:
        self._calls = calls
        self._store = store
        self._duties = duties
        self._partitions = list(partitions)
        self._pass = (0, 0)
        """Epoch of the duty, and the pass's number in it."""
        self._wanting: set[int] = set()
        self._some = Event()
        self._later: set[int] = set()
        """Crawls whose pass is to be repeated."""
        self._known: dict[int, _Known] = {}

    def want(self, crawl: int) -> None:
        """Note that a partition of the crawl runs out of quota."""
        self._wanting.add(crawl)
        self._some.set()

    def _repeat(self, crawl: int) -> None:
        """Repeat the pass after a while: some partition did not answer."""
        if crawl not in self._later:
            self._later.add(crawl)
            gevent.spawn_later(AWAY_SECONDS, self._want_again, crawl)

    def _want_again(self, crawl: int) -> None:
        self._later.discard(crawl)
        self.want(crawl)

    def forget(self, crawl: int) -> None:
        """Forget a crawl that is deleted or done."""
        self._known.pop(crawl, None)

    def run(self) -> None:
        """Share quotas out for ever."""
        while True:
            self._some.wait()
            self._some.clear()
            wanting, self._wanting = self._wanting, set()
            for crawl in wanting:
                try:
                    duty = self._duties.take(names.QUOTAS)
                    if duty is not None:  # otherwise the holder of the duty got the same message
                        self.share(self._store.crawl(crawl), duty)
                except UnknownCrawl:
                    self.forget(crawl)
                except Unavailable as error:
                    log.info("quotas_delayed", reason=str(error))
                    self._duties.give_up(names.QUOTAS, AWAY_SECONDS)  # another broker may succeed
                    self._repeat(crawl)
                except Exception:  # a bug must not stop all crawls with a limit
                    log.exception("quotas_failed")
            gevent.sleep(APART_SECONDS)

    def share(self, crawl: Crawl, duty: Duty) -> None:
        """Run one pass. Partitions that are away keep what they have. Raises Unavailable.

        Nothing is done for a crawl without ``max_pages``, or for one that is not active.
        """
        if not crawl.options.max_pages or crawl.state != "active":
            self.forget(crawl.id)
            return
        counted = self._calls("count", self._args(crawl.id), partial=True)
        seen = {p: row_of(reply) for p, reply in counted.items()}
        if len(seen) == len(self._partitions) and not wanted(crawl, seen, self._store):
            return  # another broker was faster, or there is nothing to share
        known = self._known.get(crawl.id)
        if known is None or known.epoch != duty.epoch:  # another broker may have shared out since
            known = _Known(duty.epoch, {}, {})
        number = self._next(duty.epoch)
        rows = self._claim(crawl.id, number)
        stored = known.stored | {p: row.stored for p, row in rows.items()}
        requeued = sum(row.requeued for row in seen.values()) or known.twice
        twice = _counted_twice(stored, self._store, crawl, requeued)
        if len(rows) < len(self._partitions):  # the others may have stored more since
            twice = max(twice, known.twice)
        limit = crawl.options.max_pages + twice
        sums = known.sums
        away = sum(sums[p] for p in sums.keys() - rows.keys())
        if set(self._partitions) - rows.keys() - sums.keys():
            # Only the stored pages are known of partitions that are away. Other partitions do not
            # wait. At worst too many pages are fetched; the store takes none beyond the limit.
            away = max(away, self._store.stored(crawl.id) - sum(r.stored for r in rows.values()))
        sums |= {p: row.sum for p, row in rows.items()}
        self._known[crawl.id] = _Known(duty.epoch, sums, stored, twice)
        deltas = plan(limit - away, rows, half=bool(crawl.options.auth))
        answered = self._change(crawl.id, number, deltas, sums)
        without_quota = any(
            row.due and row.waiting and row.quota + deltas.get(p, 0) <= 0 for p, row in rows.items()
        )
        if not answered or (without_quota and len(rows) < len(self._partitions)):
            self._repeat(crawl.id)  # partitions that are away may have what others need

    def _next(self, epoch: int) -> int:
        known, n = self._pass
        self._pass = (epoch, n + 1 if epoch == known else 0)
        return epoch * PASSES + self._pass[1]

    def _args(self, crawl: int, *more: int) -> dict[int, bytes]:
        return dict.fromkeys(self._partitions, to_msgpack([crawl, *more]))

    def _claim(self, crawl: int, number: int) -> dict[int, Row]:
        """Read the partitions under a number. Raises Unavailable if one has seen a higher
        number."""
        replies = self._calls("quota", self._args(crawl, number, 0), partial=True)
        rows: dict[int, Row] = {}
        for p, reply in replies.items():
            if reply[0] == b"GONE":
                raise Unavailable(f"partition {p} does not know crawl {crawl} yet")
            now, mine, _, quota, waiting, leased, stored, due = reply
            if not mine:
                raise Unavailable("another broker shares quotas out")
            rows[p] = Row(quota, waiting, leased, stored, 0 < due <= now + SOON_MS)
        return rows

    def _change(
        self, crawl: int, number: int, deltas: Mapping[int, int], sums: dict[int, int]
    ) -> bool:
        """Take quota first, and then give no more than there is; ``sums`` stay upper bounds.

        Returns whether all partitions have answered.
        """
        takes = {p: n for p, n in deltas.items() if n < 0}
        free = sum(deltas.values())
        taken = self._send(crawl, number, takes)
        for p, reply in taken.items():
            sums[p] += reply
            free -= reply
        gives: dict[int, int] = {}
        for p, wanted in deltas.items():
            if wanted > 0 and free > 0:
                gives[p] = min(wanted, free)
                sums[p] += gives[p]
                free -= gives[p]
        return len(taken) + len(self._send(crawl, number, gives)) == len(takes) + len(gives)

    def _send(self, crawl: int, number: int, deltas: Mapping[int, int]) -> dict[int, int]:
        """Change quotas; return partition → the actual change, of those that answered."""
        if not deltas:
            return {}
        calls = {p: to_msgpack([crawl, number, n]) for p, n in deltas.items()}
        replies = self._calls("quota", calls, partial=True)
        return {p: reply[2] for p, reply in replies.items() if reply[0] != b"GONE" and reply[1]}


def pages_stored(store: Store, crawl: Crawl, requeued: int) -> int:
    """Return the pages (2xx) of a crawl with ``max_pages``; 0 if it has none.

    If URLs were queued again and no commit has counted the pages yet, they are counted here. Raises
    Unavailable.
    """
    if not crawl.options.max_pages:
        return 0
    stored = store.stored(crawl.id)
    return store.counts(crawl.id)["pages"] if requeued and not stored else stored


def _counted_twice(stored: Mapping[int, int], store: Store, crawl: Crawl, requeued: int) -> int:
    """Return how many more pages Redis counts as stored than the store has. Raises Unavailable.

    ``stored`` (partition → pages) was read earlier than the store is read here. The store may have
    pages of tasks that were still leased then, so the result may be too low, but never too high.
    """
    if not requeued:
        return 0
    return max(sum(stored.values()) - pages_stored(store, crawl, requeued), 0)


def wanted(crawl: Crawl, rows: Mapping[int, Row], store: Store) -> bool:
    """Return whether there is something to share out. Raises Unavailable."""
    limit = crawl.options.max_pages
    if not limit:
        return False
    stored = {p: row.stored for p, row in rows.items()}
    limit += _counted_twice(stored, store, crawl, sum(row.requeued for row in rows.values()))
    return bool(plan(limit, rows, half=bool(crawl.options.auth)))


def row_of(reply: Sequence[Any]) -> Row:
    """Return a row from the answer of ``lua/crawls/count.lua``."""
    counters = fields(reply[1])
    quota, waiting, leased, stored, requeued = (
        int(counters.get(name, 0)) for name in ("quota", "wait", "leased", "stored", "requeued")
    )
    return Row(quota, waiting, leased, stored, 0 < reply[2] <= reply[0] + SOON_MS, requeued)
