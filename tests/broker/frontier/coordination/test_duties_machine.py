"""Duties, versions, quotas and debts: two brokers that stand still between any two calls.

There are two real Redis nodes and a real store. A holder of a duty makes one call at a time.
Another broker takes the duty meanwhile; then the first one goes on with its next write, which must
change nothing. Between these calls crawls are seeded, paused, resumed, deleted, made again and
finished, and nodes hear of these changes in any order; nodes are cut off while pages with links to
them are committed. When all is calm again, nothing may be lost, each crawl must have ended, none of
them early, and no page may be stored beyond a limit.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes import ring as ring_module
from greencrawl.broker.frontier.scripts.totals import Scan
from greencrawl.broker.tasks import purge as purge_module
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    STOPPED,
    STOPPING,
    STOPPING_NOW,
    Admission,
    Crawl,
    CrawlOptions,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import DUTY_SECONDS, MARGIN
from tests.support.duty_brokers import WRITES
from tests.support.duty_laws import HOSTS, JOBS, LIMITED, NAMES, PASSING, PLAIN
from tests.support.duty_world import (
    BETWEEN,
    COUNTS,
    EITHER,
    LATE,
    SEEDS,
    STEPS,
    WHICH,
    World,
    seeds_of,
    some,
)
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.paced import Pace, Paced
from tests.support.redis_server import RedisServer
from tests.support.turned import turned

LIKELY = [
    (names.UPKEEP, "seeds_admitted"), (names.UPKEEP, "eval"), (names.UPKEEP, "redis"),
    (names.PURGE, "redis"), (names.REFILL, "redis"),
]  # fmt: skip
"""A duty, and the calls before which its holder stands still."""


class DutiesMachine(World):
    """Three crawls, two brokers and workers on two nodes."""

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

    @rule(
        stalls=st.lists(
            st.tuples(
                st.sampled_from(JOBS), st.sampled_from([WRITES, {"redis"}, {"eval"}]), COUNTS
            ),
            min_size=2,
            max_size=4,
        ),
        broker=EITHER,
        which=WHICH,
        other=st.sampled_from([1, 2, 2, 3, 4, 5, 999]),
    )
    def stand_still(
        self, stalls: list[tuple[str, set[str], int]], broker: int, which: int, other: int
    ) -> None:
        """A holder believes that it still has a duty which another has taken since, and goes on."""
        for name, calls, count in stalls:
            self.stall(name, calls, count, broker, which, other)

    @rule(
        stall=st.sampled_from(LIKELY),
        count=st.sampled_from([1, 1, 2, 3]),
        broker=EITHER,
        which=WHICH,
        other=st.sampled_from([1, 2, 3, 999]),
    )
    def stand_still_before_a_node(
        self, stall: tuple[str, str], count: int, broker: int, which: int, other: int
    ) -> None:
        """A holder stands still before a fenced call of a node, or before it marks a batch of seeds
        as admitted."""
        name, call = stall
        self.stall(name, {call}, count, broker, which | 1, other)

    def stall(
        self, name: str, calls: set[str], count: int, broker: int, which: int, other: int
    ) -> None:
        self.end_all(name)
        self.something_to_do(name, which)
        self.pass_time(DUTY_SECONDS + 1)
        task = self.job(name, broker, 1)
        self.fences.advance_to(task, calls, count)
        self.pass_time(DUTY_SECONDS + 1)
        taker = self.job(name, 1 - broker, 1)
        self.fences.advance_to(taker, {"redis", *WRITES}, other)
        self.fences.advance(task, 999)
        self.job(name, broker, 999)  # it may not free a duty that it no longer has
        self.holds()

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
        elif name == names.UPKEEP and which % 4:
            for crawl in self.known(PLAIN):
                self.store.add_seeds(crawl.id, self.fresh(HOSTS[which % 4], 2))
        elif which % 3:
            self.settle_all(1)

    @rule(which=WHICH, broker=EITHER)
    def settle_what_another_drops(self, which: int, broker: int) -> None:
        """The broker that deletes a host stops just before it settles the tasks that wait there;
        another one starts again."""
        self.end_all(names.PURGE)
        self.mend()
        self.pass_time(DUTY_SECONDS + 1)
        self.job(names.PURGE, broker, 999)  # finish what other brokers left
        for crawl in self.known(PLAIN):
            self.give(PLAIN, self.fresh(HOSTS[which % 4], 6), broker, 999)
            self.brokers[broker].service.purge(crawl, HOSTS[which % 4])
        self.pass_time(DUTY_SECONDS + 1)
        task = self.job(names.PURGE, broker, 1)
        self.fences.advance_to(task, {"commit"}, 1)
        self.pass_time(DUTY_SECONDS + 1)
        taker = self.job(names.PURGE, 1 - broker, 1)
        self.fences.advance_to(taker, {"redis", *WRITES}, 1)  # it has only looked
        self.fences.advance(task, 999)

    def end_all(self, name: str) -> None:
        """Kill the processes that do the work of this duty."""
        for task in self.pace.living():
            if task.name == name:
                self.kill(task)

    @rule(broker=EITHER)
    def restart(self, broker: int) -> None:
        """One broker stops in order and gives its duties back; another one starts."""
        old = self.brokers[broker]
        try:
            new = self.made(broker)
        except Unavailable:
            return  # the other broker is opening that node: it starts again later
        for task in self.pace.living():
            if task.owner is old:
                task.kill()
        self.brokers[broker] = new
        held = {name for name in JOBS if old.duties.get(name)}
        old.stop()
        for name in held:  # free at once
            assert self.brokers[broker].duties.take(name), f"{name} was not given back"

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    # -- crawls

    @rule(
        name=st.sampled_from(NAMES), which=WHICH, count=st.integers(1, 6), broker=EITHER,
        steps=STEPS,
    )  # fmt: skip
    def seed(self, name: str, which: int, count: int, broker: int, steps: int) -> None:
        self.give(name, seeds_of(which, count), broker, steps)

    @rule(name=st.sampled_from(NAMES), pause=st.booleans(), broker=EITHER, steps=STEPS)
    def pause(self, name: str, pause: bool, broker: int, steps: int) -> None:
        """The store has the new state; partitions get it later, or never."""
        for crawl in self.known(name):
            self.said.append(crawl)
            if (crawl.ended and (pause or crawl.finished)) or (crawl.stopping and pause):
                return
            changed = self.store.set_state(crawl.id, "paused" if pause else "active")
            (self.paused.add if pause else self.paused.discard)(crawl.id)
            self.stopped.discard(crawl.id)
            self.tell(changed, broker, steps)

    def resume(self, name: str, broker: int) -> None:
        for crawl in self.known(name):
            if crawl.state == "paused" or crawl.reason == STOPPED:
                self.pause(name, False, broker, 999)

    @rule(name=st.sampled_from(NAMES), now=st.booleans(), broker=EITHER, steps=STEPS)
    def stop(self, name: str, now: bool, broker: int, steps: int) -> None:
        """The store has the new state; partitions get it later, or never. The holder of the duty
        ends the crawl."""
        for crawl in self.known(name):
            self.said.append(crawl)
            if crawl.state == "done" and not crawl.finished:
                return
            changed = self.store.set_state(crawl.id, "paused", STOPPING_NOW if now else STOPPING)
            self.stopped.add(crawl.id)
            self.paused.discard(crawl.id)
            self.tell(changed, broker, steps)

    @rule(name=st.sampled_from(NAMES), which=WHICH, broker=EITHER, calls=BETWEEN, late=LATE)
    def stop_before_something_comes(
        self, name: str, which: int, broker: int, calls: set[str], late: int
    ) -> None:
        """The crawl is about to be set done when a person acts, or a late page comes."""
        self.mend()
        self.resume(name, broker)
        self.seed(name, which, 3, broker, 999)
        pages = self.fetched(which, broker, which % 2, 1, 1, True)
        self.stop(name, False, broker, 999)
        if which % 3:
            for page in pages:
                self.fences.advance(page, 999)
        task = self.job(names.UPKEEP, broker, 1)
        self.fences.advance_to(task, calls, 1)
        if which % 4 < 2:
            self.give(name, self.fresh(HOSTS[which % 4], 2), 1 - broker, late)
        elif which % 4 == 2:
            self.resume(name, 1 - broker)
        for page in pages:
            self.fences.advance(page, 999)
        self.fences.advance(task, 999)
        self.holds()

    @rule(which=WHICH, broker=EITHER, steps=STEPS)
    def tell_late(self, which: int, broker: int, steps: int) -> None:
        """A process reads a row before a change, and sends it after the change."""
        for crawl in some(self.said[-6:], which):
            self.tell(crawl, broker, steps)

    @rule(which=WHICH, broker=EITHER)
    def look_late(self, which: int, broker: int) -> None:
        for crawl in some(self.said[-6:], which):
            self.look(crawl, broker)

    def look(self, crawl: Crawl, broker: int) -> None:
        """A scan with an old row, or before all nodes have got what they missed, does not count."""
        known = [int(self.record(p, crawl.id).get("ver", 0)) for p in (0, 1)]
        paid = [p for p in (0, 1) if self.raw[p].hexists(keys.OWNER, "debt")]
        look = partial(self.brokers[broker].frontier.look, crawl)
        scan = self.work("look", 999, look).result
        if set(known) != {crawl.version}:
            assert not isinstance(scan, Scan), f"{crawl.version} was looked at in {known}"
        assert not (paid and isinstance(scan, Scan)), f"{paid} were being told what they missed"

    @rule(broker=EITHER)
    def delete(self, broker: int) -> None:
        """One crawl is deleted, or made again under its name."""
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
            if crawl.state == "done":  # a person who raises a limit also resumes the crawl
                self.store.set_state(crawl.id, "active")
                self.stopped.discard(crawl.id)
            self.tell(self.store.crawl(crawl.id), broker, steps)

    # -- nodes that are away

    @rule(who=st.sampled_from([0, 1, None]), node=EITHER)
    def cut(self, who: int | None, node: int) -> None:
        """A broker, or the workers, cannot reach a node."""
        if who is None:
            self.workers.nodes[node].breaker.since_ms = 1
        else:
            self.brokers[who].cut(node)

    @rule()
    def mend(self) -> None:
        self.mend_links()

    # -- nodes that come back as they were once

    @rule(node=EITHER, broker=EITHER, which=WHICH, count=st.integers(1, 6), steps=STEPS)
    def lose_and_recover(self, node: int, broker: int, which: int, count: int, steps: int) -> None:
        """A node comes back as an older copy: later tasks and leases are lost, and old quotas come
        back."""
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
            return  # another broker is doing it
        for crawl in self.known(LIMITED):
            assert not self.record(node, crawl.id).get("quota"), "a quota of before a loss counts"

    @rule(
        node=EITHER, broker=EITHER, which=WHICH, ticks=st.sampled_from([0, 12, 12]),
        steps=st.integers(3, 12), after=st.sampled_from([0, 12, 12]), late=st.booleans(),
    )  # fmt: skip
    def lose_what_was_paid(
        self, node: int, broker: int, which: int, ticks: int, steps: int, after: int, late: bool
    ) -> None:
        """A node gets what it missed, and loses it again."""
        ticker = None
        if late:
            ticker = self.come_to_owe_late(node, broker)
        else:
            self.come_to_owe(node, broker)
            self.tick(broker, ticks)
        self.pass_time(DUTY_SECONDS + 1)
        task = self.job(names.REPLAY, broker, steps)
        if which % 3:
            self.fences.advance_to(task, {"replay_links"}, 1)
        if ticker is not None and which % 2:
            self.fences.advance(ticker, 999)
        self.tick(broker, after)
        copy = self.copy(node)
        self.fences.advance(task, 999)
        if which % 4:
            self.lose(node, copy)
            self.recover(node, 1 - broker, 999)
        self.settle_all(1)

    @rule(node=EITHER, broker=EITHER, call=st.sampled_from(["replay_links", "eval", "end_replay"]))
    def owe_more(self, node: int, broker: int, call: str) -> None:
        """While a node gets what it missed, it misses more."""
        task = self.begin_to_pay(node, broker)
        self.fences.advance_to(task, {call}, 2 if call == "eval" else 1)
        for crawl in self.known(PLAIN):
            self.look(crawl, 1 - broker)
        self.tick(broker, 1)
        self.come_to_owe(node, broker)
        self.fences.advance(task, 999)
        self.settle_all(1)

    @rule(node=EITHER, broker=EITHER, ticks=st.integers(1, 3))
    def owe_more_and_die(self, node: int, broker: int, ticks: int) -> None:
        """The broker that gives a node what it missed dies, and the node has missed more since."""
        task = self.begin_to_pay(node, broker)
        self.fences.advance_to(task, {"replay_links"}, 1)
        self.tick(broker, ticks)
        self.come_to_owe(node, broker)
        self.kill(task)
        self.pass_time(DUTY_SECONDS + 1)
        self.job(names.REPLAY, 1 - broker, 999)

    @rule(
        node=EITHER,
        broker=EITHER,
        before=st.sampled_from([("eval", 1), ("eval", 2), ("end_replay", 1), ("end_replay", 1)]),
    )
    def pay_late(self, node: int, broker: int, before: tuple[str, int]) -> None:
        """The broker that pays a debt stops before it tells the node or the store that it begins,
        or that the debt is paid."""
        call, count = before
        first = before == ("eval", 1)
        task = self.begin_to_pay(node, broker)
        self.fences.advance_to(task, {call}, count)
        self.pass_time(DUTY_SECONDS + 1)
        taker = self.job(names.REPLAY, 1 - broker, 1)
        self.fences.advance_to(taker, {"eval" if call == "eval" else "begin_replay"}, 1)
        self.fences.advance(taker, 999 if first else int(call == "eval"))
        self.fences.advance(task, 999)
        self.fences.advance(taker, 999)

    @rule(name=st.sampled_from(NAMES), node=EITHER, broker=EITHER)
    def tell_in_vain(self, name: str, node: int, broker: int) -> None:
        """A node does not hear that a crawl is paused or resumed; it is told when it is back."""
        self.mend()
        self.recover(node, broker, 999)
        self.cut(broker, node)
        for crawl in self.known(name):
            self.pause(name, crawl.state != "paused", broker, 999)
        self.mend()
        self.end_all(names.REPLAY)
        self.pass_time(DUTY_SECONDS + 1)
        self.job(names.REPLAY, broker, 999)

    def begin_to_pay(self, node: int, broker: int) -> Paced:
        self.end_all(names.REPLAY)
        self.come_to_owe(node, broker)
        self.pass_time(DUTY_SECONDS + 1)
        return self.job(names.REPLAY, broker, 1)

    def come_to_owe(self, node: int, broker: int) -> None:
        """Pages are stored whose links cannot be sent to a node."""
        self.mend()
        self.resume(PLAIN, broker)
        self.recover(node, broker, 999)
        self.pass_time(31.0)
        self.work("maintain", 999, partial(self.maintain, self.brokers[broker], to_msgpack([1000])))
        self.moment += 1
        found = [Admission(f"http://{host}/{SEEDS + self.moment}") for host in HOSTS[1 - node :: 2]]
        self.give(PLAIN, found, broker, 999)
        self.cut(None, node)
        self.fetch(1, broker, 1 - node, 3, 999, True)
        self.mend()

    def come_to_owe_late(self, node: int, broker: int) -> Paced:
        """A page is stored, and only much later its link turns out to be undeliverable.

        Until then no broker can know of the debt. Return the job that writes the tick: it has just
        seen that there is no debt, and stops before it calls the node.
        """
        self.mend()
        self.recover(node, broker, 999)
        self.pass_time(31.0)
        self.work("maintain", 999, partial(self.maintain, self.brokers[broker], to_msgpack([1000])))
        self.moment += 1
        page = Admission(f"http://{HOSTS[node]}/s{self.moment}")  # its link leads to its own host
        self.give(PLAIN, [page], broker, 999)
        pages = self.fetched(1, broker, node, 3, 2, True)
        self.tick(broker, MARGIN + 2)
        ticker = self.tick(broker, 1, 1)
        self.fences.advance_to(ticker, {"redis"}, node + 1)
        self.cut(None, node)
        for one in pages:
            self.fences.advance(one, 999)
        self.mend()
        return ticker

    # -- workers

    @rule(
        which=WHICH, broker=EITHER, p=EITHER, most=st.integers(1, 3), steps=STEPS,
        page=st.sampled_from([True, True, True, False]),
    )  # fmt: skip
    def fetch(self, which: int, broker: int, p: int, most: int, steps: int, page: bool) -> None:
        """Sessions are opened; their results are sent much later, or never."""
        self.fetched(which, broker, p, most, steps, page)

    def fetched(
        self, which: int, broker: int, p: int, most: int, steps: int, page: bool
    ) -> list[Paced]:
        at = self.brokers[broker]
        known = len(self.held)
        self.work("lease", 999, partial(self.open, at, p, most, 1 + which % 4), at)
        return [
            self.deliver(broker, session, task.number, steps, page)
            for session in self.held[known:] for task in session.tasks
        ]  # fmt: skip

    @rule(which=WHICH, broker=EITHER, steps=STEPS, page=st.booleans())
    def commit_late(self, which: int, broker: int, steps: int, page: bool) -> None:
        """Act for a session that may have ended long ago, in a crawl that may be done or
        deleted."""
        for session in some(self.held[-12:], which):
            for task in session.tasks[:2]:
                self.deliver(broker, session, task.number, steps, page)

    # -- moves that are likelier together than by chance

    @rule(
        which=WHICH, broker=EITHER, calls=BETWEEN, count=COUNTS, late=LATE,
        comes=st.sampled_from(["seed", "log", "pause", "pause", "death", "death"]),
    )  # fmt: skip
    def end_meanwhile(
        self, which: int, broker: int, calls: set[str], count: int, comes: str, late: int
    ) -> None:
        """Something comes between the two scans that would find crawls finished."""
        self.end(which, broker, calls, count, comes, late)

    @rule(
        which=WHICH, broker=EITHER, calls=BETWEEN, count=COUNTS, late=LATE,
        comes=st.sampled_from(["page", "cut"]),
    )  # fmt: skip
    def end_before_a_page_comes(
        self, which: int, broker: int, calls: set[str], count: int, comes: str, late: int
    ) -> None:
        """A page comes between the two scans, from a worker that was fetching all the time."""
        self.end(which, broker, calls, count, comes, late)

    @rule(name=st.sampled_from(NAMES), which=WHICH, broker=EITHER)
    def come_before_it_is_shut(self, name: str, which: int, broker: int) -> None:
        """Two scans found nothing to do in a crawl; seeds or a late page come just before it is
        shut."""
        self.mend()
        self.resume(name, broker)
        self.moment += 1
        page = Admission(f"http://{HOSTS[which % 2]}/{SEEDS + self.moment}")
        self.give(name, [page], broker, 999)
        pages = self.fetched(which, broker, which % 2, 1, 1, True) if which % 3 == 0 else []
        self.pass_time(31.0)
        if not self.quiet(broker):
            return
        task = self.job(names.UPKEEP, broker, 1)
        self.fences.advance_to(task, {"shut"}, 1)
        for one in pages:
            self.fences.advance(one, 999)
        if not pages:
            for known in NAMES:
                self.give(known, self.fresh(HOSTS[which % 4], 1), 1 - broker, 999)
        self.fences.advance(task, 999)
        self.holds()

    @rule(node=EITHER, broker=EITHER)
    def owe_after_the_end(self, node: int, broker: int) -> None:
        """A page is stored when its crawl is done, and all of its links lead to a node that is
        away."""
        self.mend()
        self.resume(PLAIN, broker)
        self.moment += 1
        url = f"http://{HOSTS[1 - node]}/d{self.moment}"
        self.give(PLAIN, [Admission(url)], 0, 999)
        known = len(self.held)
        self.work("lease", 999, partial(self.open, self.brokers[broker], 1 - node, 1, 2))
        late_ones = [(one, task.number) for one in self.held[known:] for task in one.tasks]
        self.pass_time(31.0)
        if self.quiet(broker):
            self.job(names.UPKEEP, broker, 999)
        self.cut(None, node)
        for one in late_ones:
            self.deliver(1 - broker, *one, 999, True)
        self.holds()

    @rule(which=WHICH, broker=EITHER)
    def end_before_a_debt_comes(self, which: int, broker: int) -> None:
        """Before a crawl is set done, a page comes whose links all lead to a node that is away."""
        self.end(which, broker, {"set_state"}, 1, "debt", 999)

    @rule(which=WHICH, broker=EITHER, count=COUNTS)
    def end_before_an_old_word_comes(self, which: int, broker: int, count: int) -> None:
        """Before a crawl is set done, a process that read an old row says that the crawl is
        active."""
        self.end(which, broker, {"set_state"}, count, "word", 999)

    def end(
        self, which: int, broker: int, calls: set[str], count: int, comes: str, late: int
    ) -> None:
        self.mend()
        for name in NAMES:
            self.resume(name, broker)
            self.moment += 1
            # A page leads to both nodes, or only to its own: then no other node is told of its
            # links.
            path = f"s{self.moment}" if which // 2 % 2 else str(SEEDS + self.moment)
            hosts = HOSTS[:2]
            if comes == "debt":
                path, hosts = f"d{self.moment}", [HOSTS[1 - which % 2]]
            self.give(name, [Admission(f"http://{host}/{path}") for host in hosts], 0, 999)
        known = len(self.held)
        for p in (0, 1):
            self.work("lease", 999, partial(self.open, self.brokers[broker], p, 1, 2))
        late_ones = [(one, task.number) for one in self.held[known:] for task in one.tasks]
        tasks = []
        if which % 2 or comes == "word":  # they look at the clock in time, and commit late
            tasks = [self.deliver(1 - broker, *one, 1, True) for one in late_ones]
        self.pass_time(31.0)  # the leases of these tasks end, and others take the tasks next
        if not self.quiet(broker):
            return
        rows = self.store.crawls()
        task = self.job(names.UPKEEP, broker, 1)
        self.fences.advance_to(task, calls, 1 + (count == 2) if "set_state" in calls else count)
        for name in NAMES:
            if comes in ("seed", "log"):
                steps = late if comes == "seed" else 2  # as far as the log, and no further
                self.give(name, self.fresh(HOSTS[which % 4], 2), 1 - broker, steps)
            elif comes == "pause":
                self.pause(name, True, 1 - broker, late)
        if comes in ("cut", "debt"):
            self.cut(None, which % 2)
        if comes == "word":  # the state of a moment ago
            for crawl in rows:
                self.tell(crawl, 1 - broker, 999)
        if comes in ("page", "cut", "debt", "word"):
            if not tasks:
                tasks = [self.deliver(1 - broker, *one, 1, True) for one in late_ones]
            for one in tasks:
                self.fences.advance(one, 999 if comes == "word" else late)
        elif comes == "death":
            task.kill()
            task = self.job(names.UPKEEP, broker, 1)
        self.fences.advance(task, 999)
        self.holds()
        self.none_is_shut()
        self.job(names.UPKEEP, broker, 999)
        self.holds()
        self.give(NAMES[which % 3], self.fresh(HOSTS[which % 4], 1), broker, late)

    @rule(
        node=EITHER, broker=EITHER, told=st.sampled_from([0, 0, 0, 2, 5]), seed=st.booleans(),
        late=st.sampled_from([999, 999, 2]),
    )  # fmt: skip
    def take_in_before_told(self, node: int, broker: int, told: int, seed: bool, late: int) -> None:
        """A crawl is done; a node that came back in an older state admits something for it."""
        self.mend()
        self.recover(node, broker, 999)
        self.moment += 1
        self.give(PLAIN, [Admission(f"http://{HOSTS[node]}/s{self.moment}")], broker, 999)
        known = len(self.held)
        self.work("lease", 999, partial(self.open, self.brokers[broker], node, 1, 2))
        tasks = [
            self.deliver(broker, one, task.number, 1, True)  # it commits late
            for one in self.held[known:] for task in one.tasks
        ]  # fmt: skip
        copy = self.copy(node)
        self.pass_time(31.0)
        if self.quiet(broker):
            self.job(names.UPKEEP, broker, 999)
        self.lose(node, copy)
        self.recover(node, broker, told)
        if seed:
            self.give(PLAIN, self.fresh(HOSTS[node], 1), 1 - broker, late)
        else:
            for one in tasks:
                self.fences.advance(one, late)
        self.recover(node, broker, 999)

    def quiet(self, broker: int) -> bool:
        """Return whether everything is fetched, and a broker has scanned once since and found
        nothing to do."""
        for seconds in (0.0, 31.0, 31.0):  # hosts may rest
            self.pass_time(seconds)
            self.settle_all(1, page=False)
            self.job(names.REPLAY, broker, 999)
            self.job(names.UPKEEP, broker, 999)
            if self.brokers[broker].upkeep._quiet:
                return True
        return False


def run_machine(count: int, steps: int = 15) -> None:
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


def test_a_holder_whose_duty_passed_on_changes_nothing_and_no_crawl_ends_too_soon() -> None:
    run_machine(examples(7, 500))
