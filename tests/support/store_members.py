"""The contract of stores about members and orders; part of a store's contract."""

from __future__ import annotations

from typing import TypeVar

import pytest
from msgspec.structs import replace

from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import (
    ALL,
    CrawlOptions,
    Facts,
    InForce,
    Member,
    NodeOptions,
    OrderChange,
)
from greencrawl.store.base import Store

T = TypeVar("T")

FACTS = Facts(
    pid=7, machine="böx", failures={"timeout": 3}, options={"greenlets": InForce(50, "order")}
)


def some(found: T | None) -> T:
    """Return the found value; it must exist."""
    assert found is not None
    return found


def member(id: str = "w-0", incarnation: int = 10, at_ms: int = 1000) -> Member:
    return Member(
        id=id, node=id.partition("-")[0], kind="worker", incarnation=incarnation,
        version="1.2", address="10.0.0.1", joined_ms=at_ms, facts=FACTS,
    )  # fmt: skip


class MembersContract:
    """See the module's text."""

    def test_a_member_is_written_once_for_each_incarnation(self, store: Store) -> None:
        first = member()
        assert store.put_member(first)
        assert not store.put_member(replace(first, joined_ms=2000)), "it is there already"
        assert not store.put_member(member(incarnation=9)), "an earlier life"
        assert store.members() == [first]
        later = member(incarnation=11, at_ms=3000)
        assert store.put_member(later)
        assert store.members() == [later], "nobody is listed twice"

    def test_a_member_that_left_can_join_again(self, store: Store) -> None:
        store.put_member(member())
        assert not store.member_left("w-0", 9, "lost", 1500), "another life of it"
        last = replace(FACTS, pages=3)
        assert store.member_left("w-0", 10, "löst", 1500, last)
        assert not store.member_left("w-0", 10, "stopped", 1600), "it is gone already"
        (gone,) = store.members()
        assert (gone.left_ms, gone.why, gone.facts) == (1500, "löst", last)
        assert store.put_member(replace(member(), joined_ms=2000))
        assert store.members() == [member()]

    def test_members_that_left_long_ago_are_forgotten_and_others_stay(self, store: Store) -> None:
        for number in range(4):
            store.put_member(member(f"w-{number}"))
        for number in range(3):
            store.member_left(f"w-{number}", 10, "stopped", 1000 * number + 1)
        assert store.drop_members(1001) == 1
        assert [one.id for one in store.members()] == ["w-1", "w-2", "w-3"]
        assert store.drop_members(0, keep=1) == 1
        assert [one.id for one in store.members()] == ["w-2", "w-3"]

    def test_a_node_without_members_is_forgotten_with_its_orders_and_the_log_says_by_whom(
        self, store: Store
    ) -> None:
        assert store.forget_node("w", "ann", 500) is None, "nobody knows it"
        for name in ("w-0", "w-1", "x-0"):
            store.put_member(member(name))
        store.put_orders("w", NodeOptions(greenlets=5, drain=True), (), "ann", 600)
        other = some(store.put_orders("x", NodeOptions(greenlets=6), (), "ann", 700))
        store.member_left("w-0", 10, "lost", 1000)
        assert store.forget_node("w", "bob", 2000) is None, "one of it is there"
        assert len(store.members()) == 3
        assert store.orders_revision() == other.revision
        store.member_left("w-1", 10, "stopped", 1000)
        gone = some(store.forget_node("w", "böb", 3000))
        assert gone.revision > other.revision
        assert [one.id for one in store.members()] == ["x-0"]
        assert store.orders().nodes == (other,)
        assert store.orders_log(1) == [
            OrderChange(
                revision=gone.revision, member="w", by_whom="böb", at_ms=3000,
                changed={"forgotten": True, "greenlets": None, "drain": None},
            )
        ]  # fmt: skip
        assert store.put_member(member("w-0")), "it is back"

    def test_a_node_that_has_only_orders_can_be_forgotten(self, store: Store) -> None:
        store.put_orders("w", NodeOptions(drain=True), (), "ann", 600)
        gone = some(store.forget_node("w", "bob", 2000))
        assert store.orders().nodes == ()
        assert store.orders_log(1)[0].changed == {"forgotten": True, "drain": None}
        assert store.forget_node("w", "bob", 3000) is None
        assert store.orders_revision() == gone.revision

    def test_orders_add_up_and_each_is_logged(self, store: Store) -> None:
        assert (store.orders_revision(), store.orders().nodes) == (0, ())
        first = some(store.put_orders("w", NodeOptions(greenlets=50, paused=True), (), "ann", 1000))
        assert first.options == NodeOptions(greenlets=50, paused=True)
        every = some(store.put_orders(ALL, NodeOptions(requests_per_second=2.5), (), "bob", 2000))
        assert every.revision > first.revision
        changed = some(store.put_orders("w", NodeOptions(greenlets=60), ("paused",), "böb", 3000))
        assert changed.options == NodeOptions(greenlets=60)
        found = store.orders()
        assert found.nodes == (every, changed)
        assert found.revision == changed.revision == store.orders_revision()
        log = [
            OrderChange(
                revision=changed.revision, member="w", changed={"greenlets": 60, "paused": None},
                by_whom="böb", at_ms=3000,
            ),
            OrderChange(
                revision=every.revision, member=ALL, changed={"requests_per_second": 2.5},
                by_whom="bob", at_ms=2000,
            ),
            OrderChange(
                revision=first.revision, member="w", changed={"greenlets": 50, "paused": True},
                by_whom="ann", at_ms=1000,
            ),
        ]  # fmt: skip
        assert store.orders_log() == log
        assert store.orders_log(1) == log[:1]
        assert store.orders_log(before=log[1].revision) == log[2:]
        assert store.orders_log(member=ALL) == log[1:2]
        assert store.drop_orders_log(9000) == 2
        assert store.orders_log() == log[:1]
        assert store.orders_revision() == changed.revision

    def test_an_order_that_changes_nothing_is_not_logged(self, store: Store) -> None:
        first = some(store.put_orders("w", NodeOptions(drain=True), (), "ann", 1000))
        assert store.put_orders("w", NodeOptions(drain=True), ("paused",), "bob", 2000) == first
        assert len(store.orders_log()) == 1

    def test_an_order_for_an_outdated_revision_is_refused(self, store: Store) -> None:
        first = some(store.put_orders("w", NodeOptions(greenlets=5), (), "ann", 1000, revision=0))
        assert store.put_orders("w", NodeOptions(greenlets=6), (), "bob", 2000, revision=0) is None
        assert store.orders().nodes == (first,)
        again = some(
            store.put_orders(
                "w", NodeOptions(greenlets=6), (), "bob", 2000, revision=first.revision
            )
        )
        assert again.options.greenlets == 6

    def test_a_noted_change_of_a_crawl_has_a_revision_until_the_crawl_is_deleted(
        self, store: Store, crawl: int
    ) -> None:
        order = some(store.put_orders(ALL, NodeOptions(drain=True), (), "ann", 1000))
        number = store.note_crawl_change(crawl, "news", {"delay": 2.0}, "ann", 1000)
        assert number > order.revision
        assert store.orders().crawls == {crawl: number}
        assert store.orders_log(crawl="news") == [
            OrderChange(
                revision=number, crawl="news", changed={"delay": 2.0}, by_whom="ann", at_ms=1000
            )
        ]
        store.delete_crawl(crawl)
        assert store.orders().crawls == {}
        store.note_crawl_change(crawl, "news", {"delay": 3.0}, "ann", 2000)
        assert store.orders().crawls == {}

    def test_options_of_a_crawl_change_by_compare_and_set(self, store: Store, crawl: int) -> None:
        known = store.crawl(crawl)
        slower = store.put_crawl("news", CrawlOptions(delay=5.0), [], revision=known.revision)
        assert slower.options.delay == 5.0
        late = store.put_crawl("news", CrawlOptions(delay=7.0), [], revision=known.revision)
        assert late == slower == store.crawl(crawl)
        with pytest.raises(UnknownCrawl):
            store.put_crawl("other", CrawlOptions(), [], revision=1)
