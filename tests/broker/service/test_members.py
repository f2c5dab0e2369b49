"""Members and orders at brokers that share a store: joining, following, and their display."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.broker.api.handlers import members as handlers
from greencrawl.broker.api.handlers.crawls import patch_crawl
from greencrawl.broker.api.messages import (
    CrawlChange,
    MembersQuery,
    OrderRequest,
    OrdersLogQuery,
)
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.service import members
from greencrawl.broker.service.members import Members, UnknownNode
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.records import (
    ALL,
    CrawlOptions,
    Facts,
    MemberReply,
    MemberRequest,
    NodeOptions,
)
from greencrawl.store import open_store
from tests.support.queue_double import QueueDouble

HERE = MemberRequest(id="w-0", node="w", kind="worker", incarnation=5, version="1", crawls=1)


class Rig:
    """Two brokers over one store; ``tell`` passes changes from the first to the second."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.queues = QueueDouble(), QueueDouble()
        self.queues[1].beats = self.queues[0].beats  # one Redis
        self.services = [Service(queue, self.store) for queue in self.queues]
        self.following = [gevent.spawn(one.members.run) for one in self.services]

    @property
    def members(self) -> tuple[Members, Members]:
        one, other = (service.members for service in self.services)
        return one, other

    def tell(self) -> None:
        """Pass what the first has announced to the second."""
        for _, crawls in self.queues[0].announced:
            self.queues[1].ordering.hear(crawls)
        self.queues[0].announced.clear()

    def close(self) -> None:
        gevent.killall(self.following)
        self.store.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_a_member_is_written_once_and_heard_at_any_broker(rig: Rig) -> None:
    one, other = rig.members
    one.follow(HERE)
    (joined,) = one.list()
    other.follow(replace(HERE, facts=Facts(pages=3)))
    (seen,) = one.list()
    assert (seen.status, seen.facts.pages) == ("here", 3)
    assert rig.store.members()[0].facts == Facts(), "as when it joined: beats write no row"
    assert seen.joined_ms == joined.joined_ms
    assert not other.follow(replace(HERE, incarnation=6)).superseded
    assert one.follow(HERE).superseded, "an earlier life of it"
    assert [member.incarnation for member in one.list()] == [6], "nobody is listed twice"


def test_a_member_that_is_not_heard_of_is_silent_and_one_that_left_is_shown_on_demand(
    rig: Rig,
) -> None:
    one, other = rig.members
    one.follow(HERE)
    rig.queues[0].beats.known.clear()
    assert [member.status for member in one.list()] == ["silent"]
    rig.store.member_left("w-0", 5, "lost", 1000)
    assert one.list() == []
    assert [member.status for member in one.list(gone=True)] == ["lost"]
    other.follow(HERE)
    assert [member.status for member in one.list()] == ["here"], "it is there again"
    other.follow(replace(HERE, leaving=True, why="stopped", facts=Facts(pages=9)))
    (left,) = one.list(gone=True)
    assert (left.status, left.why, left.facts.pages) == ("left", "stopped", 9)


def test_a_member_that_waits_at_one_broker_gets_an_order_of_another_broker_at_once(
    rig: Rig,
) -> None:
    one, other = rig.members
    first = other.follow(HERE)
    waiting = gevent.spawn(other.follow, replace(HERE, wait=20, crawls=first.next))
    gevent.sleep(0.01)
    ordered = one.order("w", NodeOptions(greenlets=50), by_whom="ann")
    assert ordered is not None
    began = monotonic()
    rig.tell()
    reply = waiting.get(timeout=5)
    assert monotonic() - began < 0.5
    assert (reply.revision, reply.options) == (ordered.revision, NodeOptions(greenlets=50))
    again = replace(HERE, revision=reply.revision, crawls=reply.next)
    assert other.follow(again) == replace(reply, next=reply.next), "it knows them by now"


def test_an_order_whose_message_is_lost_is_seen_at_the_next_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "LOOK_SECONDS", 0.05)
    one, other = rig.members
    other.follow(HERE)
    waiting = gevent.spawn(other.follow, replace(HERE, wait=20))
    gevent.sleep(0.01)
    one.order("w", NodeOptions(paused=True))
    waiting.join(5)
    assert waiting.ready(), "it waits still"
    assert waiting.value.options == NodeOptions(paused=True)


def test_orders_for_a_node_take_precedence_over_orders_for_all_nodes(rig: Rig) -> None:
    one, _ = rig.members
    one.follow(HERE)
    one.order("w", NodeOptions(greenlets=50))
    one.order(ALL, NodeOptions(greenlets=9, drain=True))
    revision, options = one.options_of("w")
    assert (revision, options) == (2, NodeOptions(greenlets=50, drain=True))
    assert one.options_of("other") == (2, NodeOptions(greenlets=9, drain=True))
    one.order("w", NodeOptions(), ("greenlets",))
    assert one.options_of("w") == (3, NodeOptions(greenlets=9, drain=True))
    with pytest.raises(UnknownNode):
        one.order("nobody", NodeOptions(drain=True))


def test_an_order_is_refused_if_the_kind_of_its_node_cannot_follow_it(rig: Rig) -> None:
    one, _ = rig.members
    for kind in ("broker", "logger"):
        one.follow(replace(HERE, id=kind, node=kind, kind=kind))
        with pytest.raises(InvalidConfig, match=f"a {kind} accepts only log_level"):
            one.order(kind, NodeOptions(processes=3, log_level="debug"))
        assert one.options_of(kind)[1] == NodeOptions(), "nothing of it holds"
        assert one.order(kind, NodeOptions(log_level="debug")) is not None
    one.order("broker", NodeOptions(), ("paused",))
    assert one.order(ALL, NodeOptions(processes=3)) is not None, "who cannot follow it need not"


def test_a_change_of_a_crawl_is_told_once_to_each_member_that_asks_for_changes(rig: Rig) -> None:
    _, other = rig.members
    crawl = rig.store.put_crawl("news", CrawlOptions(), ["a.example"])
    first = other.follow(HERE)
    assert first.crawls == {}
    changed = patch_crawl(rig.services[0], "news", CrawlChange({"delay": 3.0}, by="ann"))
    assert (changed.options.delay, changed.revision) == (3.0, crawl.revision + 1)
    rig.tell()
    gevent.sleep(0.05)
    told = other.follow(replace(HERE, crawls=first.next))
    assert told.crawls.keys() == {crawl.id}
    assert other.follow(replace(HERE, crawls=told.next)).crawls == {}
    assert other.follow(replace(HERE, crawls=0)).crawls == {}, "a process that just began"
    assert other.follow(replace(HERE, crawls=99)).crawls.keys() == {crawl.id}, (
        "the store is an older copy by now: rather once too often"
    )
    (entry,) = handlers.list_orders_log(rig.services[0], OrdersLogQuery(crawl="news")).items
    assert (entry.changed, entry.by_whom) == ({"delay": 3.0}, "ann")


def test_a_patch_of_a_crawl_keeps_other_options_and_changes_nothing_if_it_is_wrong(
    rig: Rig,
) -> None:
    service = rig.services[0]
    rig.store.put_crawl("news", CrawlOptions(depth=3, tries=2), ["a.example"])
    changed = patch_crawl(service, "news", CrawlChange({"depth": 4, "tries": None}))
    assert (changed.options.depth, changed.options.tries) == (4, CrawlOptions().tries)
    assert rig.queues[0].crawls[changed.id] == changed, "partitions are told"
    for wrong in ({"delay": -1}, {"no": 1}, {"slots": 2, "delay": 1.0}, {"seeds": ["x://"]}):
        with pytest.raises((HttpProblem, ValueError)):
            patch_crawl(service, "news", CrawlChange(wrong))
    with pytest.raises(HttpProblem, match="409"):
        patch_crawl(service, "news", CrawlChange({"depth": 5}, revision=changed.revision - 1))
    assert rig.store.crawl("news") == changed


def test_a_patch_of_a_crawl_keeps_a_change_that_another_made_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, store = rig.services[0], rig.store
    store.put_crawl("news", CrawlOptions(), ["a.example"])
    once = iter([True])
    put = store.put_crawl

    def late(*given: object, **more: object) -> object:
        if next(once, False):
            put("news", CrawlOptions(tries=9), ["a.example"])
        return put(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "put_crawl", late)
    changed = patch_crawl(service, "news", CrawlChange({"depth": 7}))
    assert (changed.options.depth, changed.options.tries) == (7, 9)


def test_members_join_and_follow_orders_even_without_redis(rig: Rig) -> None:
    one, _ = rig.members
    rig.queues[0].beats.away = True
    assert one.follow(HERE).options == NodeOptions()
    assert one.follow(HERE).options == NodeOptions()
    assert [member.status for member in one.list()] == ["silent"]
    rig.queues[0].beats.away = False
    one.follow(HERE)
    assert [member.status for member in one.list()] == ["here"]


def test_a_broker_that_could_not_read_the_orders_does_not_answer_that_there_are_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> int:
        raise Unavailable("the store")

    fresh = Members(rig.store, rig.queues[0].beats, rig.queues[0].ordering, lambda *_: None)
    fresh.follow(HERE)
    fresh = Members(rig.store, rig.queues[0].beats, rig.queues[0].ordering, lambda *_: None)
    monkeypatch.setattr(rig.store, "orders", away)
    with pytest.raises(Unavailable):
        fresh.follow(HERE)


def test_a_poll_of_a_member_ends_when_the_broker_stops(rig: Rig) -> None:
    service = rig.services[0]
    waiting = gevent.spawn(handlers.follow_orders, service, replace(HERE, wait=20))
    gevent.sleep(0.05)
    service.end_polls()
    with pytest.raises(Unavailable):
        waiting.get(timeout=5)


def test_orders_by_the_api_are_refused_for_unknown_nodes_and_older_revisions(
    rig: Rig,
) -> None:
    service = rig.services[0]
    assert isinstance(handlers.follow_orders(service, HERE), MemberReply)
    assert len(handlers.list_members(service, MembersQuery(node="w")).members) == 1
    assert handlers.list_members(service, MembersQuery(node="v")).members == ()
    with pytest.raises(HttpProblem, match="404"):
        handlers.patch_orders(service, OrderRequest("v", NodeOptions(drain=True)))
    first = handlers.patch_orders(service, OrderRequest("w", NodeOptions(drain=True)))
    with pytest.raises(HttpProblem, match="409"):
        handlers.patch_orders(service, OrderRequest("w", NodeOptions(drain=False), revision=0))
    assert handlers.get_orders(service).nodes == (first,)
    log = handlers.list_orders_log(service, OrdersLogQuery(limit=1))
    assert (len(log.items), log.next) == (1, first.revision)


def test_a_node_can_be_forgotten_once_it_is_lost_and_can_join_again(
    rig: Rig,
) -> None:
    service, (one, other) = rig.services[0], rig.members
    forget = OrderRequest("w", forget=True, by="ann")
    with pytest.raises(HttpProblem, match="404"):
        handlers.patch_orders(service, forget)
    one.follow(HERE)
    handlers.patch_orders(service, OrderRequest("w", NodeOptions(drain=True)))
    with pytest.raises(HttpProblem, match="409"):
        handlers.patch_orders(service, forget)
    rig.queues[0].beats.known.clear()
    with pytest.raises(HttpProblem, match="409"):
        handlers.patch_orders(service, forget)  # it is silent, but not lost yet
    one.follow(HERE)
    rig.store.member_left("w-0", 5, "lost", 1000)
    with pytest.raises(HttpProblem, match="409"):
        handlers.patch_orders(service, forget)  # it reports, so that mark is about to be removed
    rig.queues[0].beats.known.clear()
    with pytest.raises(InvalidConfig, match="must be the only order"):
        handlers.patch_orders(service, replace(forget, options=NodeOptions(drain=True)))
    gone = handlers.patch_orders(service, forget)
    assert rig.store.members() == []
    (last,) = handlers.list_orders_log(service, OrdersLogQuery(member="w", limit=1)).items
    assert (last.revision, last.by_whom) == (gone.revision, "ann")
    assert last.changed == {"forgotten": True, "drain": None}
    rig.tell()
    for broker in (one, other):
        reply = broker.follow(HERE)
        assert reply.options == NodeOptions(), "what it was ordered went with it"
        assert [member.status for member in broker.list()] == ["here"]


def test_orders_for_a_node_that_is_gone_can_be_taken_back_and_forgotten(rig: Rig) -> None:
    one, _ = rig.members
    one.follow(HERE)
    one.order("w", NodeOptions(greenlets=50, drain=True))
    one.order(ALL, NodeOptions(greenlets=9))
    one.follow(replace(HERE, leaving=True))
    assert rig.store.drop_members(epoch_ms() + 1) == 1
    try:
        changed = one.order("w", NodeOptions(), ("drain",))
    except UnknownNode as error:
        pytest.fail(f"its orders hold for ever: {error}")
    assert changed is not None
    assert changed.options == NodeOptions(greenlets=50)
    with pytest.raises(UnknownNode):
        one.forget(ALL)
    one.forget("w", "ann")
    assert [ordered.member for ordered in one.orders().nodes] == [ALL]
    with pytest.raises(UnknownNode):
        one.forget("w")
    with pytest.raises(UnknownNode):
        one.order("w", NodeOptions(drain=True))


@pytest.mark.parametrize("redis", [True, False], ids=["redis", "no redis just then"])
def test_a_node_that_comes_back_while_the_store_is_away_has_a_row_at_its_next_beat(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, redis: bool
) -> None:
    def away(_: object) -> bool:
        raise Unavailable("the store")

    one, other = rig.members
    beats = rig.queues[0].beats
    for broker in (one, other):
        broker.follow(HERE)
    beats.known.clear()
    rig.store.member_left("w-0", 5, "lost", 1000)
    one.forget("w")
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put_member", away)
        if not redis:
            patch.setattr(beats, "gone", lambda *_: None)
        with pytest.raises(Unavailable):
            one.follow(HERE)
    (other if redis else one).follow(HERE)
    assert [member.status for member in one.list()] == ["here"]
