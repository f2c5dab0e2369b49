"""The rules that hold after each step of the state machine of duties, whatever process stands still
or dies."""

from __future__ import annotations

import sqlite3
from typing import Any

import redis
from hypothesis.stateful import invariant

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.schema.records import STOPPED, Admission, Crawl
from tests.support.duty_brokers import Broker
from tests.support.redis_dump import Key, unpacked

PLAIN, LIMITED, PASSING = NAMES = ["plain", "limited", "passing"]
"""Crawls: the second has a limit, the third is deleted and made again."""
HOSTS = ["a.example", "c.example", "b.example", "f.example"]
"""Hosts in partitions, and so on nodes, 0 and 1 alternately."""
JOBS = [
    names.UPKEEP, names.UPKEEP, names.REFILL, names.PURGE, names.RETENTION, names.REPLAY,
    names.QUOTAS,
]  # fmt: skip


def links_of(page: str) -> list[Admission]:
    """Return the links of a page: always the same, one link for each node, or one to its own host,
    or one to the other node."""
    path = page.split("/")[3]
    if path.startswith("d"):
        other = HOSTS[1 - HOSTS.index(page.split("/")[2]) % 2]
        return [Admission(f"http://{other}/l{path}", depth=1)]
    if path.startswith("s"):
        return [Admission(f"http://{page.split('/')[2]}/l{path}", depth=1)]
    if not path.isdigit():
        return []
    host = HOSTS.index(page.split("/")[2])
    return [Admission(f"http://{HOSTS[(host + n) % 4]}/l{path}.{host}", depth=1) for n in (1, 2)]


class Laws:
    """The rules of a :class:`tests.support.duty_world.World`."""

    pace: Any
    store: Any
    sql: sqlite3.Connection
    raw: list[redis.Redis]
    workers: Frontier
    brokers: list[Broker]
    limit: int
    exact: bool
    given: set[Key]
    paused: set[int]
    stopped: set[int]
    versions: dict[tuple[int, int], int]
    spread: dict[int, int]
    holders: dict[tuple[str, int], str]

    def logged(self, crawl: int) -> set[str]:
        found = {item.url for batch in self.store.seeds(crawl) for item in batch.urls}
        for _, page in self.store.pages(crawl):
            found |= {item.url for item in page.links}
        return found | {url for c, url in self.given if c == crawl}

    def record(self, p: int, crawl: int) -> dict[str, Any]:
        """Return a partition's data about a crawl."""
        return unpacked(self.raw[p].get(f"gc:{{{p}}}:c:{crawl}") or "\x80")

    def left(self, crawl: int) -> set[str]:
        """Return the URLs of the log that are not final."""
        sql = "SELECT url FROM pages WHERE crawl = ?1 UNION SELECT url FROM finals WHERE crawl = ?1"
        return self.logged(crawl) - {url for (url,) in self.sql.execute(sql, (crawl,))}

    def coming(self, crawl: int) -> set[str]:
        """Return the links of pages that are just being settled: their sender opens the crawl."""
        found = set()
        for task in self.pace.living():
            if isinstance(task.owner, tuple) and task.owner[0].crawl == crawl:
                session, number = task.owner
                pages = (one.url for one in session.tasks if one.number == number)
                found |= {link.url for page in pages for link in links_of(page)}
        return found

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "tokens"):
            return
        crawls = self.store.crawls()
        self.held_once()
        self.bounded()
        pipe = [raw.pipeline(transaction=False) for raw in self.raw]
        for crawl in crawls:
            for p in (0, 1):
                pipe[p].get(f"gc:{{{p}}}:c:{crawl.id}")
        found = [one.execute() for one in pipe]
        for number, crawl in enumerate(crawls):
            records = [unpacked(found[p][number] or "\x80") for p in (0, 1)]
            self.told(crawl, records)
            paused, stopped = crawl.state == "paused", crawl.stopping or crawl.reason == STOPPED
            assert (paused and not stopped) == (crawl.id in self.paused), "a pause was undone"
            assert stopped == (crawl.id in self.stopped), f"{crawl.name} was stopped, or was not"
            if crawl.finished:
                left = self.left(crawl.id) - self.coming(crawl.id)
                assert not left, f"{crawl.name} is done without {left}"

    def lacks(self, p: int) -> bool:
        """Return whether a node is owed something, or came back and no broker has noticed that
        yet."""
        owner = self.raw[p].hgetall(keys.OWNER)
        again = owner["run"] != self.raw[p].info("server")["run_id"]
        return again or "owed" in owner or self.workers.nodes[p].id in self.store.debts()

    def none_is_shut(self) -> None:
        """Check that no crawl is left shut without an end, after a broker has scanned all
        crawls."""
        for crawl in self.store.crawls():
            for p in (0, 1):
                record = self.record(p, crawl.id)
                shut = record.get("state") == "done" and int(record["ver"]) == crawl.version
                assert not shut or crawl.ended, f"{crawl.name} was left shut"

    def held_once(self) -> None:
        for name in {*JOBS, *(f"{names.REPLAY}:{node.id}" for node in self.workers.nodes)}:
            holders = [broker for broker in self.brokers if broker.duties.get(name)]
            assert len(holders) < 2, f"two hold {name}"
        for broker in self.brokers:  # an epoch never had two holders, even if one is out of date
            for name, (epoch, _) in broker.duties._held.items():
                holder = self.holders.setdefault((name, epoch), broker.duties.holder)
                assert holder == broker.duties.holder, f"two held {name} under epoch {epoch}"

    def bounded(self) -> None:
        sql = (
            "SELECT COUNT(*) FROM pages JOIN crawls ON crawls.id = crawl "
            "WHERE name = ? AND status = 200"
        )
        assert self.sql.execute(sql, (LIMITED,)).fetchone()[0] <= self.limit, "a page too many"

    def told(self, crawl: Crawl, records: list[dict[str, Any]]) -> None:
        """Check that no partition goes back to an older version, and that all have the same data of
        one version."""
        for p, record in enumerate(records):
            version = int(record.get("ver", 0))
            assert version >= self.versions.get((crawl.id, p), 0), "an older word counted"
            self.versions[crawl.id, p] = version
            if version < self.spread.get(crawl.id, 0):
                assert self.lacks(p), f"{crawl.name} was told, and node {p} has not heard of it"
            if crawl.finished and record.get("state") != "done":
                assert self.lacks(p), f"{crawl.name} is done, and node {p} would take more in"
            assert version <= crawl.version
            if version == crawl.version:
                states = {part.state_of(crawl)}
                if crawl.state == "active":
                    states |= {"stop", "done"}
                assert record["state"] in states, f"{crawl.name} is {crawl.state}"
        if crawl.options.max_pages and self.exact:
            sums = [
                sum(int(record.get(name, 0)) for name in ("quota", "leased", "stored"))
                for record in records
            ]
            assert sum(sums) <= self.limit, f"{sums} of {self.limit} are leased, or may be"
            assert all(int(record.get("quota", 0)) >= 0 for record in records)
