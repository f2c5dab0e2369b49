"""Duties, versions, quotas and debts: two brokers that stand still between any two calls.

Two real Redis nodes and a real store; a holder of a duty goes one call at a time, another takes the
duty meanwhile, and it goes on with its next write, which must change nothing. Crawls are seeded,
paused, resumed, deleted, made anew and finished among that, and told in any order; nodes are cut
off while pages with links to them are committed. When all is calm again nothing may be lost, no
crawl may have ended early or not at all, and no page be stored beyond a limit.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker import purge as purge_module
from broker import seeding
from broker.frontier import Frontier, keys
from broker.frontier import duties as names
from broker.frontier import partition as part
from broker.frontier import ring as ring_module
from schema.errors import Unavailable, UnknownCrawl
from schema.records import (
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Done,
    Final,
    FinishItem,
    HostReport,
    ReleaseItem,
    Session,
    StoredPage,
)
from schema.wire import to_msgpack
from store import open_store
from store.base import DUTY_SECONDS, MARGIN
from tests.support.duty_brokers import REQUEST_S, TTL_S, WRITES, Broker, Fences
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.paced import Pace, Paced, PacedStore
from tests.support.redis_dump import Copy, Key, unpacked
from tests.support.redis_server import RedisServer
from tests.support.turned import turned

T = TypeVar("T")

HOSTS = ["a.example", "c.example", "b.example", "f.example"]
"""In partitions, and so on nodes, 0 and 1 by turns."""
SEEDS = 6
"""Paths of a host that are given; each leads to two others, which lead nowhere."""
PLAIN, LIMITED, PASSING = NAMES = ["plain", "limited", "passing"]
"""The second has a limit, the third is deleted and made anew."""
MAX_PAGES = 5
JOBS = [
    names.UPKEEP, names.UPKEEP, names.REFILL, names.PURGE, names.RETENTION, names.REPLAY,
    names.QUOTAS,
]  # fmt: skip
ROUNDS = 30
STEPS = st.sampled_from([999, 999, 1, 2, 3, 5, 8])
COUNTS = st.sampled_from([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 11])
WHICH = st.integers(0, 41)
"""Of whatever there is; drawn so, what is drawn does not depend on what happened."""
EITHER = st.sampled_from([0, 1])


def some(things: Sequence[T], which: int) -> list[T]:
    """One of them, the latest for 0; none if there is none."""
    return [things[-1 - which % len(things)]] if things else []


def seeds_of(which: int, count: int) -> list[Admission]:
    places = [(which + n) % (len(HOSTS) * SEEDS) for n in range(count)]
    return [Admission(f"http://{HOSTS[n % len(HOSTS)]}/{n // len(HOSTS)}") for n in places]


def links_of(page: str) -> list[Admission]:
    """What a page links to: always the same, one link for each node."""
    path = page.split("/")[3]
    if not path.isdigit():
        return []
    host = HOSTS.index(page.split("/")[2])
    return [Admission(f"http://{HOSTS[(host + n) % 4]}/l{path}.{host}", depth=1) for n in (1, 2)]


class DutiesMachine(RuleBasedStateMachine):
    """Three crawls, two brokers and workers on two nodes; a cut link is a breaker that is open."""

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
        self.brokers = [self.made(), self.made()]
        self.workers = Frontier(urls, self.paced_store)
        for node in self.workers.nodes:
            self.pace.node(node)
        self.said: list[Crawl] = []
        """Rows of crawls, as somebody has read them."""
        self.limit = MAX_PAGES
        self.exact = True
        """Whether nobody had to guess what a partition has of its quota."""
        for name in NAMES:
            self.make(name)
        self.held: list[Session] = []
        self.deadlines: dict[str, float] = {}
        """Token → when its worker takes its results for late."""
        self.given: set[Key] = set()
        """Seeds that were acknowledged."""
        self.paused: set[int] = set()
        self.versions: dict[tuple[int, int], int] = {}
        self.tokens = self.moment = 0
        for name in NAMES:
            self.seed(name, 0, 3, 0, 999)
        self.job(names.QUOTAS, 0, 999)

    # -- steps

    def work(self, name: str, steps: int, call: Callable[[], Any], owner: Any = None) -> Paced:
        """Begin what a process does, and let it come some steps far."""

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
        """Begin a round under a duty, or go on with the one that this broker is at."""
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
        """As the store has it. Raises UnknownCrawl."""
        return self.store.crawl(name)

    def make(self, name: str) -> Crawl:
        most = self.limit if name == LIMITED else 0
        options = CrawlOptions(delay=0.0, slots=2, max_pages=most)
        crawl = self.store.put_crawl(name, options, HOSTS)
        self.said.append(crawl)
        self.brokers[0].frontier.put_crawl(crawl)
        return crawl

    def known(self, name: str) -> list[Crawl]:
        return [crawl for crawl in self.store.crawls() if crawl.name == name]

    # -- duties

    @rule(name=st.sampled_from(JOBS), broker=EITHER, steps=STEPS)
    def do(self, name: str, broker: int, steps: int) -> None:
        self.job(name, broker, steps)

    @rule(which=WHICH, steps=STEPS)
    def go_on(self, which: int, steps: int) -> None:
        for task in some(self.pace.living(), which):
            self.fences.advance(task, steps)

    @rule(which=WHICH)
    def die(self, which: int) -> None:
        """A process dies between two calls."""
        for task in some(self.pace.living(), which):
            self.kill(task)

    def kill(self, task: Paced) -> None:
        """But not who was late after all to store a page, which it did not know when it began to.

        Another may have fetched the URL since, to another end, and nobody comes for it again.
        """
        if isinstance(task.owner, tuple) and not self.is_current(*task.owner):
            self.fences.advance(task, 999)
        else:
            task.kill()

    def is_current(self, session: Session, number: int) -> bool:
        p = int(session.session[0])
        return bool(self.raw[p].hexists(f"gc:{{{p}}}:s:{session.token}", f"t{number}"))

    @rule(
        stalls=st.lists(
            st.tuples(st.sampled_from(JOBS), st.sampled_from([WRITES, {"redis"}]), COUNTS),
            min_size=1,
            max_size=4,
        ),
        broker=EITHER,
        which=WHICH,
        other=STEPS,
    )
    def stand_still(
        self, stalls: list[tuple[str, set[str], int]], broker: int, which: int, other: int
    ) -> None:
        """A holder believes that it has what another took since, and goes on where it stood."""
        for name, calls, count in stalls:
            for task in self.pace.living():
                if task.name == name:
                    self.kill(task)
            self.something_to_do(name, which)
            self.time_passes(DUTY_SECONDS + 1)
            task = self.job(name, broker, 1)
            self.fences.advance_to(task, calls, count)
            self.time_passes(DUTY_SECONDS + 1)
            self.job(name, 1 - broker, other)
            self.fences.advance(task, 999)

    def something_to_do(self, name: str, which: int) -> None:
        if name in (names.REFILL, names.PURGE, names.RETENTION):
            self.give(PLAIN, self.fresh(HOSTS[which % 4], 6), 0, 999)
        if name == names.REFILL:
            self.fetch(which, 0, which % 2, 1, 999, True)
        elif name == names.PURGE:
            self.purge_host(PLAIN, which, 0)
            if which % 3 == 0:
                self.delete(0)
        elif name == names.RETENTION:
            self.settle_all(1)
        elif name == names.REPLAY:
            self.seed(PLAIN, which, 2, 0, 999)
            self.cut(None, which % 2)
            self.fetch(which, 0, 1 - which % 2, 3, 999, True)
            self.mend()
        elif name == names.UPKEEP and which % 2:
            for crawl in self.known(PLAIN):
                self.store.add_seeds(crawl.id, self.fresh(HOSTS[which % 4], 2))
        elif which % 3:
            self.settle_all(1)

    def fresh(self, host: str, count: int) -> list[Admission]:
        """URLs that nobody has met, and that lead nowhere."""
        self.moment += 1
        return [Admission(f"http://{host}/x{self.moment}.{n}") for n in range(count)]

    @rule(broker=EITHER)
    def restart(self, broker: int) -> None:
        """One stops in order, and gives its duties back; another comes in its place."""
        old = self.brokers[broker]
        for task in self.pace.living():
            if task.owner is old:
                task.kill()
        self.brokers[broker] = self.made()
        held = {name for name in JOBS if old.duties.get(name)}
        old.stop()
        for name in held:  # free at once
            assert self.brokers[broker].duties.take(name), f"{name} was not given back"

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.pace.shift_ms += seconds * 1000
        for raw in self.raw:
            raw.hincrby(keys.OWNER, "offset", round(seconds * 1000))

    # -- crawls

    @rule(
        name=st.sampled_from(NAMES), which=WHICH, count=st.integers(1, 6), broker=EITHER,
        steps=STEPS,
    )  # fmt: skip
    def seed(self, name: str, which: int, count: int, broker: int, steps: int) -> None:
        self.give(name, seeds_of(which, count), broker, steps)

    def give(self, name: str, items: list[Admission], broker: int, steps: int) -> None:
        at = self.brokers[broker]
        for crawl in self.known(name):
            self.said.append(crawl)

            def admit(crawl: Crawl = crawl) -> None:
                admitted = seeding.admit(at.service, crawl, items, force=False)
                if not admitted.away:
                    self.given |= {(crawl.id, item.url) for item in items}

            self.work("seed", steps, admit, at)

    @rule(name=st.sampled_from(NAMES), pause=st.booleans(), broker=EITHER, steps=STEPS)
    def pause(self, name: str, pause: bool, broker: int, steps: int) -> None:
        """The store knows at once; partitions are told, perhaps late, or never."""
        for crawl in self.known(name):
            self.said.append(crawl)
            if crawl.state == "done" and (pause or crawl.finished):
                return
            changed = self.store.set_state(crawl.id, "paused" if pause else "active")
            (self.paused.add if pause else self.paused.discard)(crawl.id)
            tell = partial(self.brokers[broker].frontier.put_crawl, changed)
            self.work("tell", steps, tell, self.brokers[broker])

    @rule(which=WHICH, broker=EITHER, steps=STEPS)
    def tell_late(self, which: int, broker: int, steps: int) -> None:
        """What was read before a change is told after it."""
        for crawl in some(self.said[-6:], which):
            self.work("tell", steps, partial(self.brokers[broker].frontier.put_crawl, crawl))

    @rule(broker=EITHER)
    def delete(self, broker: int) -> None:
        """One crawl is deleted, or made anew under its name."""
        for crawl in self.known(PASSING):
            self.brokers[broker].service.purge(crawl)
            return
        self.make(PASSING)
        self.seed(PASSING, broker, 3, broker, 999)

    @rule(name=st.sampled_from([PLAIN, PASSING]), which=WHICH, broker=EITHER)
    def purge_host(self, name: str, which: int, broker: int) -> None:
        for crawl in self.known(name):
            self.brokers[broker].service.purge(crawl, HOSTS[which % 4])

    @rule(broker=EITHER, steps=STEPS)
    def raise_limit(self, broker: int, steps: int) -> None:
        self.limit += 2
        for crawl in self.known(LIMITED):
            options = CrawlOptions(delay=0.0, slots=2, max_pages=self.limit)
            self.store.put_crawl(LIMITED, options, HOSTS)
            if crawl.state == "done":
                self.store.set_state(crawl.id, "active")
            told = self.store.crawl(crawl.id)
            self.work("tell", steps, partial(self.brokers[broker].frontier.put_crawl, told))

    # -- nodes that are away

    @rule(who=st.sampled_from([0, 1, None]), node=EITHER)
    def cut(self, who: int | None, node: int) -> None:
        """A broker, or the workers, do not reach a node."""
        if who is None:
            self.workers.nodes[node].breaker.since_ms = 1
        else:
            self.brokers[who].cut(node)

    @rule()
    def mend(self) -> None:
        for node in self.workers.nodes:
            node.breaker.since_ms = 0
        for broker in self.brokers:
            broker.mend()

    # -- nodes that come back as they were once

    def copy(self, node: int) -> Copy:
        return Copy.of(self.plain[node], self.pace.shift_ms)

    def lose(self, node: int, copy: Copy) -> None:
        """The node is restarted from an older copy of its data, and knows what it knew then."""
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
            if task.name == "_refill":
                self.fences.advance(task, steps)

    @rule(node=EITHER, broker=EITHER, which=WHICH, count=st.integers(1, 6), steps=STEPS)
    def lose_and_recover(self, node: int, broker: int, which: int, count: int, steps: int) -> None:
        """What was queued, leased and told since a copy is lost, and quotas of before come back."""
        self.mend()
        self.recover(node, broker, 999)
        copy = self.copy(node)
        for name in NAMES:
            self.seed(name, which, count, broker, 999)
        self.fetch(which, broker, node, 2, steps, True)
        self.pause(NAMES[which % 3], which % 2 == 0, broker, 999)
        self.lose(node, copy)
        self.recover(node, broker, 999)
        if self.raw[node].hexists(keys.OWNER, "owed"):
            return  # another is at it
        for crawl in self.known(LIMITED):
            record = unpacked(self.raw[node].get(f"gc:{{{node}}}:c:{crawl.id}") or "\x80")
            assert not record.get("quota", 0), "a quota of before a loss counts"

    @rule(
        node=EITHER, broker=EITHER, which=WHICH, ticks=st.sampled_from([0, 12, 12]),
        steps=st.integers(3, 12), after=st.sampled_from([0, 12, 12]),
    )  # fmt: skip
    def lose_what_was_paid(
        self, node: int, broker: int, which: int, ticks: int, steps: int, after: int
    ) -> None:
        """A node is given what it missed, and loses it again."""
        self.mend()
        self.recover(node, broker, 999)
        self.give(PLAIN, seeds_of(which, 4), broker, 999)
        self.cut(None, node)
        self.fetch(which, broker, 1 - node, 3, 999, True)
        self.mend()
        self.tick(broker, ticks)
        self.time_passes(DUTY_SECONDS + 1)
        task = self.job(names.REPLAY, broker, steps)
        self.tick(broker, after)
        copy = self.copy(node)
        self.fences.advance(task, 999)
        if which % 4:
            self.lose(node, copy)
            self.recover(node, 1 - broker, 999)
        self.settle_all(1)

    def tick(self, broker: int, times: int) -> None:
        at = self.brokers[broker].frontier

        def tick() -> None:
            for _ in range(times):
                at.tick(self.store.clock())
                self.store.tick()

        self.work("tick", 999, tick)

    # -- workers

    @rule(
        which=WHICH, broker=EITHER, p=EITHER, most=st.integers(1, 3), steps=STEPS,
        page=st.sampled_from([True, True, True, False]),
    )  # fmt: skip
    def fetch(self, which: int, broker: int, p: int, most: int, steps: int, page: bool) -> None:
        """Sessions are opened, and what they fetched is on its way for long, or not at all."""
        at = self.brokers[broker]
        known = len(self.held)
        self.work("lease", 999, partial(self.open, at, p, most, 1 + which % 4), at)
        for session in self.held[known:]:
            for task in session.tasks:
                self.deliver(broker, session, task.number, steps, page)

    def open(self, at: Broker, p: int, most: int, per: int) -> None:
        sent, rows = self.pace.now_ms(), []
        for crawl in self.store.crawls():
            rows.append([crawl.id, most, *(f"{self.tokens + n:016x}" for n in range(most))])
            self.tokens += most
        args = ["w", 0, self.tokens, TTL_S * 1000, 1_800_000, REQUEST_S * 1000, per, 0, *rows]
        reply = at.frontier._calls("open", {p: to_msgpack(args)})[p]
        opened = [part.session_of(p, TTL_S, row) for row in reply[1]]
        self.deadlines |= {one.token: sent + TTL_S * 1000 for one in opened}
        self.held += opened

    @rule(which=WHICH, broker=EITHER, steps=STEPS, page=st.booleans())
    def commit_late(self, which: int, broker: int, steps: int, page: bool) -> None:
        """Of a session that may be over long since, in a crawl that may be done, or deleted."""
        for session in some(self.held[-12:], which):
            for task in session.tasks[:2]:
                self.deliver(broker, session, task.number, steps, page)

    def deliver(self, broker: int, session: Session, number: int, steps: int, page: bool) -> None:
        work = partial(self.settle, broker, session, number, page)
        self.work("settle", steps, work, (session, number))

    def settle(self, broker: int, session: Session, number: int, page: bool) -> None:
        """What ``worker.writer`` does with one task."""
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
        """False when the rows are to be written again."""
        try:
            found = self.workers.admit(crawl, links, stamp=stamp, partial=True)
        except UnknownCrawl:
            return True
        if left := found.away - owed:
            self.paced_store.owe(left, stamp.clock)
        return found.tick - stamp.clock <= MARGIN

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
        """Fetch all that can be fetched now."""
        for _ in range(rounds):
            for at, broker in enumerate(self.brokers):
                args = to_msgpack([1000])
                self.work("tend", 999, partial(self.tend, broker, args), broker)
                self.job(names.REFILL, at, 999)
                self.job(names.QUOTAS, at, 999)
                known = len(self.held)
                for p in (0, 1):
                    self.work("lease", 999, partial(self.open, broker, p, 3, 6), broker)
                for session in self.held[known:]:
                    self.close(broker, session)
                    for task in session.tasks:
                        self.deliver(at, session, task.number, 999, page)

    def tend(self, at: Broker, args: bytes) -> None:
        at.frontier._calls("tend", dict.fromkeys((0, 1), args))

    def close(self, at: Broker, session: Session) -> None:
        item = CloseItem(
            session=session.session, token=session.token, report=HostReport(requests=1, robots=True)
        )
        self.work("close", 999, lambda: at.frontier.close_sessions([item]), at)

    @rule(
        which=WHICH, broker=EITHER,
        calls=st.sampled_from([{"set_state"}, {"set_state"}, {"redis"}, WRITES]), count=COUNTS,
        comes=st.sampled_from(["seed", "page", "page", "pause", "pause", "cut", "word", "death"]),
        late=STEPS,
    )  # fmt: skip
    def end_meanwhile(
        self, which: int, broker: int, calls: set[str], count: int, comes: str, late: int
    ) -> None:
        """Crawls are about to be found finished, and something comes between two looks."""
        self.mend()
        known = len(self.held)
        self.work("lease", 999, partial(self.open, self.brokers[broker], which % 2, 2, 2))
        late_ones = self.held[known:]
        self.time_passes(31.0)  # whoever has these stands still, and others have them next
        self.settle_all(2, page=False)
        if not self.quiet(broker):
            return
        task = self.job(names.UPKEEP, broker, 1)
        self.fences.advance_to(task, calls, count)
        for name in NAMES:
            if comes == "seed":
                self.seed(name, which, 2, 1 - broker, late)
            elif comes == "pause":
                self.pause(name, True, 1 - broker, late)
        if comes in ("page", "cut"):
            if comes == "cut":
                self.cut(None, which % 2)
            for session in late_ones:
                for one in session.tasks:
                    self.deliver(1 - broker, session, one.number, late, True)
        elif comes == "word":
            self.tell_late(which, 1 - broker, late)
        elif comes == "death":
            task.kill()
        self.fences.advance(task, 999)
        self.job(names.UPKEEP, broker, 999)

    def quiet(self, broker: int) -> bool:
        """Whether a broker has seen, once, that nothing is left to do in some crawl."""
        for _ in range(3):
            self.job(names.UPKEEP, broker, 999)
            if self.brokers[broker].upkeep._quiet:
                return True
        return False

    # -- properties

    def logged(self, crawl: int) -> set[str]:
        found = {item.url for batch in self.store.seeds(crawl) for item in batch.urls}
        for _, page in self.store.pages(crawl):
            found |= {item.url for item in page.links}
        return found | {url for c, url in self.given if c == crawl}

    def left(self, crawl: int) -> set[str]:
        """URLs of the log that are not final."""
        sql = "SELECT url FROM pages WHERE crawl = ?1 UNION SELECT url FROM finals WHERE crawl = ?1"
        return self.logged(crawl) - {url for (url,) in self.sql.execute(sql, (crawl,))}

    def coming(self, crawl: int) -> set[str]:
        """Links of pages that are just being settled: whoever offers them opens the crawl."""
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
            assert (crawl.state == "paused") == (crawl.id in self.paused), "a pause was undone"
            if crawl.finished:
                left = self.left(crawl.id) - self.coming(crawl.id)
                assert not left, f"{crawl.name} is done without {left}"

    def held_once(self) -> None:
        for name in {*JOBS, *(f"{names.REPLAY}:{node.id}" for node in self.workers.nodes)}:
            holders = [broker for broker in self.brokers if broker.duties.get(name)]
            assert len(holders) < 2, f"two hold {name}"

    def bounded(self) -> None:
        sql = (
            "SELECT COUNT(*) FROM pages JOIN crawls ON crawls.id = crawl "
            "WHERE name = ? AND status = 200"
        )
        assert self.sql.execute(sql, (LIMITED,)).fetchone()[0] <= self.limit, "a page too many"

    def told(self, crawl: Crawl, records: list[dict[str, Any]]) -> None:
        """No partition goes back to an older version, and of one version all have the same."""
        for p, record in enumerate(records):
            version = int(record.get("ver", 0))
            assert version >= self.versions.get((crawl.id, p), 0), "an older word counted"
            self.versions[crawl.id, p] = version
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
        self.mend()
        for crawl in self.store.crawls():
            if crawl.state == "paused":
                self.paused.discard(crawl.id)
                self.store.set_state(crawl.id, "active")
        for _ in range(ROUNDS):
            self.time_passes(31.0)
            self.settle_all(1)
            for node in (0, 1):
                self.recover(node, 0, 999)
            for name in (names.REPLAY, names.PURGE, names.RETENTION, *[names.UPKEEP] * 3):
                self.job(name, 0, 999)
            self.holds()
            crawls = self.store.crawls()
            if all(c.state == "done" for c in crawls) and not self.store.purges():
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


def run_machine(count: int, steps: int) -> None:
    pace = DutiesMachine.pace = Pace()
    turns = [
        (purge_module, "epoch_ms", lambda: 1),
        (ring_module, "propose", lambda ids, count: tuple(p % len(ids) for p in range(count))),
    ]
    with ExitStack() as stack:
        folder = DutiesMachine.memory = stack.enter_context(memory_folder())
        DutiesMachine.servers = [
            RedisServer(folder / f"redis{n}", None, "--appendonly", "no").start() for n in (0, 1)
        ]
        for server in DutiesMachine.servers:
            stack.callback(server.stop)
        stack.enter_context(turned(pace, *turns))
        DutiesMachine.TestCase.settings = settings(
            max_examples=count, stateful_step_count=steps, deadline=None,
            suppress_health_check=list(HealthCheck), print_blob=False,
        )  # fmt: skip
        DutiesMachine.TestCase().runTest()


def test_a_duty_that_passed_on_changes_nothing_and_no_crawl_ends_too_soon() -> None:
    run_machine(examples(25, 500), 20)
