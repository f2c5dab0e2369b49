"""The world of the state machine of duties: crawls, brokers and workers on two nodes, and its
rules.

All requests and work run one call at a time. :meth:`World.holds` is checked after each rule; at the
end :meth:`World.calm` heals everything, and everything that was ever asked for must be finished in
a bounded number of rounds.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.service import seeding
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import (
    STOPPED,
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Done,
    Final,
    FinishItem,
    HostReport,
    Recrawl,
    ReleaseItem,
    Session,
    StoredPage,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN
from tests.support.duty_brokers import REQUEST_S, TTL_S, Broker, Fences
from tests.support.duty_laws import HOSTS, LIMITED, NAMES, PLAIN, Laws, links_of
from tests.support.paced import Pace, Paced, PacedStore
from tests.support.redis_dump import Copy, Key
from tests.support.redis_server import RedisServer

T = TypeVar("T")

SEEDS = 6
"""Number of paths of a host that are seeded; each leads to two others, which have no links."""
MAX_PAGES = 5
ROUNDS = 30
STEPS = st.sampled_from([999, 999, 1, 2, 3, 5, 8])
COUNTS = st.sampled_from([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 11])
BETWEEN = st.sampled_from([*[{"set_state"}] * 3, {"redis"}])
"""Something happens before these calls, in a process that finds crawls finished."""
LATE = st.sampled_from([999, 999, 999, 2, 3])
WHICH = st.integers(0, 41)
"""An index into anything; drawn like this, values do not depend on what happened."""
EITHER = st.sampled_from([0, 1])


def some(things: Sequence[T], which: int) -> list[T]:
    """Return one of ``things``, the latest for 0; none if there is none."""
    return [things[-1 - which % len(things)]] if things else []


def seeds_of(which: int, count: int) -> list[Admission]:
    places = [(which + n) % (len(HOSTS) * SEEDS) for n in range(count)]
    return [Admission(f"http://{HOSTS[n % len(HOSTS)]}/{n // len(HOSTS)}") for n in places]


class World(Laws, RuleBasedStateMachine):
    """Three crawls, and two brokers and workers on two nodes; a cut link is an open breaker."""

    servers: ClassVar[list[RedisServer]]
    pace: ClassVar[Pace]
    memory: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="duties-", dir=self.memory))
        urls = [server.url for server in self.servers]
        self.raw = [
            redis.Redis(port=server.port, decode_responses=True, encoding="latin-1")
            for server in self.servers
        ]
        self.plain = [redis.Redis(port=server.port) for server in self.servers]
        for raw in self.raw:
            raw.flushall()
        self.store = open_store(f"sqlite:///{self.folder / 'c.sqlite'}")
        self.sql = sqlite3.connect(self.folder / "c.sqlite", isolation_level=None)
        self.pace.known.clear()
        self.fences = Fences(self.sql, self.raw)
        self.paced_store: Any = PacedStore(self.pace, self.store)
        self.made = partial(Broker, urls, self.pace, self.paced_store, self.fences.heard)
        self.brokers = [self.made(0), self.made(1)]
        self.workers = Frontier(urls, self.paced_store)
        for node in self.workers.nodes:
            self.pace.node(node)
        self.said: list[Crawl] = []
        """The rows of crawls that some process has read."""
        self.spread: dict[int, int] = {}
        """Crawl → the latest version of which some process has told all partitions."""
        self.holders = {}
        """(name of a duty, epoch) → its holder."""
        self.limit = MAX_PAGES
        self.exact = True
        """True if no process had to guess the quota of a partition."""
        for name in NAMES:
            self.make(name)
        self.held: list[Session] = []
        self.deadlines: dict[str, float] = {}
        """Token → the time after which its worker treats its results as late."""
        self.given: set[Key] = set()
        """Seeds that were acknowledged."""
        self.paused: set[int] = set()
        self.stopped: set[int] = set()
        """Crawls that a person has stopped, and that nobody has resumed or seeded since."""
        self.note_seeds()
        self.versions: dict[tuple[int, int], int] = {}
        self.tokens = self.moment = 0
        for name in NAMES:
            self.give(name, seeds_of(0, 3), 0, 999)
        self.job(names.QUOTAS, 0, 999)

    def note_seeds(self) -> None:
        """Note the seeds that reopen a stopped crawl."""
        add_seeds = self.store.add_seeds

        def noted(crawl: int, *given: Any, **more: Any) -> int:
            batch = add_seeds(crawl, *given, **more)
            self.stopped.discard(crawl)
            return batch

        self.store.add_seeds = noted  # type: ignore[method-assign]

    # -- steps

    def work(self, name: str, steps: int, call: Callable[[], Any], owner: Any = None) -> Paced:
        """Begin the work of a process, and let it run some steps."""

        def quietly() -> Any:
            try:
                return call()
            except (Unavailable, UnknownCrawl) as error:
                return error

        task = self.pace.begin(name, quietly)
        task.owner = owner
        self.fences.advance(task, steps)
        return task

    def job(self, name: str, broker: int, steps: int) -> Paced:
        """Begin a round under a duty, or go on with the present round of this broker."""
        at = self.brokers[broker]
        for task in self.pace.living():
            if task.name == name and task.owner is at:
                self.fences.advance(task, steps)
                return task
        if name == names.QUOTAS and any(node.breaker.since_ms for node in at.frontier.nodes):
            self.exact = False
        jobs = at.jobs(lambda: self.row(LIMITED).id)
        return self.work(name, steps, partial(at.run, name, jobs[name]), at)

    def row(self, name: str) -> Crawl:
        """Return the row in the store. Raises UnknownCrawl."""
        return self.store.crawl(name)

    def make(self, name: str) -> Crawl:
        most = self.limit if name == LIMITED else 0
        recrawl = Recrawl(every="1w") if name == PLAIN else None  # it rests where others end
        options = CrawlOptions(delay=0.0, slots=2, max_pages=most, recrawl=recrawl)
        crawl = self.store.put_crawl(name, options, HOSTS)
        self.said.append(crawl)
        self.tell(crawl, 0, 999)
        return crawl

    def tell(self, crawl: Crawl, broker: int, steps: int) -> None:
        at = self.brokers[broker]

        def tell() -> None:
            at.frontier.put_crawl(crawl)
            self.spread[crawl.id] = max(crawl.version, self.spread.get(crawl.id, 0))

        self.work("tell", steps, tell, at)

    def known(self, name: str) -> list[Crawl]:
        return [crawl for crawl in self.store.crawls() if crawl.name == name]

    # -- duties

    def kill(self, task: Paced) -> None:
        """Kill a process, but let it finish first if its node no longer has the task whose page it
        stores.

        Another process may have fetched the URL since, with another result: then no process would
        come again for what this one leaves undone.
        """
        if isinstance(task.owner, tuple) and not self.is_current(*task.owner):
            self.mend_links()
            self.fences.advance(task, 999)
        else:
            task.kill()

    def is_current(self, session: Session, number: int) -> bool:
        p = int(session.session[0])
        return bool(self.raw[p].hexists(f"gc:{{{p}}}:s:{session.token}", f"t{number}"))

    def fresh(self, host: str, count: int) -> list[Admission]:
        """Return URLs that are new, and that have no links."""
        self.moment += 1
        return [Admission(f"http://{host}/x{self.moment}.{n}") for n in range(count)]

    # -- crawls

    def give(self, name: str, items: list[Admission], broker: int, steps: int) -> None:
        at = self.brokers[broker]
        for crawl in self.known(name):
            self.said.append(crawl)

            def admit(crawl: Crawl = crawl) -> None:
                admitted = seeding.admit(at.service, crawl, items, force=False)
                if not admitted.away:
                    self.given |= {(crawl.id, item.url) for item in items}

            self.work("seed", steps, admit, at)

    def pass_time(self, seconds: float) -> None:
        self.pace.shift_ms += seconds * 1000
        for raw in self.raw:
            raw.hincrby(keys.OWNER, "offset", round(seconds * 1000))

    def mend_links(self) -> None:
        for node in self.workers.nodes:
            node.breaker.since_ms = 0
        for broker in self.brokers:
            broker.mend()

    # -- nodes that come back as they were once

    def copy(self, node: int) -> Copy:
        return Copy.of(self.plain[node], self.pace.shift_ms)

    def lose(self, node: int, copy: Copy) -> None:
        """Restart the node from an older copy of its data."""
        copy.put_back(self.plain[node])
        raw = self.raw[node]
        raw.hincrby(keys.OWNER, "offset", round(self.pace.shift_ms - copy.shift))
        raw.hset(keys.OWNER, "run", f"before-{self.moment}")
        self.exact = False
        for number, name in self.fences.heard:
            if number == node:
                epoch = raw.hget(keys.OWNER, f"duty:{name}")
                self.fences.heard[number, name] = int(epoch or 0)
        self.versions = {key: v for key, v in self.versions.items() if key[1] != node}

    def recover(self, node: int, broker: int, steps: int) -> None:
        at = self.brokers[broker].frontier
        self.work("recover", 999, lambda: at.recovery.reopen(at.nodes[node]))
        for task in self.pace.living():
            if task.name == "refill":
                self.fences.advance(task, steps)

    def tick(self, broker: int, times: int, steps: int = 999) -> Paced:
        at = self.brokers[broker].frontier

        def tick() -> None:
            for _ in range(times):
                at.tick(self.store.clock())
                self.store.tick()

        return self.work("tick", steps, tick)

    # -- workers

    def open(self, at: Broker, p: int, most: int, per: int) -> None:
        sent, rows = self.pace.now_ms(), []
        for crawl in self.store.crawls():
            rows.append([crawl.id, most, *(f"{self.tokens + n:016x}" for n in range(most))])
            self.tokens += most
        args = ["w", 0, self.tokens, TTL_S * 1000, 1_800_000, REQUEST_S * 1000, per, 0, *rows]
        reply = at.frontier._calls("open", {p: to_msgpack(args)})[p]
        for (crawl, *_), due in zip(rows, reply[2], strict=True):
            spent = self.record(p, crawl).get("quota") == 0
            assert not (spent and due), "it is said to be due, and nothing of it may be leased"
        opened = [part.session_of(p, TTL_S, row) for row in reply[1]]
        self.deadlines |= {one.token: sent + TTL_S * 1000 for one in opened}
        self.held += opened

    def deliver(self, broker: int, session: Session, number: int, steps: int, page: bool) -> Paced:
        work = partial(self.settle, broker, session, number, page)
        return self.work("settle", steps, work, (session, number))

    def settle(self, broker: int, session: Session, number: int, page: bool) -> None:
        """Do what ``greencrawl.worker.delivery.writer`` does with one task."""
        (task,) = (task for task in session.tasks if task.number == number)
        at = self.brokers[broker].frontier
        number_of = self.workers.fingerprint(task.url)
        page = page or self.store.page(session.crawl, number_of, detail="row") is not None
        links = links_of(task.url) if page else []
        for _ in range(4):
            owed = self.workers.away_of(links)
            if self.pace.now_ms() >= self.deadlines[session.token]:
                owed |= self.workers.nodes_of(links)
            commit = self.commit_of(session.crawl, task.url, page)
            commit.owes = owed
            stamp = self.paced_store.commit(commit)
            if stamp.refused:
                item = ReleaseItem(session=session.session, token=session.token, tasks=(number,))
                at.release([item])
                return
            if not links or self.admitted(session.crawl, links, stamp, owed):
                break
        else:
            return
        outcome = Done(stored=True, bytes=5) if page else Done(kind="gone")
        at.finish(
            [FinishItem(session=session.session, token=session.token, task=number, outcome=outcome)]
        )

    def admitted(
        self, crawl: int, links: list[Admission], stamp: Any, owed: frozenset[str]
    ) -> bool:
        """Admit links; return False if the rows have to be written again."""
        while True:
            try:
                found = self.workers.admit(crawl, links, stamp=stamp, partial=True)
                break
            except UnknownCrawl:
                return True
            except Unavailable:
                self.pace.gate("away")  # a worker waits until a node answers
        tick = found.tick
        if left := found.away - owed:
            tick = max(tick, self.paced_store.owe(left, stamp.clock))
        return tick - stamp.clock <= MARGIN

    def commit_of(self, crawl: int, url: str, page: bool) -> Commit:
        self.moment += 1
        fingerprint = self.workers.fingerprint(url)
        if page:
            stored = StoredPage(
                crawl=crawl, fingerprint=fingerprint, url=url, status=200, body=b"12345",
                fetched_ms=self.moment, links=links_of(url),
            )  # fmt: skip
            return Commit([stored])
        final = Final(
            crawl=crawl, fingerprint=fingerprint, url=url, state="gone", kind="http_404",
            at_ms=self.moment,
        )  # fmt: skip
        return Commit(finals=[final])

    # -- moves that are likelier together than by chance

    def settle_all(self, rounds: int = 2, *, page: bool = True) -> None:
        """Fetch everything that can be fetched now."""
        for _ in range(rounds):
            for at, broker in enumerate(self.brokers):
                args = to_msgpack([1000])
                self.work("maintain", 999, partial(self.maintain, broker, args), broker)
                self.job(names.REFILL, at, 999)
                self.job(names.QUOTAS, at, 999)
                known = len(self.held)
                for p in (0, 1):
                    self.work("lease", 999, partial(self.open, broker, p, 3, 6), broker)
                for session in self.held[known:]:
                    self.close(broker, session)
                    for task in session.tasks:
                        self.deliver(at, session, task.number, 999, page)

    def maintain(self, at: Broker, args: bytes) -> None:
        at.frontier._calls("maintain", dict.fromkeys((0, 1), args))

    def close(self, at: Broker, session: Session) -> None:
        item = CloseItem(
            session=session.session, token=session.token, report=HostReport(requests=1, robots=True)
        )
        self.work("close", 999, lambda: at.frontier.close_sessions([item]), at)

    # -- calm

    def teardown(self) -> None:
        if not hasattr(self, "tokens"):
            return
        try:
            self.calm()
        finally:
            for task in self.pace.living():
                task.kill()
            for broker in self.brokers:
                broker.stop()
            self.workers.stop()
            self.sql.close()
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def calm(self) -> None:
        for task in self.pace.living():
            self.kill(task)
        self.mend_links()
        for broker in self.brokers:
            broker.deaf = True  # messages about quotas are lost: brokers learn of them by scans
        for crawl in self.store.crawls():
            if crawl.state == "paused" or crawl.reason == STOPPED:
                self.paused.discard(crawl.id)
                self.stopped.discard(crawl.id)
                self.store.set_state(crawl.id, "active")
        for _ in range(ROUNDS):
            self.pass_time(31.0)
            self.settle_all(1)
            for node in (0, 1):
                self.recover(node, 0, 999)
            for name in (names.REPLAY, names.PURGE, names.RETENTION, *[names.UPKEEP] * 3):
                self.job(name, 0, 999)
            self.holds()
            crawls = self.store.crawls()
            if all(c.ended for c in crawls) and not self.store.purges():
                break
        else:
            lists = {crawl.name: self.left(crawl.id) for crawl in crawls}
            raise AssertionError(f"never calm: {crawls}, {self.store.debts()}, {lists}")
        self.ended(crawls)

    def ended(self, crawls: list[Crawl]) -> None:
        for crawl in crawls:
            if crawl.reason == "max_pages":
                assert self.store.stored(crawl.id) == self.limit, "it ended before its limit"
            else:
                assert crawl.finished
                assert not self.left(crawl.id)
        assert not self.store.debts()
        assert not self.store.pending_seeds()
        living = {crawl.id for crawl in crawls}
        for table in ("pages", "finals", "seed_batches", "overflow"):
            rows = {c for (c,) in self.sql.execute(f"SELECT crawl FROM {table}")}
            assert rows <= living, f"a deleted crawl is still in {table}"
