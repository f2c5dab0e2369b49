"""Redis older, empty or elsewhere, and a store that lost data: what a broker makes of each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from greencrawl.broker.frontier import Admitted, Frontier, Mode
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Fenced
from greencrawl.broker.frontier.recovery.job import Job
from greencrawl.broker.frontier.recovery.opening import Recovery, StoreLostData
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Admission, Commit, Final, HostPatch, StoredPage
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


class House:
    """A store, a Redis and a broker's frontier; the store's clock goes only by :meth:`tick`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # "always": a copy of the disk holds all that was answered before it.
        self.server = RedisServer(folder / "redis", None, "--appendfsync", "always").start()
        self.store = self.open_store()
        self.frontier = self.broker()
        self.crawl = new_crawl(self.frontier, self.store, delay=0)

    def open_store(self) -> Store:
        return open_store(f"sqlite:///{self.folder / 'c.sqlite'}")

    def broker(self, *addresses: str, **options: Any) -> Frontier:
        given = {"partitions": 8, "lease_seconds": 1, "request_seconds": 1, **options}
        at = addresses or (self.server.url,)
        return Frontier(at, self.store, create=True, **given)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.frontier.tick(self.store.clock())
            self.store.tick()

    def saved(self) -> Path:
        """A copy of what Redis has on its disk now."""
        copy = self.folder / f"copy{time.monotonic_ns()}"
        shutil.copytree(self.server.folder, copy)
        return copy

    def put_back(self, copy: Path) -> None:
        """Let Redis die and come back with an older disk."""
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
        """What a worker does, but for finishing."""
        page = self.page(name, *links, **more)
        stamp = self.store.commit(Commit([page]))
        self.frontier.admit(self.crawl.id, page.links, stamp=stamp)

    def refilled(self, frontier: Frontier | None = None) -> Any:
        """Counters of the crawl, once a scan counts again."""
        at = frontier or self.frontier
        return until(lambda: _quietly(lambda: at.scan(self.crawl.id)), 30)

    def waiting(self) -> list[str]:
        """URLs that a worker is leased, once it may be; they are finished."""
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
    """A node that was taken over rests no longer than the sessions that it forgot may last."""
    monkeypatch.setattr(StoreContact, "margin_ms", 0)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


# -- the window


def test_redis_that_came_back_older_is_given_what_it_missed_and_no_more(house: House) -> None:
    house.seed("old.example/a", "old.example/b", "done.example/")
    for _ in range(30):
        house.store_page("old.example/a", "old.example/b")
    house.tick(MARGIN + 3)
    copy = house.saved()
    house.tick(2)
    house.store_page("old.example/b", "new.example/x", "old.example/a")
    house.store.commit(Commit(finals=[_final(house, "done.example/", "gone")]))
    house.seed("seed.example/")
    house.put_back(copy)
    totals = house.refilled()
    # Redis may know a moment before this process does.
    until(lambda: house.frontier.repairs()[0].phase == "done")
    report = house.frontier.repairs()[0]
    assert not report.everything
    assert report.done == report.total == 2 + 1 + 1, "a page, a final state and a batch"
    assert totals.admitted == 5, "the three of before, the link and the seed that were forgotten"
    assert {"new.example/x", "seed.example/"} <= set(house.waiting())


def test_a_crawl_deleted_since_does_not_stay_in_a_redis_that_came_back_older(house: House) -> None:
    other = new_crawl(house.frontier, house.store, "other", delay=0)
    house.frontier.admit(other.id, urls("h.example", 50))
    house.seed("h.example/a")
    house.tick(MARGIN + 3)
    copy = house.saved()
    house.frontier.drop_crawl(other.id)
    house.store.delete_crawl(other.id)
    house.put_back(copy)
    assert house.refilled().waiting == 1
    left = [name for name in house.server.client.keys("gc:*") if f":{other.id}:" in name]
    assert left == [], "it would take memory for ever"
    held = sum(house.frontier.room(p).used for p in house.frontier.partitions)
    house.frontier.drop_crawl(house.crawl.id)
    assert held > 0 == sum(house.frontier.room(p).used for p in house.frontier.partitions)


def test_what_was_finished_in_the_window_counts_as_that(house: House) -> None:
    house.seed("h.example/")
    house.tick(MARGIN + 3)
    copy = house.saved()
    house.tick(2)
    house.seed("h.example/new", "h.example/dead", "h.example/gone")
    house.store_page("h.example/new")
    finals = [_final(house, f"h.example/{state}", state) for state in ("dead", "gone")]
    house.store.commit(Commit(finals=finals))
    house.put_back(copy)
    totals = house.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (4, 3, 1)
    assert (totals.stored, totals.dead, totals.bytes) == (1, 1, 5)
    assert house.waiting() == ["h.example/"]


def test_forced_seeds_of_the_window_are_queued_again_and_once(house: House) -> None:
    house.seed("h.example/a", "h.example/b")
    assert house.waiting() == ["h.example/a", "h.example/b"]
    house.tick(MARGIN + 3)
    house.seed("h.example/a", force=True)
    copy = house.saved()
    house.seed("h.example/b", force=True)
    house.put_back(copy)
    house.refilled()
    assert house.waiting() == ["h.example/a", "h.example/b"]


def test_blocks_hold_on_a_redis_that_forgot_them(house: House) -> None:
    house.seed("h.example/")
    house.tick(MARGIN + 3)
    copy = house.saved()
    (session,) = Worker(house.frontier).lease()
    assert close(house.frontier, session, 1, failed="http_429", block=300.0) == "ok"
    house.put_back(copy)
    house.refilled()
    assert 290 < house.frontier.host("h.example").blocked_in <= 300


def delays(house: House, *hosts: str) -> list[float]:
    return [house.frontier.host(host).delay for host in hosts]


def test_operators_delays_hold_on_a_redis_that_comes_back_empty(house: House) -> None:
    house.seed("h.example/", "lifted.example/")
    hosts = [f"h{n}.example" for n in range(20)]
    for host in [*hosts, "h.example", "lifted.example"]:
        house.frontier.patch_host(host, HostPatch(delay=30))
    house.frontier.patch_host("lifted.example", HostPatch(delay=0))
    house.server.kill()
    shutil.rmtree(house.server.folder)
    house.server.start()
    house.refilled()
    assert delays(house, "h.example", *hosts) == [30.0] * 21
    assert delays(house, "lifted.example") == [0.0]


def test_operators_delays_hold_on_a_redis_that_forgot_them(house: House) -> None:
    house.seed("h.example/")
    house.frontier.patch_host("h.example", HostPatch(delay=9))
    house.tick(MARGIN + 3)
    copy = house.saved()
    house.frontier.patch_host("h.example", HostPatch(delay=30))
    house.frontier.patch_host("g.example", HostPatch(delay=30))
    house.put_back(copy)
    house.refilled()
    assert delays(house, "h.example", "g.example") == [30.0, 30.0]


def test_a_delay_that_is_lifted_while_a_replay_gives_it_back_stays_lifted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lifted after the replay has read it, and before it has told Redis."""
    house.seed("h.example/")
    house.frontier.patch_host("h.example", HostPatch(delay=30))
    house.frontier.patch_host("g.example", HostPatch(delay=30))
    real, read = house.store.delays, list[dict[str, int]]()

    def late() -> dict[str, int]:
        found = real()
        if not read:
            house.frontier.patch_host("h.example", HostPatch(delay=0))
        read.append(found)
        return found

    monkeypatch.setattr(house.store, "delays", late)
    house.server.kill()
    shutil.rmtree(house.server.folder)
    house.server.start()
    house.refilled()
    assert [sorted(found) for found in read] == [["g.example", "h.example"], *[["g.example"]] * 2]
    assert delays(house, "h.example", "g.example") == [0.0, 30.0]


def test_rows_stamped_within_the_margin_of_the_tick_are_replayed(house: House) -> None:
    """Committed some steps before they were admitted, which is allowed up to MARGIN."""
    house.tick(MARGIN + 3)
    page = house.page("h.example/", "h.example/late")
    stamp = house.store.commit(Commit([page]))
    house.tick(MARGIN)
    copy = house.saved()
    admitted = house.frontier.admit(house.crawl.id, page.links, stamp=stamp)
    assert admitted.tick - stamp.clock == MARGIN - 1
    house.put_back(copy)
    house.refilled()
    assert house.waiting() == ["h.example/late"]


def test_a_promoted_copy_at_another_address_is_filled_as_well(house: House) -> None:
    house.seed("h.example/old")
    house.tick(MARGIN + 3)
    replica = RedisServer(house.folder / "replica")
    shutil.copytree(house.server.folder, replica.folder)
    house.seed("h.example/new")
    house.server.kill()
    replica.start()
    other = house.broker(replica.url)
    try:
        assert house.refilled(other).waiting == 2
        assert int(other.nodes[0].epoch) == 2
    finally:
        other.stop()
        replica.stop()


# -- everything


def test_an_empty_redis_gets_everything_with_its_counters(house: House) -> None:
    house.seed("h.example/", "h.example/seed")
    house.store_page("h.example/", "h.example/x", "other.example/y")
    house.store_page("h.example/x", status=404, body=b"no")
    house.store.commit(Commit(finals=[_final(house, "other.example/y", "dead")]))
    house.tick(3 * MARGIN)
    house.server.client.flushall()
    totals = house.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (4, 3, 1)
    assert (totals.stored, totals.dead, totals.bytes) == (1, 1, 7)
    assert house.frontier.repairs()[0].everything
    assert int(house.frontier.nodes[0].epoch) == 2, "epochs rise though Redis forgot the last"
    assert house.waiting() == ["h.example/seed"]


def test_settled_forced_seeds_are_forced_again_only_if_they_were_not_fetched_since(
    house: House,
) -> None:
    house.seed("h.example/fetched", "h.example/owed", "h.example/dead")
    for name in ("h.example/fetched", "h.example/owed"):
        house.store_page(name)
    house.store.commit(Commit(finals=[_final(house, "h.example/dead", "dead")]))
    house.tick(2)
    house.seed("h.example/fetched", "h.example/owed", force=True)
    batch = house.store.requeue_dead(house.crawl.id)
    assert batch is not None
    house.store.seeds_admitted(batch.id)
    house.tick(2)
    house.store_page("h.example/fetched")
    house.server.client.flushall()
    house.refilled()
    assert house.waiting() == ["h.example/dead", "h.example/owed"]


# -- clean stops


@pytest.mark.parametrize("who", ["memory", "replay"])
def test_what_is_written_into_an_emptied_redis_keeps_it_closed_to_nobody(
    house: House, who: str
) -> None:
    """A budget, or a sign of life of a replay, on its way while Redis came back empty."""
    house.seed("h.example/a")
    node = house.frontier.nodes[0]
    job = house.frontier.recovery._jobs[node.id]
    house.server.client.flushall()
    if who == "memory":
        house.frontier.watch_memory()
    else:
        with pytest.raises(Unavailable):
            job.hold()
    assert house.server.client.hgetall(keys.OWNER), "as it is written"
    assert house.refilled().admitted == 1
    house.broker().stop()


def test_a_clean_stop_is_believed_only_at_the_epoch_it_was_made_in(house: House) -> None:
    house.seed("h.example/")
    house.tick(MARGIN + 3)
    house.frontier.stop(clean=True)
    house.server.stop()
    copy = house.saved()
    house.server.start()
    house.frontier = house.broker()
    house.frontier.start()
    assert house.server.client.hget(keys.OWNER, "rest") is None, "it was clean"
    house.seed("h.example/lost")
    house.put_back(copy)
    assert house.server.client.hget(keys.OWNER, "clean") == "1"
    assert house.refilled().waiting == 2
    assert house.server.client.hget(keys.OWNER, "rest") is not None


# -- while it goes on


def test_sessions_wait_for_the_replay_while_admitting_and_finishing_go_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.seed("h.example/1")
    worker = Worker(house.frontier)
    (held, *_) = worker.lease(sessions=1, tasks=1)
    house.seed("i.example/1")
    house.tick(2)
    copy = house.saved()
    go_on, real = Event(), house.store.log_links

    def slow(since: int) -> Iterator[Any]:
        go_on.wait(20)
        yield from real(since)

    monkeypatch.setattr(house.store, "log_links", slow)
    house.put_back(copy)
    until(lambda: _quietly(lambda: house.frontier.ready() is None))
    until(lambda: house.frontier.repairs()[0].phase == "links")
    house.seed("i.example/2")
    finish_all(house.frontier, held)
    assert close(house.frontier, held) == "ok"
    before = house.frontier.nodes[0].tick
    house.tick(3)
    gevent.sleep(2.2)  # the longest lease and request are over
    assert worker.lease(wait=0.5) == ()
    assert house.frontier.scan(house.crawl.id) is None
    assert house.frontier.nodes[0].tick == before, "a tick would shorten the next replay"
    go_on.set()
    house.refilled()
    others = {"h.example/1", "i.example/1", "i.example/2"} - {f"{held.host}/1"}
    assert set(house.waiting()) == others
    house.tick()
    assert house.frontier.nodes[0].tick > before


def test_a_hosts_delay_counts_from_the_last_request_of_sessions_that_were_forgotten(
    house: House,
) -> None:
    house.crawl = new_crawl(house.frontier, house.store, "slow", delay=2)
    house.seed("h.example/")
    copy = house.saved()
    assert Worker(house.frontier).lease()
    house.put_back(copy)
    (session,) = until(lambda: _lease_or_nothing(Worker(house.frontier, "v")), 10)
    client, p = house.server.client, house.frontier.partition_of("h.example")
    opened = client.hget(f"gc:{{{p}}}:s:{session.token}", "opened")
    assert float(opened) >= float(client.hget(keys.OWNER, "rest")) + 2000


def test_a_crawl_that_a_node_was_not_told_of_yet_is_not_taken_for_deleted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker would drop the links, a broker the seeds."""
    go_on, real = Event(), house.frontier.tell_node

    def slow(*given: Any, **named: Any) -> None:
        go_on.wait(10)
        real(*given, **named)

    monkeypatch.setattr(house.frontier.parts.crawls, "tell_node", slow)
    house.server.client.flushall()
    _quietly(lambda: house.frontier.scan(house.crawl.id))
    taken: list[bool] = []
    for _ in range(3):  # it waits, or tells the node itself; what it raises otherwise is at fault
        with suppress(Unavailable):
            taken += house.frontier.admit(house.crawl.id, urls("h.example", 1))
    go_on.set()
    assert house.refilled()
    taken += house.frontier.admit(house.crawl.id, urls("h.example", 1))
    assert taken.count(True) == 1
    assert house.frontier.scan(house.crawl.id).waiting == 1


def test_a_replay_that_its_broker_left_is_taken_over(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.owner.STALLED_MS", 500)
    house.seed("h.example/")
    house.server.client.flushall()
    monkeypatch.setattr(house.store, "log_marks", lambda _: Event().wait())
    _quietly(lambda: house.frontier.scan(house.crawl.id))
    until(lambda: house.frontier.repairs()[0].phase == "marks")
    gevent.killall([job.greenlet for job in house.frontier.recovery._jobs.values() if job.greenlet])
    monkeypatch.undo()
    other = house.broker()
    other.start()
    try:
        # If the one that was left had just renewed its hold, for ten seconds, that has to pass.
        assert until(lambda: other.scan(house.crawl.id), 30).waiting == 1
    finally:
        other.stop()


# -- epochs


def test_links_are_never_acknowledged_by_a_server_whose_epoch_is_over(house: House) -> None:
    """A worker is still connected to the old master when its copy was promoted."""
    house.tick(MARGIN + 3)
    copy = RedisServer(house.folder / "replica")
    shutil.copytree(house.server.folder, copy.folder)
    copy.start()
    worker = Frontier([house.server.url], house.store)
    other = house.broker(copy.url)
    try:
        house.refilled(other)  # or the replay brings what is committed now
        page = house.page("h.example/", "h.example/link")
        stamp = house.store.commit(Commit([page]))
        assert stamp.epochs == {worker.nodes[0].id: 2}
        with pytest.raises(Fenced):
            worker.admit(house.crawl.id, page.links, stamp=stamp)
        assert house.frontier.stats(house.crawl).admitted == 0
        admitted = other.admit(house.crawl.id, page.links, stamp=stamp)
        assert admitted == [True]
        house.frontier.tick(house.store.clock())
        with pytest.raises(Unavailable, match="epoch 2"):
            house.frontier.stats(house.crawl)  # nor does its broker go on there
    finally:
        worker.nodes[0].close()
        other.stop()
        copy.stop()


def test_seeds_admitted_under_an_epoch_that_ended_stay_pending(house: House) -> None:
    items = urls("h.example", 1)
    batch = house.store.add_seeds(house.crawl.id, items)
    admitted = house.frontier.admit(house.crawl.id, items)
    node = house.frontier.nodes[0].id
    assert admitted.epochs == {node: 1}
    assert house.store.raise_epoch(node, 1, 2)
    assert not house.store.seeds_admitted(batch, admitted.tick, admitted.epochs)


def test_an_epoch_that_nobody_claimed_a_node_under_is_claimed_after_a_while(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.seed("h.example/")
    node = house.frontier.nodes[0]
    assert house.store.raise_epoch(node.id, 1, 2)  # and the broker that did it died
    house.frontier.tick(house.store.clock())
    assert "epoch 2" in str(house.frontier.ready())
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.FENCED_SECONDS", 0.0)
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.0)
    until(lambda: house.frontier.ready() is None)
    assert node.epoch == "3"
    assert house.refilled().waiting == 1


# -- the margin


def test_seeds_that_were_admitted_too_long_after_their_stamp_are_stamped_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = house.frontier.admit
    house.tick()
    stamps = []

    def late(*given: Any, **more: Any) -> Admitted:
        (pending,) = house.store.pending_seeds()
        stamps.append(pending.stamp)
        if len(stamps) == 1:
            house.tick(MARGIN + 2)
        return real(*given, **more)

    monkeypatch.setattr(house.frontier, "admit", late)
    service = Service(house.frontier, house.store)
    assert seeding.admit(service, house.crawl, urls("h.example", 2), force=False) == [True, True]
    assert stamps[1] - stamps[0] == MARGIN + 2
    assert house.store.pending_seeds() == []


# -- a store that lost data


@pytest.fixture
def behind(house: House) -> House:
    """Redis knows of two URLs and of ten ticks that an older copy of the store does not."""
    house.seed("h.example/kept")
    house.tick(3)
    house.frontier.stop()
    house.store.close()
    shutil.copy(house.folder / "c.sqlite", house.folder / "backup.sqlite")
    house.store = house.open_store()
    house.frontier = house.broker()
    house.seed("h.example/lost", "i.example/lost")
    house.tick(10)
    house.frontier.stop()
    house.store.close()
    for name in ("c.sqlite", "c.sqlite-wal", "c.sqlite-shm"):
        (house.folder / name).unlink(missing_ok=True)
    shutil.copy(house.folder / "backup.sqlite", house.folder / "c.sqlite")
    house.store = house.open_store()
    house.frontier = house.broker()
    house.frontier.start()
    return house


def test_a_store_behind_redis_is_refused_until_a_person_decides(behind: House) -> None:
    frontier, crawl = behind.frontier, behind.crawl
    assert "greencrawl repair --all" in str(frontier.ready())
    with pytest.raises(Unavailable, match="repair --all"):
        frontier.admit(crawl.id, urls("h.example", 1))
    with pytest.raises(StoreLostData):
        frontier.repair(everything=False)
    assert "repair --all" in frontier.repairs()[0].detail


def test_repair_all_makes_redis_what_an_older_store_holds(behind: House) -> None:
    behind.frontier.repair(everything=True)
    totals = behind.refilled()
    assert (totals.admitted, totals.waiting) == (1, 1)
    assert behind.frontier.ready() is None
    assert behind.frontier.repairs()[0].phase == "done"
    behind.tick()
    assert behind.frontier.nodes[0].tick < behind.store.clock().clock
    assert behind.waiting() == ["h.example/kept"]


def test_emptying_that_was_cut_short_is_gone_on_with(
    behind: House, monkeypatch: pytest.MonkeyPatch
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
    behind: House, monkeypatch: pytest.MonkeyPatch, left: bool
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


def test_who_looked_at_a_node_before_another_broker_claimed_it_raises_no_epoch(
    behind: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.opening.LOOK_SECONDS", 0.1)
    monkeypatch.setattr(Job, "_empty", lambda job: Event().wait())
    first = behind.frontier.recovery
    [node] = behind.frontier.nodes
    behind.frontier.stop()
    first.repair(node, everything=True)
    gevent.sleep(0)
    gevent.killall([job.greenlet for job in first._jobs.values() if job.greenlet])
    behind.server.client.hset(keys.OWNER, "owed", 0)  # nobody has been at it for a while
    refuse, claimed = Recovery._refuse_behind, []

    def claim_meanwhile(recovery: Recovery, *given: Any) -> None:
        refuse(recovery, *given)
        if recovery is not first and not claimed:
            claimed.append(True)
            first.reopen(node)

    monkeypatch.setattr(Recovery, "_refuse_behind", claim_meanwhile)
    second = behind.broker()
    try:
        assert claimed
        epoch = behind.store.clock().epochs[node.id]
        assert epoch == int(behind.server.client.hget(keys.OWNER, "epoch"))
        assert "another broker is emptying" in second.recovery.refused[node.id]
    finally:
        second.stop()


# -- an older layout


def make_outdated(house: House) -> None:
    """What an older version left: the same log, and records of another shape in Redis."""
    redis = house.server.client
    for key in redis.keys("gc:{*"):
        redis.delete(key)
        redis.hset(key, "shape", "another")
    redis.hdel(keys.OWNER, "layout")


def test_data_of_an_older_layout_is_made_anew_from_the_store(house: House) -> None:
    house.seed("h.example/a", "h.example/b")
    house.store_page("h.example/a", "h.example/c")
    house.tick(2 * MARGIN)  # a window would not reach back so far
    house.frontier.stop()
    make_outdated(house)
    house.store.put_layout(keys.LAYOUT - 1)
    with pytest.raises(Unavailable, match="waiting for a broker"):
        Frontier([house.server.url], house.store, partitions=8)
    assert house.server.client.hget(keys.OWNER, "state") == "open", "a worker touches nothing"
    house.frontier = house.broker()
    house.frontier.start()
    totals = house.refilled()
    assert (totals.admitted, totals.waiting, totals.stored) == (3, 2, 1)
    assert house.waiting() == ["h.example/b", "h.example/c"]
    assert house.store.frontier() == house.frontier.identity
    assert house.frontier.identity.layout == keys.LAYOUT
    Frontier([house.server.url], house.store, partitions=8).stop()


def test_a_redis_put_back_to_before_the_upgrade_is_emptied_too(house: House) -> None:
    house.seed("h.example/a")
    house.tick(2 * MARGIN)
    make_outdated(house)
    old = house.saved()
    house.put_back(old)
    assert house.refilled().waiting == 1
    assert house.server.client.hget(keys.OWNER, "layout") == str(keys.LAYOUT)


# -- on demand


@pytest.mark.parametrize("everything", [False, True])
def test_repair_of_a_healthy_node_changes_nothing(house: House, everything: bool) -> None:
    house.seed("h.example/a", "h.example/b", "i.example/")
    house.store_page("h.example/a", "h.example/c")
    house.seed("h.example/a", force=True)
    house.tick(MARGIN + 5)
    before = house.refilled()
    epoch = house.frontier.nodes[0].epoch
    house.frontier.repair(everything)
    until(lambda: house.frontier.repairs()[0].phase == "done")
    assert house.refilled() == before
    assert house.frontier.nodes[0].epoch == epoch
    (report,) = house.frontier.repairs()
    assert report.everything is everything
    assert (report.total > 0) is everything


def test_a_redis_at_its_memory_limit_is_refilled_as_far_as_it_goes_and_opens(
    house: House,
) -> None:
    house.seed("h.example/a", "h.example/b")
    house.store_page("h.example/a", "h.example/c")
    house.tick(2)
    batch = house.seed("h.example/a", force=True)
    client = house.server.client
    client.delete(*client.keys("gc:{*"))
    client.config_set("maxmemory", "100kb")
    house.frontier.repair(everything=True)
    until(lambda: house.frontier.repairs()[0].phase == "done")
    assert [pending.id for pending in house.store.pending_seeds()] == [batch]
    client.config_set("maxmemory", 0)
    places = house.store.overflow_places()
    assert places, "what did not fit waits in the store"


def test_a_pending_batch_waits_until_a_node_knows_what_was_fetched(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.store.add_seeds(house.crawl.id, [Admission("http://h.example/a")], force=False)
    house.store_page("h.example/a", "h.example/b")
    house.tick(2)
    client = house.server.client
    client.delete(*client.keys("gc:{*"))
    upkeep = Upkeep(Service(house.frontier, house.store, duties=house.frontier.duties))
    go_on, replay = Event(), Job._replay

    def replay_later(job: Job, *given: Any) -> None:
        go_on.wait()
        replay(job, *given)

    monkeypatch.setattr(Job, "_replay", replay_later)
    house.frontier.repair(everything=True)
    assert upkeep._admit_pending() == {house.crawl.id}
    go_on.set()
    until(lambda: house.frontier.repairs()[0].phase == "done")
    assert upkeep._admit_pending() == set()
    assert house.waiting() == ["h.example/b"], "what was fetched is not asked for again"


def test_repair_all_mends_a_redis_that_lost_keys_unnoticed(house: House) -> None:
    house.seed("h.example/", "i.example/")
    house.tick(2 * MARGIN)
    client = house.server.client
    client.delete(*client.keys("gc:{*"))
    house.frontier.repair(everything=True)
    assert house.refilled().waiting == 2


def _final(house: House, name: str, state: Any) -> Final:
    url = f"http://{name}"
    return Final(
        crawl=house.crawl.id, fingerprint=house.frontier.fingerprint(url), url=url, state=state,
        kind="http_4xx", at_ms=1000,
    )  # fmt: skip
