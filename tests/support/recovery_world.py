"""The world of the state machine of recovery: two brokers and two workers on one Redis and a store.

Each process goes one call at a time (``tests/support/paced.py``). :meth:`World.holds` is checked
after each rule; at the end :meth:`World.heal` heals everything.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from greencrawl.broker.api.handlers.parked import release_parked
from greencrawl.broker.api.messages import ReleaseParkedRequest
from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.calendar import Calendar
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import (
    FINISHED,
    Admission,
    Check,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Dead,
    Done,
    Final,
    FinalState,
    FinishItem,
    HostReport,
    Recrawl,
    ReleaseItem,
    Retry,
    Session,
    StoredPage,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN
from tests.support.paced import Pace, Paced, PacedStore
from tests.support.recovery_laws import DELAYS, PLANNED, SLOTS, Laws
from tests.support.redis_dump import Copy, Key, dump
from tests.support.redis_server import RedisServer

T = TypeVar("T")

HOSTS = ["a.example", "b.example", "c.example:8080"]
PATHS = 6
TTL_S, REQUEST_S, LIFE_MS = 20.0, 10.0, 1_800_000
HOST_BUDGET = 110
"""Bytes: four tasks of a host wait in memory, the others in the overflow."""
ROUNDS = 60
STEPS = st.sampled_from([999, 999, 999, 1, 2, 3, 5, 8, 13])
NEAR_MS = 150.0
"""The time that the real clock advances between two lines of this file."""


WHICH = st.integers(0, 41)
"""An index into anything; drawn like this, values do not depend on what happened."""


def some(things: Sequence[T], which: int) -> list[T]:
    """Return one of ``things``, the latest for 0; none if there is none."""
    return [things[-1 - which % len(things)]] if things else []


def url(host: int, path: int) -> str:
    return f"http://{HOSTS[host % len(HOSTS)]}/{path}"


URLS = [url(h, n) for h in range(len(HOSTS)) for n in range(PATHS)]


def shape_of(page: str) -> str:
    """Return the shape by which a URL is parked: a host has three."""
    head, _, number = page.rpartition("/")
    return f"{head}/{int(number) % 3}{{n}}"


def links_of(crawl: int, page: str) -> list[Admission]:
    """Return the links of a page: always the same."""
    number = zlib.crc32(f"{crawl} {page}".encode())
    return [Admission(URLS[(number >> s) % len(URLS)], depth=1, level=s % 3) for s in (3, 9, 15)]


@dataclass
class HeldSession:
    """A session as its worker knows it; times are true ones, in ms."""

    session: Session
    worker: str
    deadline: float
    ended: float | None = None
    """The latest time at which its last request ended; None while it may send more."""
    epoch: int = 0

    def last_end(self) -> float:
        return self.deadline + REQUEST_S * 1000 if self.ended is None else self.ended

    def stop(self, now: float, *, at_once: bool) -> None:
        if self.ended is None:
            last = now if at_once else min(now, self.deadline) + REQUEST_S * 1000
            self.ended = min(last, self.last_end())


class Broker:
    """A broker process without the greenlets that run by themselves."""

    def __init__(self, machine: World) -> None:
        self.frontier = Frontier(
            [machine.server.url], machine.paced_store, partitions=2, lease_seconds=TTL_S,
            request_seconds=REQUEST_S, host_bytes=HOST_BUDGET, create=True,
        )  # fmt: skip
        self.node = self.frontier.nodes[0]
        machine.pace.node(self.node)
        self.service = Service(
            self.frontier, machine.paced_store, machine.pace.monotonic, duties=self.frontier.duties
        )
        machine.pace.service(self.service)
        self.upkeep = Upkeep(self.service)
        self.calendar = Calendar(self.service)


def upkeep_now(at: Broker) -> None:
    """Scan all crawls without a step of the store's clock, if the other broker does not have the
    duty."""
    at.upkeep._next.clear()
    at.upkeep.step(())


def calendar_now(at: Broker) -> None:
    """Queue due rows, if the other broker does not have the duty."""
    at.calendar._rests.clear()
    at.calendar.step(at.service.store.calendar_places())


class Unrested(PacedStore):
    """It lets no crawl begin again by itself: a rule decides when."""

    def rest(self, crawl: int, every_ms: int, *, version: int) -> Crawl:
        self._pace.gate("rest")
        done: Crawl = self._store.set_state(crawl, "done", FINISHED, version=version)
        return done

    def under(self, duty: Any) -> PacedStore:
        return Unrested(self._pace, self._store.under(duty))


class World(Laws, RuleBasedStateMachine):
    """Two crawls (one with a delay, one with slots), two brokers, two workers, three hosts."""

    server: ClassVar[RedisServer]
    pace: ClassVar[Pace]
    memory: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="recovery-", dir=self.memory))
        self.plain, self.raw = redis.Redis(port=self.server.port), redis.Redis(
            port=self.server.port, decode_responses=True, encoding="latin-1"
        )  # fmt: skip
        self.plain.flushall()
        self.store = open_store(f"sqlite:///{self.folder / 'c.sqlite'}")
        self.sql = sqlite3.connect(self.folder / "c.sqlite", isolation_level=None)
        self.pace.known.clear()
        self.paced_store: Any = Unrested(self.pace, self.store)
        self.tasks: list[Paced] = []
        self.brokers = [Broker(self), Broker(self)]
        self.workers = Frontier([self.server.url], self.paced_store)
        self.pace.node(self.workers.nodes[0])
        for number, delay in DELAYS.items():
            again = Recrawl(every="1d", depth="all") if number == PLANNED else None
            options = CrawlOptions(delay=delay, slots=SLOTS[number], recrawl=again)
            crawl = self.store.put_crawl(f"crawl{number}", options, HOSTS)
            self.brokers[0].frontier.put_crawl(crawl)
        self.said: list[Crawl] = list(self.store.crawls())
        """The rows of crawls that some process has read."""
        self.paused: set[int] = set()
        self.held: list[HeldSession] = []
        self.sent: list[Any] = []
        self.copies: list[Copy] = []
        self.jumped = 0.0
        self.tokens = 0
        self.moment = 0
        self.period = epoch_ms() // 1000
        self.restarts = 0
        self.forced: set[Key] = set()
        self.outcomes: dict[tuple[str, int], str] = {}
        self.releasing: set[tuple[int, str]] = set()
        """(crawl, shape) of all releases, running and past; "" for every shape."""
        self.let_go_of: set[tuple[int, str]] = set()
        """The releases that were completed."""
        self.blocked: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.sequence: Counter[str] = Counter()
        self.incarnation: Counter[str] = Counter()
        self.give(1, [(0, 0), (1, 1)], False, 0, 999)
        self.give(2, [(0, 1), (2, 2)], False, 1, 999)

    # -- paced work

    def work(self, name: str, steps: int, call: Callable[[], Any], owner: Any = None) -> Paced:
        """Begin the work of a process, and let it run some steps."""

        def quietly() -> Any:
            try:
                return call()
            except (Unavailable, UnknownCrawl) as error:
                return error

        task = self.pace.begin(name, quietly)
        task.owner = owner
        task.step(steps)
        return task

    def kill(self, task: Paced) -> None:
        """Kill a process, but let it finish first if it stores a page by a session that the node no
        longer holds.

        Another process may have fetched the URL since, with another result, and nobody comes for it
        again: the late page has a debt of links (``Commit.owes``), which nobody pays here.
        """
        if isinstance(task.owner, tuple) and not self.is_current(*task.owner):
            self.reopened(0)
            task.step(999)
        task.kill()

    def is_current(self, held: HeldSession, number: int) -> bool:
        p, token = held.session.session.partition("/")[0], held.session.token
        return bool(self.raw.hexists(f"gc:{{{p}}}:s:{token}", f"t{number}"))

    def job_of(self, broker: Broker, task: Paced) -> bool:
        return any(job.greenlet is task.greenlet for job in broker.frontier.recovery._jobs.values())

    # -- workers

    def give(
        self, crawl: int, found: list[tuple[int, int]], force: bool, broker: int, steps: int
    ) -> None:
        """Give seeds like a client."""
        at = self.brokers[broker]
        items = [Admission(url(h, n), level=n % 3) for h, n in found]
        if force:
            self.forced |= {(crawl, item.url) for item in items}
        self.work(
            "seed", steps,
            lambda: seeding.admit(at.service, self.store.crawl(crawl), items, force=force), at,
        )  # fmt: skip

    def open(
        self, broker: Broker, worker: str, number: tuple[int, int], p: int, crawls: list[int],
        most: int, per: int, lost: bool,
    ) -> None:  # fmt: skip
        sent = self.pace.now_ms()
        rows: list[list[Any]] = []
        for crawl in crawls:
            tokens = [f"{self.tokens + n:016x}" for n in range(most)]
            self.tokens += most
            rows.append([crawl, most, *tokens])
        args = [worker, *number, TTL_S * 1000, LIFE_MS, REQUEST_S * 1000, per, 0, *rows]
        reply = broker.frontier._calls("open", {p: to_msgpack(args)})[p]
        if reply[0] == b"OLD":
            return
        now = self.pace.now_ms()
        for row in reply[1]:
            session = part.session_of(p, TTL_S, row)
            held = HeldSession(session, worker, sent + TTL_S * 1000, epoch=int(broker.node.epoch))
            if lost or number[0] != self.incarnation[worker]:
                held.ended = 0.0
            self.polite(held, now)
            self.held.append(held)

    def polite(self, new: HeldSession, now: float) -> None:
        """Check property 2, whatever the other sessions of the host may still be sending."""
        host, delay = new.session.host, new.session.delay
        assert now + NEAR_MS >= self.blocked[host], f"{host} was opened within its block"
        for other in self.held:
            if other.session.host != host:
                continue
            apart = max(delay, other.session.delay if other.epoch == new.epoch else 0.0)
            if apart > 0:
                assert now + NEAR_MS >= other.last_end() + apart * 1000, (
                    f"{host} was opened {other.last_end() + apart * 1000 - now:.0f} ms too soon"
                )

    def fetching(self) -> list[HeldSession]:
        return [held for held in self.held[-30:] if held.ended != 0.0]

    def settling(
        self, broker: int, held: HeldSession, number: int, outcome: str, steps: int
    ) -> Paced:
        """Settle a task.

        A worker decides about a task once, so a repeated call has the same result.
        """
        outcome = self.outcomes.setdefault((held.session.token, number), outcome)
        work = partial(self.through, broker, held, number, outcome)
        return self.work("settle", steps, work, (held, number))

    def through(self, broker: int, held: HeldSession, number: int, outcome: str) -> None:
        """Do what ``greencrawl.worker.delivery.writer`` does with one task."""
        session = held.session
        task = next(task for task in session.tasks if task.number == number)
        if outcome == "same" and not self.has_page(session.crawl, task.url):
            outcome = "page"
        commit, links = self.commit_of(session.crawl, task.url, outcome)
        for _ in range(4):
            if not (commit.pages or commit.finals or commit.checks):
                break
            stamp = self.paced_store.commit(commit)
            if stamp.refused:  # its shape was released meanwhile
                outcome = "retry"
            if not links or self.admitted(session.crawl, links, stamp):
                break
        else:
            return
        retired = bool(stamp.retired) if commit.finals else False
        report = {
            "page": Done(stored=True, bytes=5), "gone": Done(kind="gone", forget=retired),
            "dead": Dead(kind="timeout"), "parked": Done(kind="parked"),
            "retry": Retry(wait=5.0, kind="reset"),
            "same": Done(kind="unchanged"),
        }[outcome]  # fmt: skip
        self.deliver(
            broker,
            FinishItem(
                session=session.session, token=session.token, task=number, outcome=report
            ),
        )  # fmt: skip

    def commit_of(self, crawl: int, page: str, outcome: str) -> tuple[Commit, list[Admission]]:
        self.moment += 1
        if outcome == "same":  # a page that is stored has not changed
            return Commit(checks=[self.check(crawl, page)]), []
        fingerprint = self.workers.fingerprint(page)
        if outcome == "page":
            links = links_of(crawl, page)
            stored = StoredPage(
                crawl=crawl, fingerprint=fingerprint, url=page, status=200, body=b"12345",
                fetched_ms=self.moment, links=links,
            )  # fmt: skip
            return Commit([stored]), links
        if outcome == "retry":
            return Commit(), []
        final = Final(
            crawl=crawl, fingerprint=fingerprint, url=page, state=cast(FinalState, outcome),
            kind="timeout", shape=shape_of(page) if outcome == "parked" else "",
            at_ms=self.moment,
        )  # fmt: skip
        return Commit(finals=[final]), []

    def has_page(self, crawl: int, page: str) -> bool:
        number = self.workers.fingerprint(page)
        return self.store.page(crawl, number, detail="row") is not None

    def check(self, crawl: int, page: str) -> Check:
        number = self.workers.fingerprint(page)
        return Check(crawl=crawl, fingerprint=number, at_ms=self.moment, url=page, depth=1)

    def admitted(self, crawl: int, links: list[Admission], stamp: Any) -> bool:
        """Admit links; return False if the rows have to be written again; ask again while Redis is
        away."""
        for attempt in range(4):
            try:
                return self.workers.admit(crawl, links, stamp=stamp).tick - stamp.clock <= MARGIN
            except Unavailable:
                if attempt == 3:
                    raise
        return False

    def deliver(self, broker: int, item: Any) -> str:
        """Send a message of a worker once more or late; check fencing around it."""
        if item not in self.sent:
            self.sent = [*self.sent[-20:], item]
        at = self.brokers[broker]
        self.pace.gate()
        before = self.current(item)
        known = None if before else self.everything()
        status = self.send(at, item)
        if known is not None:
            assert status == "stale", f"{item} is not current and was answered {status}"
            assert self.everything() == known, f"{item} is not current and changed something"
        return status

    def send(self, at: Broker, item: Any) -> str:
        # This runs in one step, so that the call meets the same data that were read before it.
        frontier, (task, name) = at.frontier, self.outside()
        try:
            if isinstance(item, FinishItem):
                return frontier.finish([item])[0]
            if isinstance(item, CloseItem):
                return frontier.close_sessions([item])[0]
            if isinstance(item, ReleaseItem):
                return frontier.release([item])[0]
            return frontier.extend([item], TTL_S)[0]
        finally:
            if task is not None:
                self.pace.known[name] = task

    def outside(self) -> tuple[Paced | None, Any]:
        import gevent

        me = gevent.getcurrent()
        return self.pace.known.pop(me, None), me

    def current(self, item: Any) -> bool:
        """Return whether the data of the message are current in the node; True as well if the node
        would refuse any message."""
        owner = self.raw.hgetall(keys.OWNER)
        if owner.get("state") != "open" or owner.get("run") != self.run:
            return True
        found = self.raw.hgetall(f"gc:{{{item.session.partition('/')[0]}}}:s:{item.token}")
        if isinstance(item, FinishItem):
            return f"t{item.task}" in found
        if isinstance(item, CloseItem):
            return found.get("open") == "1"
        return bool(found)

    def everything(self) -> tuple[Any, ...]:
        rows = [
            self.sql.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("pages", "finals", "seed_batches", "overflow", "blocks", "calendar")
        ]
        return dump(self.raw), rows

    def begin_period(self, days: int) -> None:
        """Begin the next period of a crawl, even if the last one is not finished."""
        self.period += days * 86_400 + 1
        sql = (
            "INSERT INTO periods (crawl, number, started_ms) SELECT :crawl, "
            "COALESCE(MAX(number), 0) + 1, :ms FROM periods WHERE crawl = :crawl"
        )
        values = {"crawl": PLANNED, "ms": self.period * 1000}
        self.store._write(lambda db: db.execute(sql, values))
        known = self.store.crawl(PLANNED)
        if known.state == "done":
            self.store.reopen(PLANNED, known.version)

    # -- people

    def let_go(self, crawl: int, shape: str, broker: int, steps: int) -> None:
        """Release everything that is parked by a shape ("": by any); each URL may be queued
        twice."""
        self.releasing.add((crawl, shape))
        name = self.store.crawl(crawl).name
        request = ReleaseParkedRequest(name, shape, not shape)
        at = self.brokers[broker]

        def release() -> None:
            release_parked(at.service, request)
            self.let_go_of.add((crawl, shape))

        self.work("release", steps, release, at)

    def is_forced(self, key: Key) -> bool:
        crawl, page = key
        return key in self.forced or bool({(crawl, ""), (crawl, shape_of(page))} & self.releasing)

    # -- what brokers do by themselves

    def maintain_now(self, at: Broker) -> None:
        at.frontier._calls("maintain", dict.fromkeys((0, 1), to_msgpack([1000])))

    def refill_now(self, at: Broker) -> None:
        for crawl, p in self.paced_store.overflow_places():
            for host in self.paced_store.overflow_hosts(crawl, p, "", 50):
                at.frontier.refill(crawl, p, host)

    # -- faults of Redis and of time

    @property
    def shift(self) -> float:
        """Return by how much Redis' TIME is ahead of the real one."""
        return self.pace.shift_ms + self.jumped

    @property
    def run(self) -> str:
        run: str = self.raw.info("server")["run_id"]
        return run

    def another_process(self) -> None:
        self.restarts += 1
        if self.plain.exists(keys.OWNER):
            self.plain.hset(keys.OWNER, "run", f"before-{self.restarts}")

    def living_on(self, node: Any) -> bool:
        """Return whether the epoch of the node differs from that of the broker: then a marker would
        not count."""
        return bool(self.raw.hget(keys.OWNER, "epoch") != node.epoch)

    def pass_time(self, seconds: float, *, heard: bool) -> None:
        self.pace.shift_ms += seconds * 1000
        self.move_clock(seconds * 1000, silent=not heard)

    def move_clock(self, ms: float, *, silent: bool) -> None:
        """Act as if Redis' TIME had gone on by this much since the last script.

        Scripts use only TIME + ``offset`` and TIME − ``used`` (``lua/shared/clock.lua``), so TIME
        itself need not change: ``offset`` is raised and, if no broker was heard meanwhile, ``used``
        is lowered.
        """
        if not self.plain.exists(keys.OWNER):
            return
        self.plain.hincrby(keys.OWNER, "offset", round(ms))
        if silent and self.plain.hexists(keys.OWNER, "used"):
            self.plain.hincrby(keys.OWNER, "used", -round(ms))

    # -- moves that are likelier together than by chance

    def reopened(self, broker: int) -> None:
        """Open the node and give it what it is owed, if no other broker does it."""
        at = self.brokers[broker]
        self.work("recover", 999, lambda: at.frontier.recovery.reopen(at.node), at)
        for task in self.pace.living():
            if self.job_of(at, task):
                task.step(999)

    # -- healing

    def teardown(self) -> None:
        if not hasattr(self, "forced"):
            return
        try:
            self.heal()
        finally:
            for task in self.pace.living():
                task.kill()
            for broker in self.brokers:
                broker.frontier.stop()
            self.workers.stop()
            self.sql.close()
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def heal(self) -> None:
        for task in self.pace.living():
            self.kill(task)
        for crawl in DELAYS:
            if self.store.crawl(crawl).state == "paused":
                self.paused.discard(crawl)
                self.store.set_state(crawl, "active")
        for round_ in range(ROUNDS):
            for number in (0, 1):
                self.heal_step(number, round_)
            self.holds()
            if all(crawl.state == "done" for crawl in self.store.crawls()):
                logged, pending, _ = self.log()
                assert not logged - self.settled()
                assert not pending
                sql = "SELECT fingerprint FROM calendar WHERE queued <> 0 OR due_s <= ?"
                assert not self.sql.execute(sql, (self.period,)).fetchall(), "not asked for again"
                return
        logged, pending, _ = self.log()
        raise AssertionError(f"not healed: {logged - self.settled()}, pending {pending}")

    def heal_step(self, number: int, round_: int) -> None:
        at = self.brokers[number]
        self.pass_time(31.0, heard=True)
        self.work("tick", 9999, lambda: at.frontier.tick(self.store.clock()), at)
        for crawl in self.store.crawls():
            self.work("tell", 9999, partial(at.frontier.put_crawl, crawl), at)
        for task in self.pace.living():
            task.step(2000)
        for call in (self.maintain_now, self.refill_now, calendar_now, self.fetch_all):
            self.work("heal", 9999, partial(call, at), at)
        for _ in range(3):  # under one duty: two scans in a row tell the end
            self.work("upkeep", 9999, lambda: upkeep_now(at), at)

    def fetch_all(self, at: Broker) -> None:
        for p in (0, 1):
            known = len(self.held)
            self.sequence["h"] += 1
            self.open(at, "h", (0, self.sequence["h"]), p, [1, 2], 3, 6, False)
            for held in self.held[known:]:
                s, work = held.session, Commit()
                for task in s.tasks:
                    work.pages += self.commit_of(s.crawl, task.url, "page")[0].pages
                stamp = self.store.commit(work)
                links = {one.url: one for page in work.pages for one in page.links}
                self.workers.admit(s.crawl, list(links.values()), stamp=stamp)
                at.frontier.finish(
                    [
                        FinishItem(session=s.session, token=s.token, task=t.number, outcome=Done())
                        for t in s.tasks
                    ]
                )
                held.stop(self.pace.now_ms(), at_once=True)
                report = HostReport(requests=1, robots=True)
                at.frontier.close_sessions(
                    [CloseItem(session=s.session, token=s.token, report=report)]
                )
