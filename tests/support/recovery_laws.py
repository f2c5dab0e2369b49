"""The rules that hold after each step of the state machine of recovery, whatever was lost."""

from __future__ import annotations

import sqlite3
from typing import Any

import redis
from hypothesis.stateful import invariant

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition as part
from tests.support.paced import Pace
from tests.support.redis_dump import Contents, Key, contents, dump

DELAYS, SLOTS = {1: 3.0, 2: 0.0}, {1: 1, 2: 2}
"""By crawl."""
PLANNED = 2
"""The crawl that has a calendar."""


class Laws:
    """The rules of a :class:`tests.support.recovery_world.World`."""

    pace: Pace
    store: Any
    sql: sqlite3.Connection
    raw: redis.Redis
    plain: redis.Redis
    workers: Frontier
    forced: set[Key]
    paused: set[int]
    let_go_of: set[tuple[int, str]]
    run: str

    def is_forced(self, key: Key) -> bool:
        """Return whether a URL may have been queued again by force."""
        raise NotImplementedError

    def log(self) -> tuple[set[Key], set[Key], dict[Key, set[Key]]]:
        """Return URLs of the logs; URLs of pending batches; page → URLs of its links."""
        logged: set[Key] = set()
        pending: set[Key] = set()
        parents: dict[Key, set[Key]] = {}
        for crawl in DELAYS:
            for batch in self.store.seeds(crawl):
                logged |= {(crawl, item.url) for item in batch.urls}
            for _, page in self.store.pages(crawl):
                found = {(crawl, item.url) for item in page.links}
                parents[(crawl, page.url)] = found
                logged |= found
        self.to_force: set[Key] = set()
        """URLs of pending forced batches: they are still to be queued, even if they were seen."""
        for batch in self.store.pending_seeds():
            some = {(batch.crawl, item.url) for item in batch.urls}
            pending |= some
            self.to_force |= some if batch.force else set()
        return logged, pending, parents

    def settled(self) -> set[Key]:
        sql = "SELECT crawl, url FROM pages UNION SELECT crawl, url FROM finals"
        return {(crawl, page) for crawl, page in self.sql.execute(sql)}

    def released(self) -> None:
        """Check that no URL is parked by a shape that was completely released."""
        left = {(crawl, one.shape) for crawl in DELAYS for one in self.store.parked_shapes(crawl)}
        assert not left & self.let_go_of
        assert not {crawl for crawl, _ in left} & {crawl for crawl, s in self.let_go_of if not s}

    def owed(self) -> bool:
        owner = self.raw.hgetall(keys.OWNER)
        return bool(owner.get("state") != "open" or owner.get("run") != self.run or "owed" in owner)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "forced"):
            return
        found = contents(dump(self.raw))
        self.accounted(found)
        logged, pending, parents = self.log()
        settled = self.settled()
        self.released()
        if not self.owed():
            self.conserved(found, logged - settled, pending, parents)
            self.told(found)
        self.planned(found)
        if not any(task.name == "upkeep" for task in self.pace.living()):
            for crawl in self.store.crawls():
                if crawl.state == "done":
                    left = {key for key in logged - settled if key[0] == crawl.id}
                    assert not left, f"{crawl.name} is done without {left}"
                    assert not any(key[0] == crawl.id for key in pending)

    def told(self, found: Contents) -> None:
        """Check that all partitions have the same data of one version, and that no pause is
        undone."""
        for crawl in self.store.crawls():
            assert (crawl.state == "paused") == (crawl.id in self.paused), "a pause was undone"
            for p in (0, 1):
                record = found.crawls.get((p, crawl.id), {})
                assert int(record.get("ver", 0)) <= crawl.version
                if int(record.get("ver", 0)) == crawl.version:
                    states = {part.state_of(crawl)}
                    if crawl.state == "active":
                        states |= {"stop", "done"}
                    assert record["state"] in states, f"{crawl.name} is {crawl.state}"

    def planned(self, found: Contents) -> None:
        """Check that each page and each gone URL of a crawl with a calendar is in exactly one
        state: it waits for its date; it is on its way, with one task; or it is retired."""
        for crawl in DELAYS:
            marks, again = found.marks.get(crawl, []), found.again.get(crawl, set())
            assert sorted(marks) == sorted(again), f"tasks of {crawl} are not what is on its way"
            kept = {host: q.get("g", 0) for host, r in found.hosts.items()
                    for c, q in r.get("q", {}).items() if int(c) == crawl}  # fmt: skip
            waiting = {h: n for (h, c), n in found.refetches_at.items() if c == crawl and n}
            assert {h: n for h, n in kept.items() if n} == waiting
            counted = sum(r.get("again", 0) for (_, c), r in found.crawls.items() if c == crawl)
            assert counted == sum(n for (_, c), n in found.refetches.items() if c == crawl)
        twice = {url for (c, url), n in found.places.items() if c == PLANNED and n > 1}
        assert not twice, f"more than one task: {twice}"
        sql = "SELECT fingerprint, queued FROM calendar WHERE crawl = ?"
        rows: dict[int, int] = dict(self.sql.execute(sql, (PLANNED,)))
        sql = (
            "SELECT fingerprint FROM pages WHERE crawl = :crawl UNION "
            "SELECT fingerprint FROM finals WHERE crawl = :crawl AND state = 'gone'"
        )
        left = {row[0] for row in self.sql.execute(sql, {"crawl": PLANNED})} - rows.keys()
        assert not left, "a page is not in the calendar"
        if not self.owed():
            on_way = {number for number, queued in rows.items() if queued}
            assert on_way <= found.again.get(PLANNED, set()), "it is not on its way"

    def conserved(
        self, found: Contents, left: set[Key], pending: set[Key], parents: dict[Key, set[Key]]
    ) -> None:
        rows = {
            (crawl, page): queued
            for crawl, page, queued in self.sql.execute("SELECT crawl, url, queued FROM overflow")
        }
        unfinished = {key for page, all_ in parents.items() if page in found.places for key in all_}
        for key in left:
            fingerprint = self.workers.fingerprint(key[1])
            places = found.places[key]
            if places:
                assert places == 1 or self.is_forced(key), f"{key} stands in {places} places"
                continue
            if key in self.to_force:
                continue
            assert fingerprint not in found.seen.get(key[0], ()), f"{key} was seen, and is nowhere"
            if fingerprint in found.spilled.get(key[0], ()):
                assert rows.get(key) == 0, f"{key} is to be in the overflow, and is not: {rows}"
                continue
            assert rows.get(key) == 0 or key in pending or key in unfinished, f"{key} was lost"

    def accounted(self, found: Contents) -> None:
        for p in (0, 1):
            stored = int(self.plain.get(f"gc:{{{p}}}:b") or 0)
            assert stored == found.bytes[p], "bytes of a partition"
        for (p, crawl), record in found.crawls.items():
            fields = {"waiting": "wait", "leased": "leased", "later": "later"}
            for place, name in fields.items():
                assert record.get(name, 0) == found.counts[(p, crawl, place)], f"{place} of {crawl}"
            still = sum(record.get(name, 0) for name in ("wait", "leased", "later", "over"))
            assert still == record.get("adm", 0) - record.get("fin", 0)
        for crawl in DELAYS:
            spilled = found.spilled.get(crawl, set())
            assert not spilled & found.seen.get(crawl, set())
            over = sum(r.get("over", 0) for (_, c), r in found.crawls.items() if c == crawl)
            assert over == len(spilled)
        for p, crawl, host in found.waits:
            if not int(found.hosts[host].get("busy", 0)):
                due = self.plain.zscore(f"gc:{{{p}}}:due:{crawl}", host)
                assert due is not None, f"{host} waits and is never due"
