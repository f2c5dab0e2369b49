"""The frontier on a real Redis, compared with a model in memory, step by step.

After every step the data of Redis are compared with five properties: conservation, politeness,
fencing, end, accounts. Logical time moves by the node's offset, not by waiting.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.quotas import Row, row_of
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.schema.net.urls import task_path
from greencrawl.schema.records import (
    STOPPED,
    STOPPING,
    STOPPING_NOW,
    Admission,
    CloseItem,
    Crawl,
    CrawlOptions,
    CrawlState,
    Dead,
    Done,
    Due,
    Duty,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostReport,
    Outcome,
    ReconcileRequest,
    ReleaseItem,
    Retry,
    Session,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store import open_store
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.redis_dump import contents
from tests.support.redis_server import RedisServer

HOSTS = ["a.example", "b.example", "www.a.example", "c.example:8080"]
LIFE_MS, TTL_S, REQUEST_S = 1_800_000, 20.0, 10.0
DELAYS = {1: 3.0, 2: 0.0}
SLOTS = {1: 1, 2: 3}
LIMITED, MAX_PAGES = 2, 30
"""The crawl that has a limit."""
HOST_BUDGET, PARTITION_BUDGET = 500, 1600
LEAST_BYTES = 32 * 35
"""The bytes of tasks that a crawl may get back in a partition, whatever the budget."""
TASK_BYTES, HOST_BYTES = 24, 240
"""As in ``lua/shared/common.lua``."""


def unpacked(packed: str) -> dict[str, Any]:
    """Return a host's record, read as Latin-1."""
    record: dict[str, Any] = msgspec.msgpack.decode(packed.encode("latin-1"))
    return record


@dataclass
class Held:
    session: Session
    worker: str
    incarnation: int
    sequence: int
    reap_at: float
    open: bool = True
    tasks: dict[int, str] = field(default_factory=dict)


class FrontierMachine(RuleBasedStateMachine):
    """Two crawls (one with a delay, one with slots), two workers, four hosts in three domains."""

    server: ClassVar[RedisServer]
    memory: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="frontier-", dir=self.memory))
        self.client = self.server.client
        self.client.flushall()
        self.raw = redis.Redis(port=self.server.port, decode_responses=True, encoding="latin-1")
        store = open_store(f"sqlite:///{self.folder / 'c.sqlite'}")
        self.store = store
        self.frontier = Frontier(
            [self.server.url], store, partitions=2, request_seconds=REQUEST_S, create=True
        )
        self.node = self.frontier.nodes[0]
        self.client.hset(keys.OWNER, "host_budget", HOST_BUDGET)
        self.client.hset(keys.OWNER, "budget", PARTITION_BUDGET)
        self.crawls: dict[int, Crawl] = {}
        for number, delay in DELAYS.items():
            most = MAX_PAGES if number == LIMITED else 0
            options = CrawlOptions(delay=delay, slots=SLOTS[number], max_pages=most)
            crawl = store.put_crawl(f"crawl{number}", options, HOSTS)
            assert crawl.id == number
            self.frontier.put_crawl(crawl)
            self.crawls[number] = crawl
        self.paused: set[int] = set()
        self.halted: set[int] = set()
        """Paused crawls whose leased tasks have to be given back."""
        self.said: list[Crawl] = list(self.crawls.values())
        """Rows of crawls as they were sent, or read by a process that sends them later."""
        self.epoch = 1
        self.sums: dict[int, int] = dict.fromkeys(self.frontier.partitions, 0)
        """Partition → the limited crawl's quota, leased tasks and stored pages there."""
        self.place: dict[tuple[int, str], str] = {}
        self.later: dict[tuple[int, str], float] = {}
        self.held: dict[str, Held] = {}
        self.ended: list[Held] = []
        self.rest: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.last: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.blocked: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.robots: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.adaptive: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.operator: dict[str, float] = dict.fromkeys(HOSTS, 0.0)
        self.spilled: set[tuple[int, str]] = set()
        self.marked: set[tuple[int, str]] = set()
        """Tasks on their way to be fetched again."""
        self.parked: set[tuple[int, str]] = set()
        """URLs that are final."""
        self.parks: Counter[int] = Counter()
        """Crawl → how often a URL of it was parked."""
        self.again: Counter[int] = Counter()
        """Crawl → URLs that were queued again by force."""
        self.batches = 0
        self.forced_bytes = 0
        """Tasks that came by force, whatever the budget."""
        self.traps: dict[tuple[int, str], bytes] = {}
        """(crawl, host) → the last report of a session about its shapes."""
        self.sequence: Counter[str] = Counter()
        self.incarnation: Counter[str] = Counter()
        self.dead: dict[str, set[int]] = {"v": set(), "w": set()}
        for number in self.crawls:
            hosts = HOSTS if number == 2 else HOSTS[:1]
            self.admit(number, [(host, n, 0) for host in hosts for n in range(31, 34)])
        self.share(taken_over=False)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.frontier.stop()
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- the data of the model

    def now(self) -> float:
        return self.node.now_ms()

    def delay_ms(self, host: str) -> float:
        waiting = {
            c for (c, url), at in self.place.items() if at == "waiting" and f"//{host}/" in url
        }
        return max([self.adaptive[host], self.operator[host], *(DELAYS[c] * 1000 for c in waiting)])

    def free(self, held: Held, ended: float) -> None:
        """Free the slot of a session; requests may have been sent until ``ended`` (ms)."""
        s, held.open = held.session, False
        rest = ended + max(self.delay_ms(s.host), s.delay * 1000)
        self.rest[s.host] = max(self.rest[s.host], rest - 100)
        self.last[s.host] = max(self.last[s.host], ended - 100)

    def forget(self, token: str) -> None:
        self.ended.append(self.held.pop(token))

    def pick(self, data: st.DataObject) -> Held | None:
        """Return a live session, or one that ended long ago, for which nothing may change."""
        candidates = [*self.held.values(), *self.ended[-2:]]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    # -- moves

    @rule(
        crawl=st.sampled_from([1, 2]),
        found=st.lists(
            st.tuples(st.sampled_from(HOSTS), st.integers(0, 30), st.integers(0, 2)), max_size=40
        ),
    )
    def admit(self, crawl: int, found: list[tuple[str, int, int]]) -> None:
        items = [Admission(f"http://{h}/{n}", depth=d, level=d) for h, n, d in found]
        known, before = self.beyond(), {host: self.size(host) for host in HOSTS}
        new = self.frontier.admit(crawl, items)
        self.spilled |= self.beyond() - known
        expected, seen = [], set()
        for item in items:
            key = (crawl, item.url)
            expected.append(key not in self.place and key not in seen)
            seen.add(key)
        assert new == expected
        for key in seen:
            self.place.setdefault(key, "overflow" if key in self.spilled else "waiting")
        for host in HOSTS:
            after = self.size(host)
            assert after <= max(HOST_BUDGET, before[host]), "taken in beyond the host's budget"

    def size(self, host: str) -> int:
        """Bytes of a host's waiting tasks."""
        return sum(
            len(task_path(url)) + TASK_BYTES
            for (_, url), at in self.place.items()
            if at == "waiting" and f"//{host}/" in url
        )

    def beyond(self) -> set[tuple[int, str]]:
        """Return what waits in SQL's overflow."""
        return {
            (crawl, row.item.url)
            for crawl in DELAYS
            for p in self.frontier.partitions
            for host in HOSTS
            for row in self.store.overflow(crawl, p, host, 1000)
        }

    @rule(crawl=st.sampled_from([1, 2]), host=st.sampled_from(HOSTS))
    def refill(self, crawl: int, host: str) -> None:
        """The best tasks of the overflow come back, as many as there is room for."""
        p = self.frontier.partition_of(host)
        rows = self.store.overflow(crawl, p, host, 1000)
        brought = self.frontier.refill(crawl, p, host)
        assert brought <= len(rows)
        left = [(crawl, row.item.url) for row in self.store.overflow(crawl, p, host, 1000)]
        assert left == [(crawl, row.item.url) for row in rows[brought:]]
        for row in rows[:brought]:
            key = (crawl, row.item.url)
            assert self.place[key] == "overflow"
            self.place[key] = "waiting"
            self.spilled.discard(key)
        if not brought and rows:
            assert self.client.get(f"gc:{{{p}}}:b"), "an empty partition took nothing"

    @rule(
        data=st.data(), worker=st.sampled_from("vw"), most=st.integers(1, 4), per=st.integers(1, 5)
    )
    def lease(self, data: st.DataObject, worker: str, most: int, per: int) -> None:
        self.sequence[worker] += 1
        crawls = data.draw(st.permutations([1, 2]))
        p = data.draw(st.integers(0, 1))
        rows = [[c, most, *(secrets.token_hex(8) for _ in range(most))] for c in crawls]
        args = [
            worker, self.incarnation[worker], self.sequence[worker], TTL_S * 1000, LIFE_MS,
            REQUEST_S * 1000, per, 0, *rows,
        ]  # fmt: skip
        now, sessions, _, _ = self.calls("open", p, args)
        lost = data.draw(st.sampled_from([False, False, True]))
        if lost:  # the answer was lost: the same call again gets the same sessions
            args[7] = 1
            again = self.calls("open", p, args)[1]
            given = {row[0]: row for row in again}
            assert all(given[row[0]] == row for row in sessions)
            sessions = again
        for row in sessions:
            self.opened(part.session_of(p, TTL_S, row), worker, now)

    def opened(self, session: Session, worker: str, now: float) -> None:
        host = session.host
        assert session.crawl not in self.paused
        assert session.traps == self.traps.get((session.crawl, host), b"")
        assert now + 5 >= self.rest[host], "opened while the host rests"
        in_force = max(session.delay, self.delay_ms(host) / 1000)
        assert now + 5 >= self.last[host] + in_force * 1000, "opened before its delay was over"
        assert now + 5 >= self.blocked[host], "opened while the host is blocked"
        others = [h for h in self.held.values() if h.open and h.session.host == host]
        if session.delay > 0 or self.robots[host] <= now:
            assert not others, "two sessions of a host"
        assert len(others) < SLOTS[session.crawl]
        assert session.floor >= max(DELAYS[session.crawl], self.operator[host] / 1000)
        held = Held(
            session, worker, self.incarnation[worker], self.sequence[worker],
            now + (TTL_S + REQUEST_S) * 1000,
        )  # fmt: skip
        for task in session.tasks:
            key = (session.crawl, task.url)
            assert self.place[key] == "waiting"
            self.place[key] = "leased"
            held.tasks[task.number] = task.url
        self.held[session.token] = held

    @rule(
        data=st.data(),
        outcome=st.one_of(
            st.just(Done(stored=True, bytes=7)),
            st.just(Dead(kind="timeout")),
            st.just(Done(kind="parked")),
            st.builds(Retry, wait=st.sampled_from([0.0, 5.0, 60.0]), kind=st.just("reset")),
        ),
    )
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        held = self.pick(data)
        if held is None:
            return
        number = data.draw(st.integers(1, 5))
        s = held.session
        item = FinishItem(session=s.session, token=s.token, task=number, outcome=outcome)
        current = s.token in self.held and number in held.tasks
        before = None if current else self.dump()
        status = self.frontier.finish([item])
        assert status == ["ok" if current else "stale"]
        if not current:
            assert self.dump() == before, "a stale message changed something"
            return
        key = (s.crawl, held.tasks.pop(number))
        if isinstance(outcome, Retry):
            self.place[key], self.later[key] = "later", self.now() + outcome.wait * 1000
        else:
            self.place[key] = "final"
            self.marked.discard(key)
        if outcome == Done(kind="parked"):
            self.parked.add(key)
            self.parks[s.crawl] += 1
        if not held.tasks and not held.open:
            self.forget(s.token)

    @rule(
        crawl=st.sampled_from([1, 2]), host=st.sampled_from(HOSTS),
        level=st.sampled_from([0, 2, 25, 26, 29, 31]), full=st.sampled_from([False] * 4 + [True]),
    )  # fmt: skip
    def ask_again(self, crawl: int, host: str, level: int, full: bool) -> None:
        """Final URLs are due to be fetched again: they are queued once, as far as there is room."""
        p = self.frontier.partition_of(host)
        some = sorted(k for k, at in self.place.items() if at == "final" and f"//{host}/" in k[1])
        keys_ = [key for key in some if key[0] == crawl]
        on_way = sorted(key for key in self.marked if key[0] == crawl and f"//{host}/" in key[1])
        items = [Admission(url, depth=3, level=level) for _, url in keys_ + on_way]
        rows = [Due(self.frontier.fingerprint(one.url), (0, 0, 0), 0, one) for one in items]
        if full:
            self.client.hset(keys.OWNER, "full", 1)
        flags = self.frontier.ask_again(crawl, p, rows, items)
        self.client.hset(keys.OWNER, "full", 0)
        state = self.store.crawl(crawl).state
        if full or state != "active" or self.blocked[host] > self.now() + 1000:
            assert not set(flags) - set(b"0235")
            return
        assert flags[len(keys_) :] == b"0" * len(on_way), "it is on its way"
        for key, flag in zip(keys_, flags, strict=False):
            if flag == ord("1"):
                self.place[key] = "waiting"
                self.marked.add(key)
                self.parked.discard(key)
                self.again[crawl] += 1
                self.forced_bytes += len(task_path(key[1])) + TASK_BYTES
        most = max(2, 60_000 // (DELAYS[crawl] * 1000)) if DELAYS[crawl] else 128
        waiting = [key for key in self.marked if key[0] == crawl and f"//{host}/" in key[1]]
        assert sum(self.place[key] == "waiting" for key in waiting) <= most + len(on_way)

    @rule(crawl=st.sampled_from([1, 2]), host=st.sampled_from(HOSTS), repeat=st.booleans())
    def release_parked(self, crawl: int, host: str, repeat: bool) -> None:
        """Parked URLs of a host are queued by force, however often the batch is sent."""
        some = {key for key in self.parked if key[0] == crawl and f"//{host}/" in key[1]}
        items = [Admission(page) for _, page in sorted(some)]
        if not items:
            return
        self.batches += 1
        for _ in range(1 + repeat):
            new = self.frontier.admit(crawl, items, mode=Mode.FORCE, batch=self.batches)
            assert new == [False] * len(items), "they were seen"
        self.parked -= some
        self.marked |= some
        self.again[crawl] += len(some)
        self.forced_bytes += sum(len(task_path(page)) + TASK_BYTES for _, page in some)
        for key in some:
            self.place[key] = "waiting"

    @rule(
        data=st.data(),
        failed=st.booleans(),
        robots=st.booleans(),
        adaptive=st.sampled_from([0.0, 0.0, 4.0]),
        release=st.booleans(),
        traps=st.sampled_from([b"", b"", b"\x00\xff|", b"t" * 4096]),
    )
    def close(
        self, data: st.DataObject, failed: bool, robots: bool, adaptive: float, release: bool,
        traps: bytes,
    ) -> None:  # fmt: skip
        held = self.pick(data)
        if held is None:
            return
        current = held.session.token in self.held and held.open
        numbers = tuple(held.tasks)[:2] if release and current else ()
        self.end(
            held, failed=failed, robots=robots, adaptive=adaptive, numbers=numbers, traps=traps
        )

    def end(
        self, held: Held, *, failed: bool, robots: bool, adaptive: float,
        numbers: tuple[int, ...], traps: bytes = b"",
    ) -> None:  # fmt: skip
        """Close a session, live or not."""
        s, host = held.session, held.session.host
        current = s.token in self.held and held.open
        report = HostReport(
            delay=adaptive,
            robots=robots,
            failed="refused" if failed else "",
            block=30.0 * failed,
            requests=1,
            traps=traps,
        )
        before = None if current else self.dump()
        item = CloseItem(session=s.session, token=s.token, report=report, release=numbers)
        assert self.frontier.close_sessions([item]) == ["ok" if current else "stale"]
        if not current:
            assert self.dump() == before
            return
        now = self.now()
        for number in numbers:
            self.place[(s.crawl, held.tasks.pop(number))] = "waiting"
        self.adaptive[host] = adaptive * 1000
        if robots:
            self.robots[host] = now + 86_400_000
        if failed:
            self.blocked[host] = max(self.blocked[host], now + 29_000)
        if traps:
            self.traps[(s.crawl, host)] = traps
        self.free(held, now)
        if not held.tasks:
            self.forget(s.token)

    @rule(data=st.data(), some=st.booleans())
    def release(self, data: st.DataObject, some: bool) -> None:
        held = self.pick(data)
        if held is None:
            return
        self.hand_back(held, tuple(held.tasks)[:1] if some else ())

    def hand_back(self, held: Held, numbers: tuple[int, ...]) -> None:
        s = held.session
        current = s.token in self.held
        item = ReleaseItem(session=s.session, token=s.token, tasks=numbers)
        assert self.frontier.release([item]) == ["ok" if current else "stale"]
        if current:
            for number in numbers or tuple(held.tasks):
                self.place[(s.crawl, held.tasks.pop(number))] = "waiting"
            if not held.tasks and not held.open:
                self.forget(s.token)

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        held = self.pick(data)
        if held is not None:
            self.extended(held)

    def extended(self, held: Held) -> None:
        s = held.session
        status = self.frontier.extend([ExtendItem(session=s.session, token=s.token)], TTL_S)[0]
        assert (status == "stale") == (s.token not in self.held)
        if s.token in self.held:
            held.reap_at = self.now() + (TTL_S + REQUEST_S) * 1000
            if self.blocked[s.host] > self.now() and held.open:
                assert status == "stop"
            if held.open and self.operator[s.host] > s.floor * 1000:
                assert status == "stop", "it does not keep the operator's delay"
            if held.open and s.crawl in self.halted:
                assert status == "stop", "its crawl was stopped at once"

    @rule(data=st.data(), delay=st.sampled_from([7.0, 1.0, 0.0]))
    def slow_down(self, data: st.DataObject, delay: float) -> None:
        """An operator sets a host's least delay, and its sessions hear of it."""
        fetched = [held.session.host for held in self.held.values() if held.open]
        host = data.draw(st.sampled_from([*fetched, *HOSTS]))
        state = self.frontier.patch_host(host, HostPatch(delay=delay))
        self.operator[host] = delay * 1000
        assert state.delay == max(self.adaptive[host], self.operator[host]) / 1000
        for held in self.held.values():
            if held.session.host == host:
                self.extended(held)

    @rule(
        data=st.data(), worker=st.sampled_from("vw"),
        restart=st.sampled_from(["", "", "dead", "dead", "twin"]),
    )  # fmt: skip
    def reconcile(self, data: st.DataObject, worker: str, restart: str) -> None:
        """A twin starts elsewhere under the same name, while the owner of the name may still
        work."""
        now_is, dead = self.incarnation[worker], self.dead[worker]
        mine = [
            token for token, held in self.held.items()
            if held.worker == worker and (held.incarnation == now_is or held.incarnation in dead)
        ]  # fmt: skip
        keep: list[str] = []
        if restart:
            self.incarnation[worker] += 1
        if restart == "dead":
            dead.add(now_is)
        elif restart:
            mine = [token for token in mine if self.held[token].incarnation != now_is]
        elif mine:
            keep = data.draw(st.lists(st.sampled_from(mine), unique=True))
        request = ReconcileRequest(
            worker=worker, incarnation=self.incarnation[worker],
            sequence=self.sequence[worker], holding=tuple(keep), dead=tuple(dead),
        )  # fmt: skip
        dropped = [t for t in mine if t not in keep]
        tasks = sum(len(self.held[t].tasks) for t in dropped)
        reply = self.frontier.reconcile(request)
        assert (reply.sessions, reply.tasks) == (len(dropped), tasks)
        now = self.now()
        for token in dropped:
            held = self.held[token]
            for url in held.tasks.values():
                self.place[(held.session.crawl, url)] = "waiting"
            if held.open:
                extra = REQUEST_S * 1000 if held.incarnation in dead else 0
                self.free(held, now + extra)
            held.tasks = {}
            self.forget(token)

    @rule(worker=st.sampled_from("vw"))
    def late_lease_opens_nothing(self, worker: str) -> None:
        """A lease opens nothing if a reconcile overtook it on the way."""
        if not self.incarnation[worker]:
            return
        tokens = [[c, 2, secrets.token_hex(8), secrets.token_hex(8)] for c in (1, 2)]
        args = [worker, self.incarnation[worker] - 1, 10**6, 1000, LIFE_MS, 1000, 5, 0, *tokens]
        for p in self.frontier.partitions:
            assert self.calls("open", p, args)[0] == b"OLD"

    @rule(seconds=st.sampled_from([0.5, 3.0, 8.0, 31.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.client.hincrby(keys.OWNER, "offset", round(seconds * 1000))
        self.node.clock.forget()

    @rule(crawl=st.sampled_from([1, 2]), host=st.sampled_from(HOSTS))
    def hint_goes_stale(self, crawl: int, host: str) -> None:
        """`due` is a hint: whatever it has for a host, open reads the host's own record."""
        p = self.frontier.partition_of(host)
        self.client.zadd(f"gc:{{{p}}}:due:{crawl}", {host: 1})

    @rule(data=st.data(), crawl=st.sampled_from([2, 2, 1]))
    def block_against_a_hint(self, data: st.DataObject, crawl: int) -> None:
        """A host is blocked though the hint says that it is due; at delay 0 only the block keeps
        requests away."""
        live = [h for h in self.held.values() if h.open and h.session.crawl == crawl]
        if live:
            held = data.draw(st.sampled_from(live))
            self.end(held, failed=True, robots=False, adaptive=0.0, numbers=tuple(held.tasks))
            for number in DELAYS:
                self.hint_goes_stale(number, held.session.host)
            self.time_passes(5.0)  # every delay has passed, the block has not
            self.lease_all(crawl, held.session.host)

    @rule(host=st.sampled_from(HOSTS), number=st.integers(0, 30))
    def slow_crawl_joins(self, host: str, number: int) -> None:
        """A crawl with a delay comes to a host that a crawl without one has just left."""
        before = set(self.held)
        self.lease_all(2, host)
        for held in [h for t, h in self.held.items() if t not in before]:
            self.end(held, failed=False, robots=False, adaptive=0.0, numbers=())
        self.admit(1, [(host, number, 0)])
        self.hint_goes_stale(1, host)
        self.lease_all(1, host)

    @rule(crawl=st.sampled_from([1, 2]), host=st.sampled_from(HOSTS))
    def drain_and_hand_back(self, crawl: int, host: str) -> None:
        """All tasks of a host are leased and come back after its close: it must be due again."""
        before = set(self.held)
        self.lease_all(crawl, host)
        mine = [h for t, h in self.held.items() if t not in before and h.session.host == host]
        for held in mine:
            self.end(held, failed=False, robots=False, adaptive=0.0, numbers=())
            self.hand_back(held, ())

    def lease_all(self, crawl: int, host: str) -> None:
        """Lease as many tasks as a session may hold from each due host of a partition."""
        self.sequence["v"] += 1
        args = [
            "v", self.incarnation["v"], self.sequence["v"], TTL_S * 1000, LIFE_MS,
            REQUEST_S * 1000, 99, 0, [crawl, 4, *(secrets.token_hex(8) for _ in range(4))],
        ]  # fmt: skip
        p = self.frontier.partition_of(host)
        now, sessions, _, _ = self.calls("open", p, args)
        for row in sessions:
            self.opened(part.session_of(p, TTL_S, row), "v", now)

    @rule()
    def maintain(self) -> None:
        now = self.now()
        for p in self.frontier.partitions:
            self.calls("maintain", p, [1000])
        for token, held in list(self.held.items()):
            if held.reap_at <= now:
                for url in held.tasks.values():
                    self.place[(held.session.crawl, url)] = "waiting"
                held.tasks = {}
                if held.open:
                    self.free(held, now)
                self.forget(token)
        for key, at in list(self.later.items()):
            if at <= now - 5:
                self.place[key] = "waiting"
                del self.later[key]
            elif at <= now + 5:  # exactly at the limit: the answer of Redis counts
                where = self.frontier.find_url(self.crawls[key[0]], key[1]).state
                if where == "waiting":
                    self.place[key] = "waiting"
                    del self.later[key]

    @rule(
        crawl=st.sampled_from([1, 2]),
        state=st.sampled_from(
            [
                ("active", ""), ("active", ""), ("paused", ""), ("paused", STOPPING),
                ("paused", STOPPING_NOW), ("done", STOPPED),
            ]
        ),
    )  # fmt: skip
    def put_state(self, crawl: int, state: tuple[CrawlState, str]) -> None:
        """A person pauses, stops or resumes a crawl; tasks may still be leased."""
        self.said.append(self.store.crawl(crawl))
        changed = self.store.set_state(crawl, *state)
        self.frontier.put_crawl(changed)
        (self.paused.discard if changed.state == "active" else self.paused.add)(crawl)
        (self.halted.add if state[1] == STOPPING_NOW else self.halted.discard)(crawl)
        for held in self.held.values():
            self.extended(held)

    @rule(data=st.data(), afresh=st.booleans())
    def tell_late(self, data: st.DataObject, afresh: bool) -> None:
        """A row that was read before a change arrives after it; or a node was refilled."""
        old = data.draw(st.sampled_from(self.said[-4:]))
        self.frontier.tell_node([old], self.node, afresh=afresh)
        if afresh and old.id == LIMITED:
            self.sums = {p: row.leased + row.stored for p, row in self.rows().items()}

    @rule(taken_over=st.booleans())
    def share(self, taken_over: bool) -> None:
        """The broker that distributes quotas makes a pass."""
        self.epoch += taken_over
        quotas = self.frontier._quotas
        quotas.share(self.store.crawl(LIMITED), Duty(names.QUOTAS, self.epoch))
        self.sums = {p: row.sum for p, row in self.rows().items()}

    @rule(by=st.sampled_from([-3, 5]), taken_over=st.booleans(), reads=st.booleans())
    def gift_comes_late(self, by: int, taken_over: bool, reads: bool) -> None:
        """A call of an earlier pass, or of an earlier holder, comes late; the next pass has read
        the result.

        If it ``reads``, the whole earlier pass is late: it first reads under its own number.
        """
        quotas = self.frontier._quotas
        self.epoch += taken_over
        late = quotas._next(self.epoch)
        if not reads:
            quotas._claim(LIMITED, late)
        self.epoch += taken_over
        quotas._claim(LIMITED, quotas._next(self.epoch))
        for p in self.frontier.partitions:
            for change in (0, by) if reads else (by,):
                self.calls("quota", p, [LIMITED, late, change])

    def rows(self) -> dict[int, Row]:
        replies = {p: self.calls("count", p, [LIMITED]) for p in self.frontier.partitions}
        return {p: row_of(reply) for p, reply in replies.items()}

    @invariant()
    def told_and_limited(self) -> None:
        """A message with an older version has no effect, and every partition keeps the limit."""
        if not hasattr(self, "sums"):
            return
        rows = self.rows()
        assert {p: row.sum for p, row in rows.items()} == self.sums
        assert sum(self.sums.values()) <= MAX_PAGES
        assert all(row.quota >= 0 for row in rows.values())
        for crawl in DELAYS:
            present = self.store.crawl(crawl)
            for p in self.frontier.partitions:
                *_, state, version = self.calls("count", p, [crawl])
                assert (state.decode(), version) == (part.state_of(present), present.version)

    # -- reading Redis out

    def calls(self, script: str, p: int, args: list[Any]) -> list[Any]:
        return self.frontier._calls(script, {p: to_msgpack(args)})[p]

    def dump(self) -> dict[str, Any]:
        """Return all keys and values without the expiries."""
        names = sorted(self.client.keys("gc:{*"))
        pipe = self.raw.pipeline(transaction=False)
        for key in names:
            pipe.type(key)
        for key, kind in zip(names, pipe.execute(), strict=True):
            {
                "hash": pipe.hgetall, "set": pipe.smembers, "string": pipe.get,
                "list": lambda k: pipe.lrange(k, 0, -1),
                "zset": lambda k: pipe.zrange(k, 0, -1, withscores=True),
            }[kind](key)  # fmt: skip
        return dict(zip(names, pipe.execute(), strict=True))

    @invariant()
    def conserved_and_accounted(self) -> None:
        if not hasattr(self, "place"):
            return
        dump = self.dump()
        places: Counter[tuple[int, str]] = Counter()
        where: dict[tuple[int, str], str] = {}

        def met(crawl: int, host: str, entry: str, place: str) -> None:
            url = part.task_of(0, host, "A" + entry).url
            places[(crawl, url)] += 1
            where[(crawl, url)] = place

        for key, value in dump.items():
            kind, *rest = key.split("}:", 1)[1].split(":", 2)
            if kind == "h":
                for crawl, queue in unpacked(value).get("q", {}).items():
                    for entry in queue.get("e", ()):
                        met(int(crawl), rest[0] if len(rest) == 1 else ":".join(rest), entry[1:],
                            "waiting")  # fmt: skip
            elif kind == "w":
                host, _, _ = rest[1].rpartition(":")
                for entry in value:
                    met(int(rest[0]), host, entry, "waiting")
            elif kind == "s":
                for name, entry in value.items():
                    if name[0] == "t":
                        met(int(value["crawl"]), value["host"], entry[1:], "leased")
                assert int(value["left"]) == sum(name[0] == "t" for name in value)
            elif kind == "later":
                for member, _ in value:
                    crawl, host, entry = member.split("\n")
                    met(int(crawl), host, entry[1:], "later")
        found = contents(dump)
        for crawl in DELAYS:
            mine = [self.frontier.fingerprint(url) for c, url in self.marked if c == crawl]
            assert sorted(mine) == sorted(found.marks.get(crawl, []))
            assert set(mine) == found.again.get(crawl, set())
        for key in self.beyond():
            places[key] += 1
            where[key] = "overflow"
        open_places = {key: at for key, at in self.place.items() if at != "final"}
        assert where == open_places
        assert not [key for key, n in places.items() if n > 1], "a URL stands in two places"
        self.counters(dump)
        self.bytes(dump, where)
        self.due_sets(dump)

    def bytes(self, dump: dict[str, Any], where: dict[tuple[int, str], str]) -> None:
        """The partition's bytes equal a recount, and stay within the budget and the tasks in
        flight."""
        for p in self.frontier.partitions:
            tasks = [
                (crawl, url, at)
                for (crawl, url), at in where.items()
                if at != "overflow" and self.frontier.partition_of(url.split("/")[2]) == p
            ]
            hosts = {(crawl, url.split("/")[2]) for crawl, url, at in tasks if at == "waiting"}
            counted = sum(len(task_path(url)) + TASK_BYTES for _, url, _ in tasks)
            low = len(dump.get(f"gc:{{{p}}}:dry", ()))
            assert int(dump.get(f"gc:{{{p}}}:b", 0)) == counted + HOST_BYTES * (len(hosts) + low)
            most = PARTITION_BUDGET + len(DELAYS) * LEAST_BYTES + self.forced_bytes
            assert counted <= most

    def counters(self, dump: dict[str, Any]) -> None:
        for crawl in DELAYS:
            totals = self.frontier.scan(crawl)
            assert totals is not None
            mine = Counter(at for (c, _), at in self.place.items() if c == crawl)
            assert totals.waiting == mine["waiting"]
            assert totals.leased == mine["leased"]
            assert totals.later == mine["later"]
            assert totals.overflow == mine["overflow"]
            again = self.again[crawl]
            assert totals.finished == mine["final"] + again
            assert totals.admitted == sum(mine.values()) + again
            assert totals.parked == self.parks[crawl]
            assert (totals.open == 0) == (mine["final"] == sum(mine.values()))
            for kind, wanted in (("z", False), ("y", True)):
                found = [int(fp) for k, v in dump.items() if f"}}:{kind}:{crawl}:" in k for fp in v]
                expected = {
                    self.frontier.fingerprint(url)
                    for (c, url), at in self.place.items()
                    if c == crawl and (at == "overflow") == wanted
                }
                assert sorted(found) == sorted(expected)

    def due_sets(self, dump: dict[str, Any]) -> None:
        """Every host that may be served is in `due` of each crawl that waits there, at its time."""
        for (crawl, url), at in self.place.items():
            if at != "waiting":
                continue
            host = url.split("/")[2]
            p = self.frontier.partition_of(host)
            record = unpacked(dump[f"gc:{{{p}}}:h:{host}"])
            due = dict(dump.get(f"gc:{{{p}}}:due:{crawl}", []))
            if int(record.get("busy", 0)) == 0:
                times = max(float(record.get("next", 0)), float(record.get("till", 0)))
                times = max(times, float(record.get("last", 0)) + self.delay_ms(host))
                assert host in due, f"{host} waits in crawl {crawl} but is not due ever"
                assert due[host] <= max(times, self.now()) + 5


def run_machine(count: int, steps: int = 40) -> None:
    with memory_folder() as folder:
        FrontierMachine.memory = folder
        FrontierMachine.server = RedisServer(folder / "redis", None, "--appendonly", "no").start()
        try:
            FrontierMachine.TestCase.settings = settings(
                max_examples=count,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            FrontierMachine.TestCase().runTest()
        finally:
            FrontierMachine.server.stop()


def test_frontier_agrees_with_its_model() -> None:
    run_machine(examples(14, 1000))
