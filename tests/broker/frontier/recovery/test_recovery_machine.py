"""Recovery, roll-back, overflow, crashes and clock jumps during the work of two brokers.

Everything is real except for two things: the test sets the time, and each process runs one call at
a time (``tests/support/paced.py``), so that hypothesis draws the interleavings and the crashes.
After each step the data of Redis and SQL are compared with the properties of the design:
conservation, politeness in true time, fencing, end, accounts. At the end everything is healed, and
every URL of the log must become final in a bounded number of rounds.
"""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.recovery.owner import mark_clean
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    CloseItem,
    ExtendItem,
    HostReport,
    ReconcileRequest,
    ReleaseItem,
)
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.paced import Pace
from tests.support.recovery_laws import PLANNED
from tests.support.recovery_world import (
    HOSTS,
    NEAR_MS,
    PATHS,
    STEPS,
    TTL_S,
    WHICH,
    Broker,
    World,
    calendar_now,
    shape_of,
    some,
    upkeep_now,
    url,
)
from tests.support.redis_dump import Copy
from tests.support.redis_server import RedisServer
from tests.support.turned import turned


class RecoveryMachine(World):
    """Two crawls (one with a delay, one with slots), two brokers, two workers, three hosts."""

    # -- paced work

    @rule(which=WHICH, steps=STEPS)
    def go_on(self, which: int, steps: int) -> None:
        for task in some(self.pace.living(), which):
            task.step(steps)

    @rule(which=WHICH)
    def die(self, which: int) -> None:
        """A process dies between two calls; the message under way, or its answer, is lost."""
        for task in some(self.pace.living(), which):
            self.kill(task)

    @rule(number=st.sampled_from([0, 1]))
    def restart_broker(self, number: int) -> None:
        old = self.brokers[number]
        for task in self.pace.living():
            if task.owner is old or (task.name == "refill" and self.job_of(old, task)):
                task.kill()
        try:
            self.brokers[number] = Broker(self)
        except Unavailable:
            return  # the other broker is opening the node: this one is started again later
        old.node.close()

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
        self.give(crawl, found, force, broker, steps)

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

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]),
        outcome=st.sampled_from(
            ["page", "page", "page", "gone", "dead", "parked", "parked", "retry", "same"]
        ),
        steps=STEPS,
    )  # fmt: skip
    def settle(self, which: int, broker: int, outcome: str, steps: int) -> None:
        """Commit, admit and finish for a session that may have ended long ago."""
        for held in some(self.fetching(), which):
            (task,) = some(held.session.tasks, which // 7)
            self.settling(broker, held, task.number, outcome, steps)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), block=st.sampled_from([0.0, 0.0, 300.0]),
        release=st.booleans(), steps=STEPS,
    )  # fmt: skip
    def close(self, which: int, broker: int, block: float, release: bool, steps: int) -> None:
        """The fetching of a session ends now; its close is sent in time or late."""
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
        """A message that was sent once comes again, through either broker."""
        for item in some(self.sent, which):
            self.work("repeat", 999, partial(self.deliver, broker, item))

    @rule(broker=st.sampled_from([0, 1]), worker=st.sampled_from("vw"), steps=STEPS)
    def restart_worker(self, broker: int, worker: str, steps: int) -> None:
        self.incarnation[worker] += 1
        now = self.pace.now_ms()
        for held in self.held:
            if held.worker == worker:  # the server may still be busy with its last request
                held.stop(now, at_once=False)
        request = ReconcileRequest(
            worker=worker, incarnation=self.incarnation[worker], sequence=self.sequence[worker],
            dead=tuple(range(self.incarnation[worker])),
        )  # fmt: skip
        at = self.brokers[broker]
        self.work("reconcile", steps, lambda: at.frontier.reconcile(request), at)

    # -- people

    @rule(
        crawl=st.sampled_from([1, 2]), host=st.integers(0, 2), path=st.integers(0, PATHS - 1),
        everything=st.sampled_from([False] * 7 + [True]), broker=st.sampled_from([0, 1]),
        steps=STEPS,
    )  # fmt: skip
    def release_parked(
        self, crawl: int, host: int, path: int, everything: bool, broker: int, steps: int
    ) -> None:
        shape = "" if everything else shape_of(url(host, path))
        self.let_go(crawl, shape, broker, steps)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), first=st.sampled_from([1, 2, 3, 999]),
        then=st.sampled_from([1, 2, 3, 999]), lost=st.sampled_from([True, False]),
    )  # fmt: skip
    def park_amid_a_release(
        self, which: int, broker: int, first: int, then: int, lost: bool
    ) -> None:
        """A worker parks a URL of a shape that is being released; if ``lost``, Redis goes back to
        its state from before that."""
        for held in some(self.fetching(), which):
            (task,) = some(held.session.tasks, which // 7)
            self.copy()
            parking = self.settling(broker, held, task.number, "parked", first)
            self.let_go(held.session.crawl, shape_of(task.url), 1 - broker, then)
            parking.step(then)
            if lost:
                self.roll_back(0, False)
                self.reopened(broker)

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
        """Run upkeep: pending batches, two scans, and perhaps the end of a crawl."""
        at = self.brokers[broker]

        def step() -> None:
            upkeep_now(at)
            upkeep_now(at)

        self.work("upkeep", steps, step, at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def maintain(self, broker: int, steps: int) -> None:
        at = self.brokers[broker]
        self.work("maintain", steps, lambda: self.maintain_now(at), at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def refill(self, broker: int, steps: int) -> None:
        at = self.brokers[broker]
        self.work("refill", steps, lambda: self.refill_now(at), at)

    @rule(broker=st.sampled_from([0, 1]), days=st.sampled_from([0, 0, 2]), steps=STEPS)
    def ask_again(self, broker: int, days: int, steps: int) -> None:
        """A period begins, and due pages are queued."""
        self.begin_period(days)
        at = self.brokers[broker]
        self.work("tell", 999, lambda: at.frontier.put_crawl(self.store.crawl(PLANNED)), at)
        self.work("calendar", steps, partial(calendar_now, at), at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def go_on_asking(self, broker: int, steps: int) -> None:
        at = self.brokers[broker]
        self.work("calendar", steps, partial(calendar_now, at), at)

    @rule(broker=st.sampled_from([0, 1]), steps=STEPS)
    def recover(self, broker: int, steps: int) -> None:
        """The next caller of the node finds it restarted, or its replay unfinished."""
        at = self.brokers[broker]
        self.work("recover", steps, lambda: at.frontier.recovery.reopen(at.node), at)

    @rule(
        crawl=st.sampled_from([1, 2]), broker=st.sampled_from([0, 1]), pause=st.booleans(),
        steps=STEPS,
    )  # fmt: skip
    def pause(self, crawl: int, broker: int, pause: bool, steps: int) -> None:
        """The store has the new state; the node gets it later, or never."""
        known = self.store.crawl(crawl)
        self.said.append(known)
        if known.state == "done":
            return
        changed = self.store.set_state(crawl, "paused" if pause else "active")
        (self.paused.add if pause else self.paused.discard)(crawl)
        at = self.brokers[broker]
        self.work("pause", steps, lambda: at.frontier.put_crawl(changed), at)

    @rule(which=WHICH, broker=st.sampled_from([0, 1]), steps=STEPS)
    def tell_late(self, which: int, broker: int, steps: int) -> None:
        """A process reads a row before a change, and sends it after the change, or to a node that
        forgot the change."""
        at = self.brokers[broker]
        for crawl in some(self.said[-6:], which):
            self.work("tell", steps, partial(at.frontier.put_crawl, crawl), at)

    # -- faults of Redis and of time

    @rule()
    def copy(self) -> None:
        self.copies = [*self.copies[-4:], Copy.of(self.plain, self.shift)]

    @rule(which=WHICH, nothing=st.sampled_from([False, False, False, True]))
    def roll_back(self, which: int, nothing: bool) -> None:
        """Redis comes back in an earlier state, or empty.

        The test sets ``run`` in the owner record to another value than that of the running server:
        this looks as if another process had come.
        """
        if nothing or not self.copies:
            self.plain.flushall()
            return
        (copy,) = some(self.copies, which)
        copy.put_back(self.plain)
        self.move_clock(self.shift - copy.shift, silent=True)
        self.another_process()

    @rule()
    def restart_redis(self) -> None:
        """Redis is killed and started again, and loses nothing."""
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

    @rule(seconds=st.sampled_from([0.5, 3.5, 12.0, 31.0, 70.0, 400.0]), heard=st.booleans())
    def time_passes(self, seconds: float, heard: bool) -> None:
        """If ``heard``, brokers call during this time; otherwise it is an outage."""
        self.pass_time(seconds, heard=heard)

    @rule(seconds=st.sampled_from([3600, -3600, 1.5, -1.5, 0.3]))
    def clock_jumps(self, seconds: float) -> None:
        """The clock of Redis' machine is set; other clocks are not. To a script a large jump looks
        like an outage, and a small one like a late call.

        Brokers that expect another time notice it. A broker that has just started, or has just
        found the node restarted, expects no time: it cannot tell a jump from time that passed. So
        here each broker has called the node before, and one calls it next.
        """
        for at in self.brokers:
            self.work("look", 999, partial(at.frontier.host, HOSTS[0]), at)
            known = self.raw.hget(keys.OWNER, "jumps")
            clock = at.node.clock
            if clock._expected is None or self.owed() or int(known or 0) != clock.jumps:
                return
        self.jumped += seconds * 1000
        self.move_clock(seconds * 1000, silent=True)
        for at in (*self.brokers, self.brokers[0]):  # one of them has the duty of the clock
            self.work("look", 999, partial(at.frontier.host, HOSTS[0]), at)

    # -- moves that are likelier together than by chance

    @rule(
        broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]), order=st.booleans(),
        after=st.sampled_from([0.0, 12.0, 29.0, 31.0]),
    )  # fmt: skip
    def forget_sessions(self, broker: int, p: int, order: bool, after: float) -> None:
        """Leases are forgotten, and the hosts are leased again while they may still be fetched."""
        self.reopened(broker)
        self.copy()
        crawls = [1, 2] if order else [2, 1]
        self.lease(int(order), broker, "v", p, 3, 2, False, 999)
        self.roll_back(0, False)
        self.reopened(broker)
        self.time_passes(after, True)
        self.work("maintain", 999, lambda: self.maintain_now(self.brokers[broker]))
        self.lease(crawls[0], broker, "w", p, 3, 2, False, 999)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]),
        close=st.booleans(), copy=st.booleans(), steps=STEPS,
    )  # fmt: skip
    def crawl_on(
        self, which: int, broker: int, p: int, close: bool, copy: bool, steps: int
    ) -> None:
        """The usual work of workers; the last message may be on its way for long."""
        at = self.brokers[broker]
        self.reopened(broker)
        self.time_passes(31.0, True)
        self.work("maintain", 999, lambda: self.maintain_now(at), at)
        self.work("refill", 999, lambda: self.refill_now(at), at)
        known = len(self.held)
        self.lease(which, broker, "vw"[which % 2], p, 3, 1 + which % 4, False, 999)
        if copy:
            self.copy()
        for held in self.held[known:]:
            for task in held.session.tasks:
                self.settling(broker, held, task.number, "page", steps)
            if close:
                self.close(0, broker, 0.0, False, 999)

    @rule(
        which=WHICH, broker=st.sampled_from([0, 1]), before=st.sampled_from([0, 4, 10, 12]),
        after=st.sampled_from([0, 1, 12]), lost=st.booleans(),
    )  # fmt: skip
    def admit_late(self, which: int, broker: int, before: int, after: int, lost: bool) -> None:
        """Seeds and a page's links are admitted some steps of the clock after their rows."""
        self.reopened(broker)
        self.moment += 1
        at, found = self.brokers[broker], [(which % 3, PATHS + self.moment)]
        self.give(1 + which % 2, found, False, broker, 2)
        under_way = self.pace.living()[-1:]
        for held in some(self.fetching(), which):
            (task,) = some(held.session.tasks, which // 7)
            under_way.append(self.settling(broker, held, task.number, "page", 2))
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
        noted=st.booleans(),
    )  # fmt: skip
    def roll_back_amid_overflow(
        self, crawl: int, host: int, broker: int, first: int, then: int, steps: int,
        before: int, after: int, noted: bool,
    ) -> None:  # fmt: skip
        """Admit more URLs than there is room for; some are brought back, and forgotten on the way.

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
        again = self.work("refill", first, lambda: self.refill_now(at), at)
        while not (noted or again.over or again.before == "overflow_taken"):
            again.step(1)  # the node has some rows, and the store does not know that yet
        self.holds()
        self.roll_back(0, False)
        self.reopened(1 - broker)
        self.holds()
        for task in self.pace.living():
            if task.name == "refill":
                task.step(then)

    @rule(
        broker=st.sampled_from([0, 1]), first=st.sampled_from([1, 3, 4, 5, 6, 7, 999]),
        lost=st.sampled_from(["", "new", "before", "after", "all"]), forced=st.booleans(),
    )  # fmt: skip
    def forget_what_is_on_its_way(self, broker: int, first: int, lost: str, forced: bool) -> None:
        """Stored pages are asked for again. Then Redis forgets their tasks, or the broker dies
        between queueing and noting; another broker asks for them again, and a person forces some.
        If ``lost`` is "new", a copy comes back in which these pages wait as new."""
        at = self.brokers[broker]
        if lost == "new":
            self.copy()
        self.crawl_on(1, broker, 0, True, False, 999)
        self.begin_period(0)
        self.work("tell", 999, lambda: at.frontier.put_crawl(self.store.crawl(PLANNED)), at)
        if lost == "before":
            self.copy()
        asking = self.work("calendar", first, partial(calendar_now, at), at)
        self.holds()
        if lost == "after":
            self.copy()
            self.crawl_on(3, broker, 0, True, False, 999)
        if forced:
            self.give(PLANNED, [(n % 3, n) for n in range(3)], True, 1 - broker, 999)
        if lost:
            self.roll_back(0, lost == "all")
            self.reopened(1 - broker)
        elif not asking.over:
            self.kill(asking)
        self.holds()
        self.work("calendar", 999, partial(calendar_now, self.brokers[1 - broker]))
        asking.step(999)

    @rule(broker=st.sampled_from([0, 1]), p=st.sampled_from([0, 1]), steps=STEPS)
    def forget_a_block(self, broker: int, p: int, steps: int) -> None:
        """Redis forgets a block of a host, and a slow replay may not have put it in again yet."""
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
        self.work("maintain", 999, lambda: self.maintain_now(at), at)
        self.lease(1, broker, "w", p, 3, 2, False, 999)


def run_machine(count: int, steps: int = 40) -> None:
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


def test_no_url_is_lost_in_any_order_of_crashes_data_losses_and_calls() -> None:
    run_machine(examples(7, 500))
