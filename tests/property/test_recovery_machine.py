"""Recovery, roll-back, overflow, crashes and clock jumps among the moves of two brokers.

Everything real but for two things: time is turned, and each process goes one call at a time
(``tests/support/paced.py``), so that hypothesis draws the interleavings and the crashes. After
each step what Redis and SQL hold is read out and held to the properties of the design:
conservation, politeness in true time, fencing, end, accounts. At the end everything is healed, and
every URL of the log must become final in a bounded number of rounds.
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
from typing import Any, ClassVar, TypeVar

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker import seeding
from broker.frontier import Frontier, keys
from broker.frontier import partition as part
from broker.frontier.recovery import mark_clean
from broker.service import Service
from broker.upkeep import Upkeep
from schema.errors import Unavailable, UnknownCrawl
from schema.records import (
    Admission,
    CloseItem,
    Commit,
    CrawlOptions,
    Dead,
    Done,
    ExtendItem,
    Final,
    FinishItem,
    HostReport,
    ReconcileRequest,
    ReleaseItem,
    Retry,
    Session,
    StoredPage,
)
from schema.wire import to_msgpack
from store import open_store
from store.base import MARGIN
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.paced import Pace, Paced, PacedStore
from tests.support.redis_dump import Contents, Copy, Key, contents, dump
from tests.support.redis_server import RedisServer
from tests.support.turned import turned

T = TypeVar("T")

HOSTS = ["a.example", "b.example", "c.example:8080"]
PATHS = 6
DELAYS, SLOTS = {1: 3.0, 2: 0.0}, {1: 1, 2: 2}
TTL_S, REQUEST_S, LIFE_MS = 20.0, 10.0, 1_800_000
HOST_BUDGET = 110
"""Bytes: four tasks of a host wait in memory, the others in the overflow."""
ROUNDS = 60
STEPS = st.sampled_from([999, 999, 999, 1, 2, 3, 5, 8, 13])
NEAR_MS = 150.0
"""What the real clock goes on by between two lines of this file."""


WHICH = st.integers(0, 41)
"""Of whatever there is; drawn so, what is drawn does not depend on what happened."""


def some(things: Sequence[T], which: int) -> list[T]:
    """One of them, the latest for 0; none if there is none."""
    return [things[-1 - which % len(things)]] if things else []


def url(host: int, path: int) -> str:
    return f"http://{HOSTS[host % len(HOSTS)]}/{path % PATHS}"


URLS = [url(h, n) for h in range(len(HOSTS)) for n in range(PATHS)]


def links_of(crawl: int, page: str) -> list[Admission]:
    """What a page links to: always the same."""
    number = zlib.crc32(f"{crawl} {page}".encode())
    return [Admission(URLS[(number >> s) % len(URLS)], depth=1, level=s % 3) for s in (3, 9, 15)]


@dataclass
class Held:
    """A session as its worker knows it; times are true ones, in ms."""

    session: Session
    worker: str
    deadline: float
    ended: float | None = None
    """When its last request ended at the latest; None while it may send more."""
    epoch: int = 0

    def last_end(self) -> float:
        return self.deadline + REQUEST_S * 1000 if self.ended is None else self.ended

    def stop(self, now: float, *, at_once: bool) -> None:
        if self.ended is None:
            last = now if at_once else min(now, self.deadline) + REQUEST_S * 1000
            self.ended = min(last, self.last_end())


class Broker:
    """A broker process but for its greenlets that run by themselves."""

    def __init__(self, machine: RecoveryMachine) -> None:
        self.frontier = Frontier(
            [machine.server.url], machine.paced_store, partitions=2, lease_seconds=TTL_S,
            request_seconds=REQUEST_S, host_bytes=HOST_BUDGET, create=True,
        )  # fmt: skip
        self.node = self.frontier.nodes[0]
        machine.pace.node(self.node)
        self.service = Service(
            self.frontier, machine.paced_store, machine.pace.monotonic, duties=self.frontier.duties
        )
        self.upkeep = Upkeep(self.service)


def upkeep_now(at: Broker) -> None:
    """A look at all crawls without a step of the log's clock, if the other has not the duty."""
    at.upkeep._next.clear()
    at.upkeep.step(())


class RecoveryMachine(RuleBasedStateMachine):
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
        self.paced_store: Any = PacedStore(self.pace, self.store)
        self.tasks: list[Paced] = []
        self.brokers = [Broker(self), Broker(self)]
        self.workers = Frontier([self.server.url], self.paced_store)
        self.pace.node(self.workers.nodes[0])
        for number, delay in DELAYS.items():
            options = CrawlOptions(delay=delay, slots=SLOTS[number])
            crawl = self.store.put_crawl(f"crawl{number}", options, HOSTS)
            self.brokers[0].frontier.put_crawl(crawl)
        self.held: list[Held] = []
        self.sent: list[Any] = []
        self.copies: list[Copy] = []
        self.jumped = 0.0
        self.tokens = 0
        self.moment = 0
        self.restarts = 0
        self.forced: set[Key] = set()
        self.blocked: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.sequence: Counter[str] = Counter()
        self.incarnation: Counter[str] = Counter()
        self.seed(1, [(0, 0), (1, 1)], False, 0, 999)
        self.seed(2, [(0, 1), (2, 2)], False, 1, 999)

    # -- paced work

    def work(self, name: str, steps: int, call: Callable[[], Any], owner: Any = None) -> Paced:
        """Begin what a process does, and let it come some steps far."""

        def quietly() -> Any:
            try:
                return call()
            except (Unavailable, UnknownCrawl) as error:
                return error

        task = self.pace.begin(name, quietly)
        task.owner = owner
        task.step(steps)
        return task

    @rule(which=WHICH, steps=STEPS)
    def go_on(self, which: int, steps: int) -> None:
        for task in some(self.pace.living(), which):
            task.step(steps)

    @rule(which=WHICH)
    def die(self, which: int) -> None:
        """A process dies between two calls; the message under way is lost, or its answer."""
        for task in some(self.pace.living(), which):
            task.kill()

    @rule(number=st.sampled_from([0, 1]))
    def restart_broker(self, number: int) -> None:
        old = self.brokers[number]
        for task in self.pace.living():
            if task.owner is old or (task.name == "_refill" and self.job_of(old, task)):
                task.kill()
        try:
            self.brokers[number] = Broker(self)
        except Unavailable:
            return  # what it meets is being opened by the other: it is started again later
        old.node.close()

    def job_of(self, broker: Broker, task: Paced) -> bool:
        return any(job.greenlet is task.greenlet for job in broker.frontier.recovery._jobs.values())

    # -- seeds

    @rule(
        crawl=st.sampled_from([1, 2]),
        found=st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, PATHS - 1)), min_size=1, max_size=8,
            unique=True,
        ),
        force=st.sampled_from([False, False, False, True]),
        broker=st.sampled_from([0, 1]),
        steps=STEPS,
    )  # fmt: skip
    def seed(
        self, crawl: int, found: list[tuple[int, int]], force: bool, broker: int, steps: int
    ) -> None:
        at = self.brokers[broker]
        items = [Admission(url(h, n), level=n % 3) for h, n in found]
        if force:
            self.forced |= {(crawl, item.url) for item in items}
        self.work(
            "seed", steps,
            lambda: seeding.admit(at.service, self.store.crawl(crawl), items, force=force), at,
        )  # fmt: skip

    # -- workers

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), worker=st.sampled_from("vw"),
        p=st.sampled_from([0, 1]), most=st.integers(1, 3), per=st.integers(1, 4),
        lost=st.sampled_from([False, False, False, True]), steps=STEPS,
    )  # fmt: skip
    def lease(
        self, which: int, broker: int, worker: str, p: int, most: int, per: int,
        lost: bool, steps: int,
    ) -> None:  # fmt: skip
        crawls = [1, 2] if which % 2 else [2, 1]
        self.sequence[worker] += 1
        number = (self.incarnation[worker], self.sequence[worker])
        self.work(
            "lease", steps,
            partial(self.open, self.brokers[broker], worker, number, p, crawls, most, per, lost),
            self.brokers[broker],
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
            held = Held(session, worker, sent + TTL_S * 1000, epoch=int(broker.node.epoch))
            if lost or number[0] != self.incarnation[worker]:
                held.ended = 0.0
            self.polite(held, now)
            self.held.append(held)

    def polite(self, new: Held, now: float) -> None:
        """Property 2: whatever the other sessions of the host may still be sending."""
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

    def fetching(self) -> list[Held]:
        return [held for held in self.held[-30:] if held.ended != 0.0]

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]),
        outcome=st.sampled_from(["page", "page", "page", "gone", "dead", "retry"]), steps=STEPS,
    )  # fmt: skip
    def settle(self, which: int, broker: int, outcome: str, steps: int) -> None:
        """Commit, admit, finish: of a session that may be over long since."""
        for held in some(self.fetching(), which):
            (task,) = some(held.session.tasks, which // 7)
            self.work("settle", steps, partial(self.through, broker, held, task.number, outcome))

    def through(self, broker: int, held: Held, number: int, outcome: str) -> None:
        """What ``worker.writer`` does with one task."""
        session = held.session
        task = next(task for task in session.tasks if task.number == number)
        commit, links = self.commit_of(session.crawl, task.url, outcome)
        for _ in range(4):
            if not (commit.pages or commit.finals):
                break
            stamp = self.paced_store.commit(commit)
            if not links or self.admitted(session.crawl, links, stamp):
                break
        else:
            return
        report = {
            "page": Done(stored=True, bytes=5), "gone": Done(kind="gone"),
            "dead": Dead(kind="timeout"), "retry": Retry(wait=5.0, kind="reset"),
        }[outcome]  # fmt: skip
        self.deliver(
            broker,
            FinishItem(
                session=session.session, token=session.token, task=number, outcome=report
            ),
        )  # fmt: skip

    def commit_of(self, crawl: int, page: str, outcome: str) -> tuple[Commit, list[Admission]]:
        self.moment += 1
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
            crawl=crawl, fingerprint=fingerprint, url=page,
            state="gone" if outcome == "gone" else "dead", kind="timeout", at_ms=self.moment,
        )  # fmt: skip
        return Commit(finals=[final]), []

    def admitted(self, crawl: int, links: list[Admission], stamp: Any) -> bool:
        """False when the rows are to be written again; asks again while Redis is away."""
        for attempt in range(4):
            try:
                return self.workers.admit(crawl, links, stamp=stamp).tick - stamp.clock <= MARGIN
            except Unavailable:
                if attempt == 3:
                    raise
        return False

    def deliver(self, broker: int, item: Any) -> str:
        """A message of a worker, once more or late: fencing is looked at around it."""
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
        # At once, not in steps: what was read before it must be what it met.
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
        """Whether the node holds what a message is about, or would refuse any message."""
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
            for table in ("pages", "finals", "seed_batches", "overflow", "blocks")
        ]
        return dump(self.raw), rows

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), block=st.sampled_from([0.0, 0.0, 300.0]),
        release=st.booleans(), steps=STEPS,
    )  # fmt: skip
    def close(self, which: int, broker: int, block: float, release: bool, steps: int) -> None:
        """Its fetching ends now; the message goes out in time or late."""
        if not self.fetching():
            return
        (held,) = some(self.fetching(), which)
        now, s = self.pace.now_ms(), held.session
        held.stop(now, at_once=True)
        numbers = tuple(task.number for task in s.tasks)[:2] if release else ()
        report = HostReport(
            failed="http_429" if block else "", block=block, requests=1, robots=True
        )
        item = CloseItem(session=s.session, token=s.token, report=report, release=numbers)

        def send() -> None:
            if self.deliver(broker, item) == "ok" and block:
                until = self.pace.now_ms() + block * 1000 - NEAR_MS
                self.blocked[s.host] = max(self.blocked[s.host], until)

        self.work("close", steps, send)

    @rule(which=WHICH, broker=st.sampled_from([0, 1]), steps=STEPS)
    def release(self, which: int, broker: int, steps: int) -> None:
        if not self.fetching():
            return
        (held,) = some(self.fetching(), which)
        item = ReleaseItem(session=held.session.session, token=held.session.token)
        self.work("release", steps, lambda: self.deliver(broker, item))

    @rule(which=WHICH, broker=st.sampled_from([0, 1]), steps=STEPS)
    def extend(self, which: int, broker: int, steps: int) -> None:
        if not self.fetching():
            return
        (held,) = some(self.fetching(), which)
        item = ExtendItem(session=held.session.session, token=held.session.token)

        def send() -> None:
            sent = self.pace.now_ms()
            status = self.deliver(broker, item)
            if status == "ok" and held.ended is None:
                held.deadline = max(held.deadline, sent + TTL_S * 1000)
            elif status != "ok":
                held.stop(self.pace.now_ms(), at_once=False)

        self.work("extend", steps, send)

    @rule(which=WHICH, broker=st.sampled_from([0, 1]))
    def repeat(self, which: int, broker: int) -> None:
        """A message that was sent once comes again, over either broker."""
        for item in some(self.sent, which):
            self.work("repeat", 999, partial(self.deliver, broker, item))

    @rule(broker=st.sampled_from([0, 1]), worker=st.sampled_from("vw"), steps=STEPS)
    def restart_worker(self, broker: int, worker: str, steps: int) -> None:
        self.incarnation[worker] += 1
        now = self.pace.now_ms()
        for held in self.held:
            if held.worker == worker:  # the server may be at its last request
                held.stop(now, at_once=False)
        request = ReconcileRequest(
            worker=worker, incarnation=self.incarnation[worker], sequence=self.sequence[worker]
        )
        at = self.brokers[broker]
        self.work("reconcile", steps, lambda: at.frontier.reconcile(request), at)

    # -- what brokers do by themselves

    @rule(broker=st.sampled_from([0, 1]), times=st.sampled_from([1, 4, 12]), steps=STEPS)
    def tick(self, broker: int, times: int, steps: int) -> None:
        at = self.brokers[broker]

        def tick() -> None:
            for _ in range(times):
                at.frontier.tick(self.paced_store.clock())
                self.paced_store.tick()

        self.work("tick", steps, tick, at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def upkeep(self, broker: int, steps: int) -> None:
        """Pending batches, two scans, and perhaps the end of a crawl."""
        at = self.brokers[broker]

        def step() -> None:
            upkeep_now(at)
            upkeep_now(at)

        self.work("upkeep", steps, step, at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def tend(self, broker: int, steps: int) -> None:
        at = self.brokers[broker]
        self.work("tend", steps, lambda: self.tend_now(at), at)

    def tend_now(self, at: Broker) -> None:
        at.frontier._calls("tend", dict.fromkeys((0, 1), to_msgpack([1000])))

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def refill(self, broker: int, steps: int) -> None:
        at = self.brokers[broker]
        self.work("refill", steps, lambda: self.refill_now(at), at)

    def refill_now(self, at: Broker) -> None:
        for crawl, p in self.paced_store.overflow_places():
            for host in self.paced_store.overflow_hosts(crawl, p, "", 50):
                at.frontier.refill(crawl, p, host)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def recover(self, broker: int, steps: int) -> None:
        """Whoever speaks to the node next finds it restarted, or its replay left."""
        at = self.brokers[broker]
        self.work("recover", steps, lambda: at.frontier.recovery.reopen(at.node), at)

    @rule(crawl=st.sampled_from([1, 2]), broker=st.sampled_from([0, 1]), pause=st.booleans())
    def pause(self, crawl: int, broker: int, pause: bool) -> None:
        if self.store.crawl(crawl).state == "done":
            return
        changed = self.store.set_state(crawl, "paused" if pause else "active")
        at = self.brokers[broker]
        self.work("pause", 999, lambda: at.frontier.put_crawl(changed), at)

    # -- faults of Redis and of time

    @property
    def shift(self) -> float:
        """By how much Redis' TIME is ahead of the real one."""
        return self.pace.shift_ms + self.jumped

    @property
    def run(self) -> str:
        run: str = self.raw.info("server")["run_id"]
        return run

    @rule()
    def copy(self) -> None:
        self.copies = [*self.copies[-4:], Copy.of(self.plain, self.shift)]

    @rule(which=WHICH, nothing=st.sampled_from([False, False, False, True]))
    def roll_back(self, which: int, nothing: bool) -> None:
        """Redis comes back as it was at some time, or empty.

        That it is another process is told by the owner's run, which is not this one's any more:
        of the two that differ then it is the one that can be set.
        """
        if nothing or not self.copies:
            self.plain.flushall()
            return
        (copy,) = some(self.copies, which)
        copy.put_back(self.plain)
        self.move_clock(self.shift - copy.shift, silent=True)
        self.another_process()

    def another_process(self) -> None:
        self.restarts += 1
        if self.plain.exists(keys.OWNER):
            self.plain.hset(keys.OWNER, "run", f"before-{self.restarts}")

    @rule()
    def restart_redis(self) -> None:
        """It was killed, and lost nothing."""
        self.another_process()

    @rule(broker=st.sampled_from([0, 1]))
    def stop_clean(self, broker: int) -> None:
        """Redis is stopped in order and started again; a copy may come back later."""
        node = self.brokers[broker].node
        if self.raw.hget(keys.OWNER, "run") != self.run or self.living_on(node):
            return
        mark_clean(node)
        self.copy()
        self.another_process()

    def living_on(self, node: Any) -> bool:
        """Whether the node's epoch is not the broker's: a marker would be none."""
        return bool(self.raw.hget(keys.OWNER, "epoch") != node.epoch)

    def move_clock(self, ms: float, *, silent: bool) -> None:
        """As if Redis' TIME went on by so much since the last script.

        Scripts know of time only TIME + ``offset`` and TIME − ``used`` (lua/clock.lua), so TIME
        need not be touched: adding to ``offset`` and, if no broker was heard meanwhile, taking from
        ``used`` gives both the values that they would have.
        """
        if not self.plain.exists(keys.OWNER):
            return
        self.plain.hincrby(keys.OWNER, "offset", round(ms))
        if silent and self.plain.hexists(keys.OWNER, "used"):
            self.plain.hincrby(keys.OWNER, "used", -round(ms))

    @rule(seconds=st.sampled_from([0.5, 3.5, 12.0, 31.0, 70.0, 400.0]), heard=st.booleans())
    def time_passes(self, seconds: float, heard: bool) -> None:
        """``heard``: brokers called all the while; else it was an outage."""
        self.pace.shift_ms += seconds * 1000
        self.move_clock(seconds * 1000, silent=not heard)

    @rule(seconds=st.sampled_from([3600, -3600]))
    def clock_jumps(self, seconds: int) -> None:
        """The clock of Redis' machine is set; nobody else's. Looks like an outage to a script.

        Brokers that expect another time are what it is noticed by. One that has just come, or that
        has just met the node restarted, expects none: a jump then is not told from time that
        passed, so here each has spoken to the node before, and one does next.
        """
        for at in self.brokers:
            self.work("look", 999, partial(at.frontier.host, HOSTS[0]), at)
            known = self.raw.hget(keys.OWNER, "jumps")
            clock = at.node.clock
            if clock._base_ms is None or self.owed() or int(known or 0) != clock.jumps:
                return
        self.jumped += seconds * 1000
        self.move_clock(seconds * 1000, silent=True)
        for at in (*self.brokers, self.brokers[0]):  # one of them has the duty of setting it
            self.work("look", 999, partial(at.frontier.host, HOSTS[0]), at)

    # -- moves that are likelier together than by chance

    def reopened(self, broker: int) -> None:
        """The node is met, and what it is owed is given to it, if nobody else is at it."""
        at = self.brokers[broker]
        self.work("recover", 999, lambda: at.frontier.recovery.reopen(at.node), at)
        for task in self.pace.living():
            if self.job_of(at, task):
                task.step(999)

    @rule(
        broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]), order=st.booleans(),
        after=st.sampled_from([0.0, 12.0, 29.0, 31.0]),
    )  # fmt: skip
    def forget_sessions(self, broker: int, p: int, order: bool, after: float) -> None:
        """What was leased is forgotten, and asked for again while it may be fetched."""
        self.reopened(broker)
        self.copy()
        crawls = [1, 2] if order else [2, 1]
        self.lease(int(order), broker, "v", p, 3, 2, False, 999)
        self.roll_back(0, False)
        self.reopened(broker)
        self.time_passes(after, True)
        self.work("tend", 999, lambda: self.tend_now(self.brokers[broker]))
        self.lease(crawls[0], broker, "w", p, 3, 2, False, 999)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]),
        close=st.booleans(), copy=st.booleans(), steps=STEPS,
    )  # fmt: skip
    def crawl_on(
        self, which: int, broker: int, p: int, close: bool, copy: bool, steps: int
    ) -> None:
        """What workers do all the time; the last message may be on its way for long."""
        at = self.brokers[broker]
        self.reopened(broker)
        self.time_passes(31.0, True)
        self.work("tend", 999, lambda: self.tend_now(at), at)
        self.work("refill", 999, lambda: self.refill_now(at), at)
        known = len(self.held)
        self.lease(which, broker, "vw"[which % 2], p, 3, 1 + which % 4, False, 999)
        if copy:
            self.copy()
        for held in self.held[known:]:
            for task in held.session.tasks:
                work = partial(self.through, broker, held, task.number, "page")
                self.work("settle", steps, work)
            if close:
                self.close(0, broker, 0.0, False, 999)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), before=st.sampled_from([0, 4, 10, 12]),
        after=st.sampled_from([0, 1, 12]), lost=st.booleans(),
    )  # fmt: skip
    def admit_late(self, which: int, broker: int, before: int, after: int, lost: bool) -> None:
        """Seeds and a page's links are admitted some steps of the log's clock after their rows."""
        self.reopened(broker)
        at, found = self.brokers[broker], [(which % 3, which // 3)]
        self.seed(1 + which % 2, found, False, broker, 2)
        under_way = self.pace.living()[-1:]
        for held in some(self.fetching(), which):
            (task,) = some(held.session.tasks, which // 7)
            work = partial(self.through, broker, held, task.number, "page")
            under_way.append(self.work("settle", 2, work))
        self.tick(broker, before, 999)
        self.copy()
        for task in under_way:
            task.step(999)
        self.tick(broker, after, 999)
        if lost:
            self.roll_back(0, False)
            self.reopened(1 - broker)
            self.work("upkeep", 999, lambda: upkeep_now(at), at)

    @rule(
        crawl=st.sampled_from([1, 2]), host=st.integers(0, 2), broker=st.sampled_from([0, 1]),
        first=st.sampled_from([1, 2, 3, 5, 999]), then=st.sampled_from([1, 2, 3, 999]),
        steps=STEPS, before=st.sampled_from([0, 4, 12]), after=st.sampled_from([0, 12]),
    )  # fmt: skip
    def roll_back_amid_overflow(
        self, crawl: int, host: int, broker: int, first: int, then: int, steps: int,
        before: int, after: int,
    ) -> None:  # fmt: skip
        """More than fits, brought back in part, and forgotten on the way.

        Rows may have been queued long before the copy, or be queued long after it.
        """
        at = self.brokers[broker]
        self.reopened(broker)
        self.seed(crawl, [(host, n) for n in range(PATHS)], False, broker, steps)
        self.work("refill", first, lambda: self.refill_now(at), at)
        self.tick(broker, before, 999)
        self.holds()
        self.time_passes(70.0, True)
        p = at.frontier.partition_of(HOSTS[host])
        self.lease(crawl + 1, broker, "v", p, 2, 4, False, 999)
        self.copy()
        self.tick(broker, after, 999)
        self.work("refill", first, lambda: self.refill_now(at), at)
        self.holds()
        self.roll_back(0, False)
        self.reopened(1 - broker)
        self.holds()
        for task in self.pace.living():
            if task.name == "refill":
                task.step(then)

    @rule(broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]), steps=STEPS)
    def forget_a_block(self, broker: int, p: int, steps: int) -> None:
        """Of which SQL knows; a replay that is slow may not have come to it yet."""
        self.reopened(broker)
        self.time_passes(70.0, True)
        self.copy()
        known = len(self.held)
        self.lease(0, broker, "v", p, 3, 2, False, 999)
        for _ in self.held[known:]:
            self.close(0, broker, 300.0, False, 999)
        self.roll_back(0, False)
        at = self.brokers[broker]
        self.work("recover", 999, lambda: at.frontier.recovery.reopen(at.node), at)
        for task in self.pace.living():
            if self.job_of(at, task):
                task.step(steps)
        self.time_passes(70.0, True)
        self.work("tend", 999, lambda: self.tend_now(at), at)
        self.lease(1, broker, "w", p, 3, 2, False, 999)

    # -- properties

    def log(self) -> tuple[set[Key], set[Key], dict[Key, set[Key]]]:
        """URLs of the logs; of pending batches; page → URLs of its links."""
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
        for batch in self.store.pending_seeds():
            pending |= {(batch.crawl, item.url) for item in batch.urls}
        return logged, pending, parents

    def settled(self) -> set[Key]:
        sql = "SELECT crawl, url FROM pages UNION SELECT crawl, url FROM finals"
        return {(crawl, page) for crawl, page in self.sql.execute(sql)}

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
        if not self.owed():
            self.conserved(found, logged - settled, pending, parents)
        if not any(task.name == "upkeep" for task in self.pace.living()):
            for crawl in self.store.crawls():
                if crawl.state == "done":
                    left = {key for key in logged - settled if key[0] == crawl.id}
                    assert not left, f"{crawl.name} is done without {left}"
                    assert not any(key[0] == crawl.id for key in pending)

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
                assert places == 1 or key in self.forced, f"{key} stands in {places} places"
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
            task.kill()
        for crawl in DELAYS:
            if self.store.crawl(crawl).state == "paused":
                self.store.set_state(crawl, "active")
        for round_ in range(ROUNDS):
            for number in (0, 1):
                self.heal_step(number, round_)
            self.holds()
            if all(crawl.state == "done" for crawl in self.store.crawls()):
                logged, pending, _ = self.log()
                assert not logged - self.settled()
                assert not pending
                return
        logged, pending, _ = self.log()
        raise AssertionError(f"not healed: {logged - self.settled()}, pending {pending}")

    def heal_step(self, number: int, round_: int) -> None:
        at = self.brokers[number]
        self.time_passes(31.0, True)
        self.work("tick", 9999, lambda: at.frontier.tick(self.store.clock()), at)
        for crawl in self.store.crawls():
            self.work("tell", 9999, partial(at.frontier.put_crawl, crawl), at)
        for task in self.pace.living():
            task.step(2000)
        for call in (self.tend_now, self.refill_now, self.fetch_all):
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


def run_machine(count: int, steps: int) -> None:
    RecoveryMachine.pace = Pace()
    with memory_folder() as folder, turned(RecoveryMachine.pace):
        RecoveryMachine.memory = folder
        RecoveryMachine.server = RedisServer(folder / "redis", None, "--appendonly", "no").start()
        try:
            RecoveryMachine.TestCase.settings = settings(
                max_examples=count, stateful_step_count=steps, deadline=None,
                suppress_health_check=list(HealthCheck), print_blob=False,
            )  # fmt: skip
            RecoveryMachine.TestCase().runTest()
        finally:
            RecoveryMachine.server.stop()


def test_nothing_is_lost_whatever_comes_back_and_whoever_is_at_it() -> None:
    run_machine(examples(25, 500), 40)
