"""A Redis that comes back older, empty or elsewhere, and a store that lost data: recovery by a
broker."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from greencrawl.broker.frontier import Admitted, Frontier, Mode
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.failures import Fenced
from greencrawl.broker.frontier.recovery.job import Job
from greencrawl.broker.frontier.recovery.opening import Recovery, StoreLostData
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    Admission,
    Commit,
    Dead,
    Done,
    Final,
    FinishItem,
    HostPatch,
    StoredPage,
    TaskKind,
)
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN, Store
from tests.broker.frontier.test_frontier import (
    Worker,
    _lease_or_nothing,
    close,
    finish_all,
    new_crawl,
    until,
    urls,
)
from tests.support.redis_server import RedisServer


class Rig:
    """A store, a Redis and a broker's frontier; only :meth:`tick` advances the store's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # "always": a copy of the disk has everything that was answered before it.
        self.server = RedisServer(folder / "redis", None, "--appendfsync", "always").start()
        self.store = self.open_store()
        self.frontier = self.broker()
        self.crawl = new_crawl(self.frontier, self.store, delay=0)

    def open_store(self) -> Store:
        return open_store(f"sqlite:///{self.folder / 'c.sqlite'}")

    def broker(self, *addresses: str, **options: Any) -> Frontier:
        given = {"partitions": 8, "lease_seconds": 1, "request_seconds": 0.2, **options}
        at = addresses or (self.server.url,)
        return Frontier(at, self.store, create=True, **given)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.frontier.tick(self.store.clock())
            self.store.tick()

    def saved(self) -> Path:
        """Return a copy of the present disk of Redis."""
        copy = self.folder / f"copy{time.monotonic_ns()}"
        shutil.copytree(self.server.folder, copy)
        return copy

    def put_back(self, copy: Path) -> None:
        """Kill Redis, and start it with an older disk."""
        self.server.kill()
        shutil.rmtree(self.server.folder)
        shutil.copytree(copy, self.server.folder)
        self.server.start()

    def seed(self, *names: str, force: bool = False) -> int:
        items = [Admission(f"http://{name}") for name in names]
        batch = self.store.add_seeds(self.crawl.id, items, force=force)
        mode = Mode.FORCE if force else Mode.NEW
        admitted = self.frontier.admit(self.crawl.id, items, mode=mode, batch=batch)
        assert self.store.seeds_admitted(batch, admitted.tick, admitted.epochs)
        return batch

    def page(self, name: str, *links: str, status: int = 200, body: bytes = b"12345") -> StoredPage:
        url = f"http://{name}"
        return StoredPage(
            crawl=self.crawl.id, fingerprint=self.frontier.fingerprint(url), url=url,
            status=status, fetched_ms=1000, body=body,
            links=[Admission(f"http://{link}", depth=1) for link in links],
        )  # fmt: skip

    def store_page(self, name: str, *links: str, **more: Any) -> None:
        """Store a page and admit its links, as a worker does, but do not finish its task."""
        page = self.page(name, *links, **more)
        stamp = self.store.commit(Commit([page]))
        self.frontier.admit(self.crawl.id, page.links, stamp=stamp)

    def refilled(self, frontier: Frontier | None = None) -> Any:
        """Wait until a scan counts again; return the counters of the crawl."""
        at = frontier or self.frontier
        return until(lambda: _quietly(lambda: at.scan(self.crawl.id)), 30)

    def waiting(self) -> list[str]:
        """Wait until a worker may lease; finish the URLs that it leases, and return them."""
        worker, found = Worker(self.frontier), []
        sessions = until(lambda: _lease_or_nothing(worker), 10)
        while sessions:
            for session in sessions:
                found += [task.url.removeprefix("http://") for task in session.tasks]
                finish_all(self.frontier, session)
                close(self.frontier, session)
            sessions = worker.lease(wait=0.2)
        return sorted(found)

    def stop(self) -> None:
        self.frontier.stop()
        self.store.close()
        self.server.stop()


def _quietly(ask: Any) -> Any:
    try:
        return ask()
    except Unavailable:
        return None


@pytest.fixture(autouse=True)
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was taken over rests only as long as the sessions that it forgot may last."""
    monkeypatch.setattr(StoreContact, "margin_ms", 0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


# -- the window


def test_a_redis_that_came_back_older_gets_only_the_rows_that_it_missed(rig: Rig) -> None:
    rig.seed("old.example/a", "old.example/b", "done.example/")
    for _ in range(30):
        rig.store_page("old.example/a", "old.example/b")
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.tick(2)
    rig.store_page("old.example/b", "new.example/x", "old.example/a")
    rig.store.commit(Commit(finals=[_final(rig, "done.example/", "gone")]))
    rig.seed("seed.example/")
    rig.put_back(copy)
    totals = rig.refilled()
    # Redis may be ready a moment before this process notices
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    report = rig.frontier.repairs()[0]
    assert not report.everything
    assert report.done == report.total == 2 + 1 + 1, "a page, a final state and a batch"
    assert totals.admitted == 5, "the three of before, the link and the seed that were forgotten"
    assert {"new.example/x", "seed.example/"} <= set(rig.waiting())


def test_a_crawl_deleted_after_the_copy_is_removed_from_a_redis_that_came_back_older(
    rig: Rig,
) -> None:
    other = new_crawl(rig.frontier, rig.store, "other", delay=0)
    rig.frontier.admit(other.id, urls("h.example", 50))
    rig.seed("h.example/a")
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.frontier.drop_crawl(other.id)
    rig.store.delete_crawl(other.id)
    rig.put_back(copy)
    assert rig.refilled().waiting == 1
    left = [name for name in rig.server.client.keys("gc:*") if f":{other.id}:" in name]
    assert left == [], "it would take memory for ever"
    held = sum(rig.frontier.partition_memory(p).used for p in rig.frontier.partitions)
    rig.frontier.drop_crawl(rig.crawl.id)
    assert held > 0 == sum(rig.frontier.partition_memory(p).used for p in rig.frontier.partitions)


def test_tasks_finished_in_the_window_count_as_finished_again(rig: Rig) -> None:
    rig.seed("h.example/")
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.tick(2)
    rig.seed("h.example/new", "h.example/dead", "h.example/gone")
    rig.store_page("h.example/new")
    finals = [_final(rig, f"h.example/{state}", state) for state in ("dead", "gone")]
    rig.store.commit(Commit(finals=finals))
    rig.put_back(copy)
    totals = rig.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (4, 3, 1)
    assert (totals.stored, totals.dead, totals.bytes) == (1, 1, 5)
    assert rig.waiting() == ["h.example/"]


def test_forced_seeds_of_the_window_are_queued_again_exactly_once(rig: Rig) -> None:
    rig.seed("h.example/a", "h.example/b")
    assert rig.waiting() == ["h.example/a", "h.example/b"]
    rig.tick(MARGIN + 3)
    rig.seed("h.example/a", force=True)
    copy = rig.saved()
    rig.seed("h.example/b", force=True)
    rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/a", "h.example/b"]


def test_forced_seeds_that_were_never_fetched_are_queued_once_however_many_they_are(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.replay.CHUNK", 1)
    rig.seed("h.example/a", "h.example/b", force=True)
    rig.server.client.flushall()
    assert rig.refilled().waiting == 2


@pytest.mark.parametrize("lost", ["since a copy", "all"])
def test_a_url_that_several_batches_force_is_queued_once_in_a_recovery(rig: Rig, lost: str) -> None:
    """A crawl that begins again forces its seeds in each period."""
    rig.seed("h.example/a", "h.example/b")
    assert rig.waiting() == ["h.example/a", "h.example/b"]
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.seed("h.example/a", "h.example/b", force=True)
    rig.seed("h.example/a", force=True)
    rig.seed("h.example/a", "h.example/b", force=True)
    if lost == "all":
        rig.server.client.flushall()
    else:
        rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/a", "h.example/b"]


def test_a_url_that_several_batches_force_is_given_up_once_after_a_recovery(rig: Rig) -> None:
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    for _ in range(2):
        rig.seed("h.example/a", force=True)
    rig.put_back(copy)
    rig.refilled()
    (session,) = until(lambda: _lease_or_nothing(Worker(rig.frontier)), 10)
    dead = Dead(kind="timeout")
    item = FinishItem(session=session.session, token=session.token, task=1, outcome=dead)
    assert rig.frontier.finish([item]) == ["ok"]
    assert rig.frontier.stats(rig.crawl).open == 0


def test_an_earlier_batch_with_a_later_stamp_does_not_hide_the_one_that_a_node_lost(
    rig: Rig,
) -> None:
    rig.seed("h.example/a")
    earlier = rig.seed("h.example/a", force=True)
    assert rig.waiting() == ["h.example/a"] * 2
    copy = rig.saved()
    rig.seed("h.example/a", force=True)
    rig.tick(2)
    rig.store.restamp_seeds(earlier)
    rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/a"]


def test_a_page_that_is_only_read_again_does_not_stand_for_a_forced_request(rig: Rig) -> None:
    copy = rig.saved()
    rig.seed("h.example/a", force=True)
    again = [Admission("http://h.example/a", kind=TaskKind.REREAD)]
    rig.store.seeds_admitted(rig.store.add_seeds(rig.crawl.id, again, force=True))
    rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/a"] * 2


def test_very_many_forced_urls_are_not_compared_and_none_is_left_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.replay.MOST_COMPARED", 3)
    copy = rig.saved()
    rig.seed("h.example/a", "h.example/b", force=True)
    rig.seed("h.example/a", "h.example/c", force=True)
    rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/a", "h.example/b", "h.example/c"]


def test_blocks_hold_on_a_redis_that_forgot_them(rig: Rig) -> None:
    rig.seed("h.example/")
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    (session,) = Worker(rig.frontier).lease()
    assert close(rig.frontier, session, 1, failed="http_429", block=300.0) == "ok"
    rig.put_back(copy)
    rig.refilled()
    assert 290 < rig.frontier.host("h.example").blocked_in <= 300


def delays(rig: Rig, *hosts: str) -> list[float]:
    return [rig.frontier.host(host).delay for host in hosts]


def test_operators_delays_hold_on_a_redis_that_comes_back_empty(rig: Rig) -> None:
    rig.seed("h.example/", "lifted.example/")
    hosts = [f"h{n}.example" for n in range(20)]
    for host in [*hosts, "h.example", "lifted.example"]:
        rig.frontier.patch_host(host, HostPatch(delay=30))
    rig.frontier.patch_host("lifted.example", HostPatch(delay=0))
    rig.server.kill()
    shutil.rmtree(rig.server.folder)
    rig.server.start()
    rig.refilled()
    assert delays(rig, "h.example", *hosts) == [30.0] * 21
    assert delays(rig, "lifted.example") == [0.0]


def test_operators_delays_hold_on_a_redis_that_forgot_them(rig: Rig) -> None:
    rig.seed("h.example/")
    rig.frontier.patch_host("h.example", HostPatch(delay=9))
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.frontier.patch_host("h.example", HostPatch(delay=30))
    rig.frontier.patch_host("g.example", HostPatch(delay=30))
    rig.put_back(copy)
    rig.refilled()
    assert delays(rig, "h.example", "g.example") == [30.0, 30.0]


def test_a_delay_that_is_lifted_while_a_replay_gives_it_back_stays_lifted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block is removed after the replay has read it, and before the replay sends it to
    Redis."""
    rig.seed("h.example/")
    rig.frontier.patch_host("h.example", HostPatch(delay=30))
    rig.frontier.patch_host("g.example", HostPatch(delay=30))
    real, read = rig.store.delays, list[dict[str, int]]()

    def late() -> dict[str, int]:
        found = real()
        if not read:
            rig.frontier.patch_host("h.example", HostPatch(delay=0))
        read.append(found)
        return found

    monkeypatch.setattr(rig.store, "delays", late)
    rig.server.kill()
    shutil.rmtree(rig.server.folder)
    rig.server.start()
    rig.refilled()
    assert [sorted(found) for found in read] == [["g.example", "h.example"], *[["g.example"]] * 2]
    assert delays(rig, "h.example", "g.example") == [0.0, 30.0]


def test_rows_stamped_within_the_margin_of_the_tick_are_replayed(rig: Rig) -> None:
    """The rows were committed some steps before their admission, which is allowed up to MARGIN."""
    rig.tick(MARGIN + 3)
    page = rig.page("h.example/", "h.example/late")
    stamp = rig.store.commit(Commit([page]))
    rig.tick(MARGIN)
    copy = rig.saved()
    admitted = rig.frontier.admit(rig.crawl.id, page.links, stamp=stamp)
    assert admitted.tick - stamp.clock == MARGIN - 1
    rig.put_back(copy)
    rig.refilled()
    assert rig.waiting() == ["h.example/late"]


def test_a_promoted_replica_at_another_address_gets_the_missing_rows_as_well(rig: Rig) -> None:
    rig.seed("h.example/old")
    rig.tick(MARGIN + 3)
    replica = RedisServer(rig.folder / "replica")
    shutil.copytree(rig.server.folder, replica.folder)
    rig.seed("h.example/new")
    rig.server.kill()
    replica.start()
    other = rig.broker(replica.url)
    try:
        assert rig.refilled(other).waiting == 2
        assert int(other.nodes[0].epoch) == 2
    finally:
        other.stop()
        replica.stop()


# -- everything


def test_an_empty_redis_gets_all_urls_and_counters_back(rig: Rig) -> None:
    rig.seed("h.example/", "h.example/seed")
    rig.store_page("h.example/", "h.example/x", "other.example/y")
    rig.store_page("h.example/x", status=404, body=b"no")
    rig.store.commit(Commit(finals=[_final(rig, "other.example/y", "dead")]))
    rig.tick(3 * MARGIN)
    rig.server.client.flushall()
    totals = rig.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (4, 3, 1)
    assert (totals.stored, totals.dead, totals.bytes) == (1, 1, 7)
    assert rig.frontier.repairs()[0].everything
    assert int(rig.frontier.nodes[0].epoch) == 2, "epochs rise though Redis forgot the last"
    assert rig.waiting() == ["h.example/seed"]


def test_settled_forced_seeds_are_forced_again_only_if_they_were_not_fetched_since(
    rig: Rig,
) -> None:
    rig.seed("h.example/fetched", "h.example/owed", "h.example/dead")
    for name in ("h.example/fetched", "h.example/owed"):
        rig.store_page(name)
    rig.store.commit(Commit(finals=[_final(rig, "h.example/dead", "dead")]))
    rig.tick(2)
    rig.seed("h.example/fetched", "h.example/owed", force=True)
    batch = rig.store.requeue_dead(rig.crawl.id)
    assert batch is not None
    rig.store.seeds_admitted(batch.id)
    rig.tick(2)
    rig.store_page("h.example/fetched")
    rig.server.client.flushall()
    rig.refilled()
    assert rig.waiting() == ["h.example/dead", "h.example/owed"]


# -- clean stops


@pytest.mark.parametrize("who", ["memory", "replay"])
def test_a_late_write_into_an_emptied_redis_does_not_keep_it_closed(rig: Rig, who: str) -> None:
    """A budget, or a heartbeat of a replay, is on its way while Redis comes back empty."""
    rig.seed("h.example/a")
    node = rig.frontier.nodes[0]
    job = rig.frontier.recovery._jobs[node.id]
    rig.server.client.flushall()
    if who == "memory":
        rig.frontier.watch_memory()
    else:
        with pytest.raises(Unavailable):
            job.hold()
    assert rig.server.client.hgetall(keys.OWNER), "as it is written"
    assert rig.refilled().admitted == 1
    rig.broker().stop()


def test_a_clean_stop_counts_only_in_the_epoch_in_which_it_was_made(rig: Rig) -> None:
    rig.seed("h.example/")
    rig.tick(MARGIN + 3)
    rig.frontier.stop(clean=True)
    rig.server.stop()
    copy = rig.saved()
    rig.server.start()
    rig.frontier = rig.broker()
    rig.frontier.start()
    assert rig.server.client.hget(keys.OWNER, "rest") is None, "it was clean"
    rig.seed("h.example/lost")
    rig.put_back(copy)
    assert rig.server.client.hget(keys.OWNER, "clean") == "1"
    assert rig.refilled().waiting == 2
    assert rig.server.client.hget(keys.OWNER, "rest") is not None


def test_the_explanation_of_a_url_says_until_when_its_node_rests_after_a_loss(rig: Rig) -> None:
    rig.seed("h.example/")
    copy = rig.saved()
    rig.put_back(copy)
    rig.refilled()
    till_ms = float(rig.server.client.hget(keys.OWNER, "rest") or 0)
    left = (till_ms - rig.frontier.nodes[0].now_ms()) / 1000
    assert left > 0
    rig.server.client.hset(keys.OWNER, "rest", round(till_ms + 60_000))
    before = datetime.now(UTC) + timedelta(seconds=left + 60)
    said = rig.frontier.find_url(rig.store.crawl(rig.crawl.id), "http://h.example/").why
    found = re.search(r"its hosts are not fetched until (\d\d):(\d\d):(\d\d) UTC", said)
    assert found, said
    hour, minute, second = map(int, found.groups())
    told = 3600 * hour + 60 * minute + second
    expected = 3600 * before.hour + 60 * before.minute + before.second
    assert (told - expected + 5) % 86_400 < 10
    rig.server.client.hset(keys.OWNER, "rest", round(till_ms - 1000 * left))
    crawl = rig.store.crawl(rig.crawl.id)
    assert "fetched until" not in rig.frontier.find_url(crawl, "http://h.example/").why


# -- during a recovery


def test_sessions_wait_for_the_replay_while_admitting_and_finishing_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.seed("h.example/1")
    worker = Worker(rig.frontier)
    (held, *_) = worker.lease(sessions=1, tasks=1)
    rig.seed("i.example/1")
    rig.tick(2)
    copy = rig.saved()
    go_on, real = Event(), rig.store.replay_links

    def slow(since: int) -> Iterator[Any]:
        go_on.wait(20)
        yield from real(since)

    monkeypatch.setattr(rig.store, "replay_links", slow)
    rig.put_back(copy)
    until(lambda: _quietly(lambda: rig.frontier.ready() is None))
    until(lambda: rig.frontier.repairs()[0].phase == "links")
    rig.seed("i.example/2")
    finish_all(rig.frontier, held)
    assert close(rig.frontier, held) == "ok"
    before = rig.frontier.nodes[0].tick
    rig.tick(3)
    gevent.sleep(2.2)  # the longest lease and request have passed
    assert worker.lease(wait=0.5) == ()
    assert rig.frontier.scan(rig.crawl.id) is None
    assert rig.frontier.nodes[0].tick == before, "a tick would shorten the next replay"
    go_on.set()
    rig.refilled()
    others = {"h.example/1", "i.example/1", "i.example/2"} - {f"{held.host}/1"}
    assert set(rig.waiting()) == others
    rig.tick()
    assert rig.frontier.nodes[0].tick > before


def test_a_hosts_delay_counts_from_the_last_request_of_sessions_that_were_forgotten(
    rig: Rig,
) -> None:
    rig.crawl = new_crawl(rig.frontier, rig.store, "slow", delay=2)
    rig.seed("h.example/")
    copy = rig.saved()
    (forgotten,) = Worker(rig.frontier).lease()
    rig.put_back(copy)
    (session,) = until(lambda: _lease_or_nothing(Worker(rig.frontier, "v")), 10)
    late = FinishItem(session=forgotten.session, token=forgotten.token, task=1, outcome=Done())
    assert rig.frontier.finish([late]) == ["stale"]
    client, p = rig.server.client, rig.frontier.partition_of("h.example")
    opened = client.hget(f"gc:{{{p}}}:s:{session.token}", "opened")
    assert float(opened) >= float(client.hget(keys.OWNER, "rest")) + 2000


def test_a_crawl_that_a_node_was_not_told_of_yet_is_not_taken_for_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a worker would drop the links, and a broker the seeds."""
    go_on, real = Event(), rig.frontier.tell_node

    def slow(*given: Any, **named: Any) -> None:
        go_on.wait(10)
        real(*given, **named)

    monkeypatch.setattr(rig.frontier.parts.crawls, "tell_node", slow)
    rig.server.client.flushall()
    _quietly(lambda: rig.frontier.scan(rig.crawl.id))
    taken: list[bool] = []
    for _ in range(3):  # it waits, or tells the node itself; any other exception is an error
        with suppress(Unavailable):
            taken += rig.frontier.admit(rig.crawl.id, urls("h.example", 1))
    go_on.set()
    assert rig.refilled()
    taken += rig.frontier.admit(rig.crawl.id, urls("h.example", 1))
    assert taken.count(True) == 1
    assert rig.frontier.scan(rig.crawl.id).waiting == 1


def test_another_broker_takes_over_a_replay_whose_broker_died(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.owner.STALLED_MS", 1000)
    rig.seed("h.example/")
    rig.server.client.flushall()
    monkeypatch.setattr(rig.store, "replay_marks", lambda _: Event().wait())
    _quietly(lambda: rig.frontier.scan(rig.crawl.id))
    until(lambda: rig.frontier.repairs()[0].phase == "marks")
    gevent.killall([job.greenlet for job in rig.frontier.recovery._jobs.values() if job.greenlet])
    monkeypatch.undo()
    other = rig.broker()
    other.start()
    try:
        # The former broker may just have renewed its hold, for ten seconds; these have to pass. No
        # session is open, so only the broker's own heartbeats tell it that the node is still owed.
        until(lambda: not rig.server.client.hexists(keys.OWNER, "owed"), 30)
        assert rig.refilled(other).waiting == 1
    finally:
        other.stop()


# -- epochs


def test_links_are_never_acknowledged_by_a_server_whose_epoch_is_over(rig: Rig) -> None:
    """A worker is still connected to the old master when the replica was promoted."""
    rig.tick(MARGIN + 3)
    copy = RedisServer(rig.folder / "replica")
    shutil.copytree(rig.server.folder, copy.folder)
    copy.start()
    worker = Frontier([rig.server.url], rig.store)
    other = rig.broker(copy.url)
    try:
        rig.refilled(other)  # otherwise the replay would send what is committed next
        page = rig.page("h.example/", "h.example/link")
        stamp = rig.store.commit(Commit([page]))
        assert stamp.epochs == {worker.nodes[0].id: 2}
        with pytest.raises(Fenced):
            worker.admit(rig.crawl.id, page.links, stamp=stamp)
        assert rig.frontier.stats(rig.crawl).admitted == 0
        admitted = other.admit(rig.crawl.id, page.links, stamp=stamp)
        assert admitted == [True]
        rig.frontier.tick(rig.store.clock())
        with pytest.raises(Unavailable, match="epoch 2"):
            rig.frontier.stats(rig.crawl)  # the broker of the old master stops, too
    finally:
        worker.nodes[0].close()
        other.stop()
        copy.stop()


def test_seeds_admitted_under_an_epoch_that_ended_stay_pending(rig: Rig) -> None:
    items = urls("h.example", 1)
    batch = rig.store.add_seeds(rig.crawl.id, items)
    admitted = rig.frontier.admit(rig.crawl.id, items)
    node = rig.frontier.nodes[0].id
    assert admitted.epochs == {node: 1}
    assert rig.store.raise_epoch(node, 1, 2)
    assert not rig.store.seeds_admitted(batch, admitted.tick, admitted.epochs)


def test_a_node_is_claimed_under_a_new_epoch_if_the_raised_one_stays_unused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.seed("h.example/")
    node = rig.frontier.nodes[0]
    assert rig.store.raise_epoch(node.id, 1, 2)  # by a broker that died then
    rig.frontier.tick(rig.store.clock())
    assert "epoch 2" in str(rig.frontier.ready())
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.FENCED_SECONDS", 0.0)
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.0)
    until(lambda: rig.frontier.ready() is None)
    assert node.epoch == "3"
    assert rig.refilled().waiting == 1


# -- the margin


def test_seeds_that_were_admitted_too_long_after_their_stamp_are_stamped_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rig.frontier.admit
    rig.tick()
    stamps = []

    def late(*given: Any, **more: Any) -> Admitted:
        (pending,) = rig.store.pending_seeds()
        stamps.append(pending.stamp)
        if len(stamps) == 1:
            rig.tick(MARGIN + 2)
        return real(*given, **more)

    monkeypatch.setattr(rig.frontier, "admit", late)
    service = Service(rig.frontier, rig.store)
    assert seeding.admit(service, rig.crawl, urls("h.example", 2), force=False) == [True, True]
    assert stamps[1] - stamps[0] == MARGIN + 2
    assert rig.store.pending_seeds() == []


# -- a store that lost data


@pytest.fixture
def behind(rig: Rig) -> Rig:
    """Redis knows two URLs and ten ticks that an older copy of the store does not know."""
    rig.seed("h.example/kept")
    rig.tick(3)
    rig.frontier.stop()
    rig.store.close()
    shutil.copy(rig.folder / "c.sqlite", rig.folder / "backup.sqlite")
    rig.store = rig.open_store()
    rig.frontier = rig.broker()
    rig.seed("h.example/lost", "i.example/lost")
    rig.tick(10)
    rig.frontier.stop()
    rig.store.close()
    for name in ("c.sqlite", "c.sqlite-wal", "c.sqlite-shm"):
        (rig.folder / name).unlink(missing_ok=True)
    shutil.copy(rig.folder / "backup.sqlite", rig.folder / "c.sqlite")
    rig.store = rig.open_store()
    rig.frontier = rig.broker()
    rig.frontier.start()
    return rig


def test_a_store_behind_redis_is_refused_until_a_person_decides(behind: Rig) -> None:
    frontier, crawl = behind.frontier, behind.crawl
    assert "greencrawl repair --all" in str(frontier.ready())
    with pytest.raises(Unavailable, match="repair --all"):
        frontier.admit(crawl.id, urls("h.example", 1))
    with pytest.raises(StoreLostData):
        frontier.repair(everything=False)
    assert "repair --all" in frontier.repairs()[0].detail


def test_repair_all_makes_redis_match_an_older_store(behind: Rig) -> None:
    behind.frontier.repair(everything=True)
    totals = behind.refilled()
    assert (totals.admitted, totals.waiting) == (1, 1)
    until(lambda: behind.frontier.repairs()[0].phase == "done")
    assert behind.frontier.ready() is None
    behind.tick()
    assert behind.frontier.nodes[0].tick < behind.store.clock().clock
    assert behind.waiting() == ["h.example/kept"]


def test_the_emptying_of_a_node_goes_on_after_it_was_cut_short(
    behind: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.owner.STALLED_MS", 300)
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.1)
    recovery = behind.frontier.recovery
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_empty", lambda job: Event().wait())
        behind.frontier.repair(everything=True)
        gevent.sleep(0)
        gevent.killall([job.greenlet for job in recovery._jobs.values() if job.greenlet])
    assert behind.server.client.hget(keys.OWNER, "state") == "emptying"
    assert behind.refilled().waiting == 1


@pytest.mark.parametrize("left", [True, False])
def test_a_broker_may_start_while_a_node_is_being_emptied(
    behind: Rig, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    monkeypatch.setattr(
        "greencrawl.broker.frontier.recovery.owner.STALLED_MS", 300 if left else 3000
    )
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.1)
    recovery = behind.frontier.recovery
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_empty", lambda job: Event().wait())
        behind.frontier.repair(everything=True)
        gevent.sleep(0)
        gevent.killall([job.greenlet for job in recovery._jobs.values() if job.greenlet])
    if left:
        gevent.sleep(0.4)
    second = behind.broker()
    second.start()
    try:
        assert behind.refilled(second).waiting == 1
    finally:
        second.stop()


def test_a_broker_raises_no_epoch_if_another_claims_the_node_after_its_look(
    behind: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.1)
    monkeypatch.setattr(Job, "_empty", lambda job: Event().wait())
    first = behind.frontier.recovery
    [node] = behind.frontier.nodes
    behind.frontier.stop()
    first.repair(node, everything=True)
    gevent.sleep(0)
    gevent.killall([job.greenlet for job in first._jobs.values() if job.greenlet])
    behind.server.client.hset(keys.OWNER, "owed", 0)  # nobody has worked on it for a while
    refuse, claimed = Recovery._refuse_older_store, []

    def claim_meanwhile(recovery: Recovery, *given: Any) -> None:
        refuse(recovery, *given)
        if recovery is not first and not claimed:
            claimed.append(True)
            first.reopen(node)

    monkeypatch.setattr(Recovery, "_refuse_older_store", claim_meanwhile)
    second = behind.broker()
    try:
        assert claimed
        epoch = behind.store.clock().epochs[node.id]
        assert epoch == int(behind.server.client.hget(keys.OWNER, "epoch"))
        assert "another broker is emptying" in second.recovery.refused[node.id]
    finally:
        second.stop()


# -- an older layout


def make_outdated(rig: Rig) -> None:
    """Data of an older version: the same log, and records of another layout in Redis."""
    redis = rig.server.client
    for key in redis.keys("gc:{*"):
        redis.delete(key)
        redis.hset(key, "shape", "another")
    redis.hdel(keys.OWNER, "layout")


def test_data_of_an_older_layout_is_made_anew_from_the_store(rig: Rig) -> None:
    rig.seed("h.example/a", "h.example/b")
    rig.store_page("h.example/a", "h.example/c")
    rig.tick(2 * MARGIN)  # a window would not reach back so far
    rig.frontier.stop()
    make_outdated(rig)
    rig.store.put_layout(keys.LAYOUT - 1)
    with pytest.raises(Unavailable, match="waiting for a broker"):
        Frontier([rig.server.url], rig.store, partitions=8)
    assert rig.server.client.hget(keys.OWNER, "state") == "open", "a worker touches nothing"
    rig.frontier = rig.broker()
    rig.frontier.start()
    totals = rig.refilled()
    assert (totals.admitted, totals.waiting, totals.stored) == (3, 2, 1)
    assert rig.waiting() == ["h.example/b", "h.example/c"]
    assert rig.store.frontier() == rig.frontier.identity
    assert rig.frontier.identity.layout == keys.LAYOUT
    Frontier([rig.server.url], rig.store, partitions=8).stop()


def test_data_of_an_older_layout_is_removed_even_if_there_is_no_crawl(rig: Rig) -> None:
    rig.seed("h.example/a")
    rig.frontier.stop()
    make_outdated(rig)
    left = rig.server.client.keys("gc:{*")
    rig.store.delete_crawl(rig.crawl.id)
    rig.store.put_layout(keys.LAYOUT - 1)
    rig.frontier = rig.broker()
    try:
        rig.frontier.start()
    except Unavailable as error:
        pytest.fail(f"the node is neither emptied nor open: {error}")
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    assert rig.server.client.hget(keys.OWNER, "state") == "open"
    assert not set(left) & set(rig.server.client.keys("gc:{*"))


def test_a_redis_put_back_to_before_the_upgrade_is_emptied_too(rig: Rig) -> None:
    rig.seed("h.example/a")
    rig.tick(2 * MARGIN)
    make_outdated(rig)
    old = rig.saved()
    rig.put_back(old)
    assert rig.refilled().waiting == 1
    assert rig.server.client.hget(keys.OWNER, "layout") == str(keys.LAYOUT)


# -- on request


@pytest.mark.parametrize("everything", [False, True])
def test_repair_of_a_healthy_node_changes_nothing(rig: Rig, everything: bool) -> None:
    rig.seed("h.example/a", "h.example/b", "i.example/")
    rig.store_page("h.example/a", "h.example/c")
    rig.seed("h.example/a", force=True)
    rig.tick(MARGIN + 5)
    before = rig.refilled()
    epoch = rig.frontier.nodes[0].epoch
    rig.frontier.repair(everything)
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    assert rig.refilled() == before
    assert rig.frontier.nodes[0].epoch == epoch
    (report,) = rig.frontier.repairs()
    assert report.everything is everything
    assert (report.total > 0) is everything


@pytest.mark.parametrize(
    ("first", "second", "replays"),
    [(False, False, ["part"]), (True, False, ["all"]), (False, True, ["part", "all"])],
)
def test_a_repair_continues_the_running_replay_unless_it_needs_a_larger_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, first: bool, second: bool, replays: list[str]
) -> None:
    """The node must not be opened before the last replay has ended."""
    rig.seed("h.example/a")
    rig.tick(MARGIN + 5)
    go_on, real = Event(), rig.store.replay_links
    begun: list[str] = []
    ended: list[str] = []

    def slow(since: int) -> Iterator[Any]:
        begun.append("part" if since else "all")
        go_on.wait(20)
        yield from real(since)
        ended.append("part" if since else "all")

    monkeypatch.setattr(rig.store, "replay_links", slow)
    rig.frontier.repair(first)
    until(lambda: begun)
    rig.frontier.repair(second)
    until(lambda: rig.frontier.repairs()[0].phase == "links" and begun[-1] == replays[-1])
    assert begun == replays
    go_on.set()
    assert rig.refilled().waiting == 1
    assert ended == replays[-1:]


def test_a_redis_at_its_memory_limit_is_refilled_as_far_as_it_goes_and_opens(
    rig: Rig,
) -> None:
    rig.seed("h.example/a", "h.example/b")
    rig.store_page("h.example/a", "h.example/c")
    rig.tick(2)
    batch = rig.seed("h.example/a", force=True)
    client = rig.server.client
    client.delete(*client.keys("gc:{*"))
    client.config_set("maxmemory", "100kb")
    rig.frontier.repair(everything=True)
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    assert [pending.id for pending in rig.store.pending_seeds()] == [batch]
    client.config_set("maxmemory", 0)
    places = rig.store.overflow_places()
    assert places, "what did not fit waits in the store"


def test_an_older_redis_at_its_memory_limit_waits_for_no_url_that_was_settled_since(
    rig: Rig,
) -> None:
    """The copy has URLs in the overflow that were brought back and fetched after the copy."""
    owner = rig.server.client
    owner.hset("gc:owner", "full", 1)
    names = [f"h{n}.example/" for n in range(300)]
    rig.seed(*names)
    assert rig.refilled().overflow == len(names)
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    owner.hset("gc:owner", "full", 0)
    for place in _overflowing(rig):
        assert rig.frontier.refill(rig.crawl.id, *place) == 1
    assert rig.refilled().overflow == 0
    for name in names:
        rig.store_page(name)
    rig.server.options = (*rig.server.options, "--maxmemory", "100kb")
    rig.put_back(copy)
    assert rig.refilled().overflow == 0, "it would wait for them for ever"
    owner.config_set("maxmemory", 0)
    totals = rig.refilled()
    assert (totals.admitted, totals.finished, totals.stored) == (300, 300, 300)


@pytest.mark.parametrize("limit", ["0", "100kb"])
@pytest.mark.parametrize("how", ["dead", "parked"])
def test_a_requeued_url_is_fetched_though_an_older_redis_has_it_in_the_overflow(
    rig: Rig, how: str, limit: str
) -> None:
    """The row was deleted when the URL was settled, and nothing now says that it was settled."""
    owner = rig.server.client
    owner.hset("gc:owner", "full", 1)
    rig.seed("h.example/")
    assert rig.refilled().overflow == 1
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    owner.hset("gc:owner", "full", 0)
    [place] = _overflowing(rig)
    assert rig.frontier.refill(rig.crawl.id, *place) == 1
    rig.store.commit(Commit(finals=[_final(rig, "h.example/", how)]))
    store, crawl = rig.store, rig.crawl.id
    batch = store.requeue_dead(crawl) if how == "dead" else store.release_parked(crawl)
    assert batch is not None
    _admit(rig, batch)
    rig.server.options = (*rig.server.options, "--maxmemory", limit)
    rig.put_back(copy)
    rig.refilled()
    owner.config_set("maxmemory", 0)
    for pending in store.pending_seeds():
        _admit(rig, pending)
    totals = rig.refilled()
    assert (totals.waiting, totals.overflow) == (1, 0), "it would wait for it for ever"
    assert rig.waiting() == ["h.example/"]


def test_a_url_that_is_forced_while_it_waits_in_the_overflow_is_queued_once(rig: Rig) -> None:
    owner = rig.server.client
    owner.hset("gc:owner", "full", 1)
    rig.seed("h.example/")
    assert rig.refilled().overflow == 1
    owner.hset("gc:owner", "full", 0)
    rig.seed("h.example/", force=True)
    [place] = _overflowing(rig)
    rig.frontier.refill(rig.crawl.id, *place)
    assert not _overflowing(rig)
    totals = rig.refilled()
    assert (totals.admitted, totals.waiting, totals.overflow) == (1, 1, 0)
    assert rig.waiting() == ["h.example/"]


def _admit(rig: Rig, batch: Any) -> None:
    """Queue a batch of the log again, like upkeep."""
    items = list(batch.urls)
    admitted = rig.frontier.admit(rig.crawl.id, items, mode=Mode.FORCE, batch=batch.id)
    assert rig.store.seeds_admitted(batch.id, admitted.tick, admitted.epochs)


def _overflowing(rig: Rig) -> list[tuple[int, str]]:
    """Return (partition, host) of hosts with URLs that wait in the store."""
    return [
        (partition, host)
        for crawl, partition in rig.store.overflow_places()
        for host in rig.store.overflow_hosts(crawl, partition, "", 1000)
    ]


def test_a_pending_batch_waits_until_a_node_knows_what_was_fetched(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.add_seeds(rig.crawl.id, [Admission("http://h.example/a")], force=False)
    rig.store_page("h.example/a", "h.example/b")
    rig.tick(2)
    client = rig.server.client
    client.delete(*client.keys("gc:{*"))
    upkeep = Upkeep(Service(rig.frontier, rig.store, duties=rig.frontier.duties))
    go_on, replay = Event(), Job._replay

    def replay_later(job: Job, *given: Any) -> None:
        go_on.wait()
        replay(job, *given)

    monkeypatch.setattr(Job, "_replay", replay_later)
    rig.frontier.repair(everything=True)
    assert upkeep._admit_pending() == {rig.crawl.id}
    go_on.set()
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    assert upkeep._admit_pending() == set()
    assert rig.waiting() == ["h.example/b"], "what was fetched is not asked for again"


def test_repair_all_mends_a_redis_that_lost_keys_unnoticed(rig: Rig) -> None:
    rig.seed("h.example/", "i.example/")
    rig.tick(2 * MARGIN)
    client = rig.server.client
    client.delete(*client.keys("gc:{*"))
    rig.frontier.repair(everything=True)
    assert rig.refilled().waiting == 2


def _final(rig: Rig, name: str, state: Any) -> Final:
    url = f"http://{name}"
    return Final(
        crawl=rig.crawl.id, fingerprint=rig.frontier.fingerprint(url), url=url, state=state,
        kind="http_4xx", at_ms=1000,
    )  # fmt: skip
