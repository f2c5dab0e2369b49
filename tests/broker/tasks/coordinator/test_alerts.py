"""The reasons for alerts; each alert is sent once, whichever broker is the coordinator."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.tasks.coordinator import alerts as alerts_module
from greencrawl.broker.tasks.coordinator import outage as outage_module
from greencrawl.broker.tasks.coordinator import webhook as webhook_module
from greencrawl.broker.tasks.coordinator.alerts import (
    FORGOTTEN_MS,
    GONE_SECONDS,
    Alerts,
    CrawlWatch,
    full_disks,
    lost_nodes,
    owed,
)
from greencrawl.broker.tasks.coordinator.coordinator import CHECK_SECONDS
from greencrawl.broker.tasks.coordinator.outage import FAILING_SECONDS
from greencrawl.broker.tasks.coordinator.webhook import (
    LATE_MS,
    AlertSender,
    Message,
    NotDelivered,
    Webhook,
    next_message,
)
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.records import (
    Alert,
    Crawl,
    CrawlOptions,
    CrawlStats,
    Facts,
    HookCount,
    Member,
)
from tests.support.certificates import authority, signed
from tests.support.raw_server import RawServer, answer, send, send_then_stall
from tests.support.store_hooks import BROKEN, stored
from tests.support.watched import Rig, told


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    made = Rig(tmp_path)
    yield made
    made.stop()


# -- from findings to open alerts


def looked(found: dict[Any, Any], known: list[Alert], book: Alerts, now: float) -> list[Alert]:
    changes = book.changes(known, found, now, round(now * 1000))
    rows = {(one.kind, one.subject): one for one in [*known, *changes.put]}
    for one in changes.forget:
        del rows[one.kind, one.subject]
    return [one for one in rows.values() if not one.over_ms]


def test_an_alert_begins_when_its_cause_has_lasted_and_ends_when_the_cause_stays_away() -> None:
    book, open_ = Alerts(), list[Alert]()
    owes = {"links_owed": {"n1": "It is owed."}}
    open_ = looked(owes, open_, book, 1000.0)
    assert [(one.since_ms, one.began_ms) for one in open_] == [(1_000_000, 0)]
    open_ = looked(owes, open_, book, 1299.9)
    assert [one.began_ms for one in open_] == [0]
    open_ = looked(owes, open_, book, 1300.0)
    assert [one.began_ms for one in open_] == [1_300_000]
    none: dict[Any, Any] = {"links_owed": {}}
    open_ = looked(none, open_, book, 1400.0)
    open_ = looked(owes, open_, book, 1420.0)
    open_ = looked(none, open_, book, 1440.0)
    open_ = looked(none, open_, book, 1439.9 + GONE_SECONDS)
    assert len(open_) == 1, "it was seen in between"
    assert looked(none, open_, book, 1440.0 + GONE_SECONDS) == []


def test_a_cause_that_did_not_last_is_forgotten_and_an_unknown_one_changes_no_alert() -> None:
    book = Alerts()
    seen = looked({"links_owed": {"n1": "."}}, [], book, 1.0)
    assert looked({"links_owed": None}, seen, book, 900.0) == seen
    assert looked({"links_owed": {"n1": None}}, seen, book, 900.0) == seen
    assert looked({}, seen, book, 900.0) == seen
    assert looked({"links_owed": {}}, seen, book, 2.0) == []


def test_the_number_of_open_alerts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts_module, "OPEN", 3)
    many = {"node_lost": {f"w-{n}": "." for n in range(9)}}
    assert len(looked(many, [], Alerts(), 1.0)) == 3


# -- the findings


def member(name: str, node: str, left_ms: int = 0, why: str = "", **facts: Any) -> Member:
    return Member(
        id=name, node=node, kind="worker", incarnation=1, left_ms=left_ms, why=why,
        facts=Facts(**facts),
    )  # fmt: skip


def test_a_node_is_lost_when_none_of_its_members_is_there_and_the_last_was_lost() -> None:
    some = [
        member("a-0", "a", 5, "lost"), member("a-1", "a"),
        member("b-0", "b", 5, "lost"), member("b-1", "b", 4, "stopped"),
        member("c-0", "c", 4, "lost"), member("c-1", "c", 5, "stopped"),
        member("d-0", "d", 5, "stopped"),
    ]  # fmt: skip
    assert set(lost_nodes(some, 10)) == {"b"}
    assert lost_nodes(some, 5 + FORGOTTEN_MS) == {}


def test_a_broker_that_was_killed_and_started_on_another_port_is_not_lost() -> None:
    killed = Member(
        id="m-broker-1", node="m-broker-1", kind="broker", incarnation=1, left_ms=1_000_000,
        why="lost", facts=Facts(machine="m"),
    )  # fmt: skip
    other = replace(killed, id="m-broker-2", node="m-broker-2", left_ms=0, why="")
    assert lost_nodes([killed, replace(other, joined_ms=960_000)], 1_000_000) == {}
    for stands in (
        replace(other, joined_ms=1000),
        replace(other, joined_ms=960_000, facts=Facts(machine="n")),
        replace(other, joined_ms=960_000, kind="worker"),
    ):
        assert set(lost_nodes([killed, stands], 1_000_000)) == {"m-broker-1"}


def test_a_disk_counts_as_full_by_the_reports_of_present_processes() -> None:
    some = [
        member("a-0", "a", disk_used=0.9), member("b-0", "b", disk_used=0.95, machine="m"),
        member("b-1", "b", disk_used=0.96, machine="m"), member("c-0", "c", 5, disk_used=1.0),
    ]  # fmt: skip
    assert full_disks(some) == {"m": "A disk of m is 96.0% full."}


def test_a_redis_node_that_is_owed_links_is_named_by_its_address() -> None:
    assert set(owed({"n1": 1, "n2": 1}, {"n1": "redis://a"})) == {"redis://a", "n2"}


CRAWL = Crawl(id=1, name="news", state="active", options=CrawlOptions(), roots=())


def counted(**counts: Any) -> list[tuple[Crawl, CrawlStats]]:
    return [(CRAWL, CrawlStats(crawl="news", state="active", **counts))]


def test_a_crawl_stands_still_when_urls_wait_and_nothing_changes() -> None:
    watch = CrawlWatch()
    assert watch.stuck is None

    def see(seen: list[tuple[Crawl, CrawlStats]], crawls: list[Crawl]) -> None:
        watch.look(seen, crawls, lambda _, after_ms: (0, after_ms))

    see(counted(waiting=3, finished=5), [CRAWL])
    assert watch.stuck == {"news": None}, "there is nothing to compare yet"
    see(counted(waiting=2, finished=6), [CRAWL])
    assert watch.stuck == {}
    see(counted(waiting=2, finished=6, leased=1), [CRAWL])
    assert watch.stuck == {}
    see(counted(waiting=2, finished=6), [CRAWL])
    assert watch.stuck == {"news": "The crawl news stands still: 2 URLs wait, nothing is fetched, "
                           "and nothing changes."}  # fmt: skip
    see(counted(finished=6), [CRAWL])
    assert watch.stuck == {}
    see(counted(stuck=True), [CRAWL])
    assert set(watch.stuck) == {"news"}
    see([], [CRAWL])
    assert set(watch.stuck) == {"news"}, "it was not counted"
    see([], [])
    assert watch.stuck == {}


ENDED = replace(CRAWL, state="done", reason="finished")


def failing(pages: int, failed: int, crawl: Crawl = CRAWL) -> CrawlStats:
    hooks = (HookCount("on_page", "m", failed),) if failed else ()
    return CrawlStats(crawl="news", state=crawl.state, stored=pages, hooks=hooks)


def look(
    watch: CrawlWatch,
    pages: int,
    failed: int,
    crawl: Crawl = CRAWL,
    *,
    first: Collection[int] = (),
    unmended: Collection[str] = (),
) -> dict[str, str | None] | None:
    """Let ``watch`` see this many pages; the hook failed ``failed`` times, the nth time at n ms."""

    def since(_crawl: int, after_ms: int) -> tuple[int, int]:
        return failed - after_ms, failed

    watch.look([(crawl, failing(pages, failed, crawl))], [crawl], since, first, unmended)
    return watch.failing


def test_a_hook_counts_as_failing_if_it_failed_on_half_of_the_pages_since_the_last_look() -> None:
    watch = CrawlWatch()
    assert look(watch, 100, 50) == {"news": None}, "that was before"
    assert look(watch, 109, 59) == {"news": None}, "too few pages"
    assert look(watch, 110, 54) == {}
    assert look(watch, 120, 59) == {"news": "The hook of the crawl news failed on 5 of 10 pages."}
    assert set(look(watch, 121, 59) or ()) == {"news"}, "until there is something else to say"
    assert look(watch, 140, 59) == {}


def test_a_hook_is_judged_by_all_pages_of_a_crawl_that_is_seen_for_the_first_time() -> None:
    watch = CrawlWatch()
    assert look(watch, 30, 15, first={1}) == {
        "news": "The hook of the crawl news failed on 15 of 30 pages."
    }
    assert look(watch, 60, 15, first={1}) == {}, "only once"


def test_a_hook_is_judged_at_the_end_of_its_crawl_and_later_by_the_pages_since_then() -> None:
    watch = CrawlWatch()
    look(watch, 20, 0, first={1})
    assert look(watch, 30, 10, ENDED) == {
        "news": "The hook of the crawl news failed on 10 of 10 pages."
    }
    watch.look([], [ENDED], lambda _, after_ms: (0, after_ms), (), {"news"})
    assert watch.failing == {"news": None}, "nobody has mended it"
    watch.look([], [ENDED], lambda _, after_ms: (0, after_ms))
    assert watch.failing == {}, "somebody has"
    assert look(watch, 33, 13) == {}, "too few pages"
    assert look(watch, 40, 18) == {"news": "The hook of the crawl news failed on 8 of 10 pages."}


def test_the_hook_of_a_short_run_is_judged_by_all_pages_of_that_run() -> None:
    watch = CrawlWatch()
    look(watch, 20, 0, first={1})
    assert look(watch, 23, 3, ENDED) == {}, "these are the last pages of a long run"
    assert look(watch, 26, 5, ENDED) == {
        "news": "The hook of the crawl news failed on 2 of 3 pages."
    }
    assert look(watch, 26, 5, ENDED, unmended={"news"}) == {"news": None}, "no page came"
    assert look(watch, 27, 5, ENDED, unmended={"news"}) == {"news": None}, "others are not mended"
    assert look(watch, 28, 5, ENDED) == {}


def test_the_hook_of_a_short_crawl_is_judged_by_all_its_pages_when_the_crawl_ends() -> None:
    watch = CrawlWatch()
    assert look(watch, 3, 2, first={1}) == {}, "it goes on"
    assert look(watch, 4, 3, ENDED) == {
        "news": "The hook of the crawl news failed on 3 of 4 pages."
    }


@pytest.mark.parametrize("seen", [(), (4,)], ids=["it ended between", "it goes on"])
def test_the_next_coordinator_judges_a_hook_by_all_pages_of_a_short_crawl_that_ends(
    seen: tuple[int, ...],
) -> None:
    watch = CrawlWatch()
    for pages in seen:
        assert look(watch, pages, pages) == {"news": None}
    assert look(watch, 7, 7, ENDED) == {
        "news": "The hook of the crawl news failed on 7 of 7 pages."
    }


class Crawling:
    """Crawls whose hook fails, by the clock of a rig."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("greencrawl.store.common.epoch_ms", lambda: rig.now_ms)
        self.rig, self.stats = rig, dict[str, tuple[int, int]]()
        monkeypatch.setattr(rig.queue, "stats", self._stats)
        for broker in rig.brokers:
            monkeypatch.setattr(broker.service, "with_hook", lambda _, found: found)

    def _stats(self, crawl: Crawl, _: object = None) -> CrawlStats:
        pages, failed = self.stats.get(crawl.name, (0, 0))
        return replace(failing(pages, failed, crawl), crawl=crawl.name)

    def count(self, name: str, pages: int, failed: int) -> None:
        """Count ``pages`` in all; the hook has failed on ``failed`` of them, one after another."""
        id_ = self.rig.store.crawl(name).id
        for number in range(self.stats.get(name, (0, 0))[1], failed):
            self.rig.store.commit(stored(id_, number, self.rig.now_ms, on_page=BROKEN))
        self.stats[name] = pages, failed

    def mend(self, name: str) -> None:
        """Run the hook again on all pages where it failed."""
        id_ = self.rig.store.crawl(name).id
        for number in range(self.stats[name][1]):
            self.rig.store.commit(stored(id_, number, self.rig.now_ms))

    def run(self, name: str, pages: int, failed: int) -> None:
        """Make the crawl, if it is new, and end it with ``pages`` in all."""
        options = CrawlOptions(hook="hooks.mine")
        id_ = self.rig.store.put_crawl(name, options, ["a.example"]).id
        self.rig.store.set_state(id_, "active")
        self.count(name, pages, failed)
        self.rig.now += 5
        self.rig.store.set_state(id_, "done", "finished")


def test_a_failing_hook_of_a_short_crawl_is_reported_once_and_once_when_it_is_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawServer(answer()) as server:
        hook = Webhook(server.url())
        one, other = rig.broker("b-2", hook), rig.broker("b-1", hook)
        crawling = Crawling(rig, monkeypatch)
        one.look()
        crawling.run("brief", 20, 20)
        crawling.run("good", 20, 1)
        rig.passed(75, one)
        assert one.tell()

        def heard() -> list[tuple[str, str, str]]:
            return [one for one in told(server.bodies) if one[0] == "hook_failing"]

        began, over = (("hook_failing", "brief", state) for state in ("began", "over"))
        assert heard() == [began]
        assert "on 20 of 20 pages" in json.loads(server.bodies[0])["text"]
        rig.vacate(one)
        rig.silence("b-2")
        other.look()
        assert other.holds
        rig.passed(300, other)
        assert other.tell()
        assert heard() == [began], "the next one has nothing to add"
        crawling.mend("brief")
        rig.passed(180, other)
        assert other.tell()
        assert heard() == [began, over]
        crawling.run("brief", 40, 21)
        crawling.run("brief", 60, 41)
        rig.passed(180, other)
        assert other.tell()
        assert heard()[2:] == [began], "it failed again"


@pytest.mark.parametrize("mended", ["run again", "deleted"])
def test_the_hook_of_a_crawl_that_ended_is_reported_until_it_is_mended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, mended: str
) -> None:
    one, other = rig.broker("b-2"), rig.broker("b-1")
    crawling = Crawling(rig, monkeypatch)
    one.look()
    crawling.run("brief", 2, 1)
    crawl = rig.store.crawl("brief").id
    rig.passed(300, one)
    assert [one.subject for one in rig.alerts] == ["brief"]
    rig.vacate(one)
    rig.silence("b-2")
    other.look()
    assert other.holds
    rig.passed(300, other)
    assert [one.subject for one in rig.alerts if one.kind == "hook_failing"] == ["brief"]
    if mended == "deleted":
        rig.store.delete_crawl(crawl)
    else:
        crawling.mend("brief")
    rig.passed(180, other)
    assert [one.subject for one in rig.alerts if one.kind == "hook_failing"] == []


def test_the_next_coordinator_does_not_judge_pages_that_the_previous_one_has_judged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = rig.broker("b-2"), rig.broker("b-1")
    crawling = Crawling(rig, monkeypatch)
    one.look()
    id_ = rig.store.put_crawl("long", CrawlOptions(), ["a.example"]).id
    rig.store.set_state(id_, "active")
    crawling.count("long", 100, 100)
    rig.passed(75, one)
    assert [one.subject for one in rig.alerts] == ["long"]
    crawling.count("long", 120, 100)
    rig.passed(180, one)
    assert rig.alerts == []
    rig.vacate(one)
    rig.silence("b-2")
    other.look()
    assert other.holds
    rig.passed(90, other)
    failing = [one.subject for one in rig.alerts if one.kind == "hook_failing"]
    assert failing == [], "though it failed on most of all pages"


# -- each is sent once, whichever broker is the coordinator


def test_each_alert_is_sent_once_when_it_begins_and_once_when_it_is_over(rig: Rig) -> None:
    with RawServer(answer(status="204 No Content")) as server:
        hook = Webhook(server.url("/hook"))
        one, other, third = (rig.broker(name, hook) for name in ("b-3", "b-2", "b-1"))
        rig.join("w-0", node="w")
        one.look()
        rig.silence("w-0")
        rig.passed(40, one)
        assert one.tell()
        assert told(server.bodies) == [("node_lost", "w", "began")]
        rig.vacate(one)
        rig.silence("b-3")
        other.look()
        assert other.holds
        rig.passed(60, other)
        assert other.tell()
        rig.join("w-0", node="w")
        rig.passed(5, other)
        rig.vacate(other)
        rig.silence("b-2")
        third.look()
        assert third.holds
        rig.passed(GONE_SECONDS + 5, third)
        for broker in (one, other):  # they believe that they have the duty
            with pytest.raises(DutyLost):
                broker.tell()
        assert third.tell()
        began, over = told(server.bodies)[0], ("node_lost", "w", "over")
        assert [message for message in told(server.bodies) if message[1] == "w"] == [began, over]
        first, last = (json.loads(server.bodies[n]) for n in (0, -1))
        ids = [json.loads(body)["id"] for body in server.bodies]
        assert len(set(ids)) == len(ids)
        assert first["began_ms"] == json.loads(server.bodies[ids.index(first["id"])])["began_ms"]
        assert last["text"]


def test_the_next_coordinator_sends_alerts_that_the_previous_one_could_not_deliver(
    rig: Rig,
) -> None:
    replies = [send(b""), answer(status="500 Oops"), answer(), answer()]
    with RawServer(lambda sock: replies.pop(0)(sock)) as server:
        hook = Webhook(server.url())
        one, other = rig.broker("b-2", hook), rig.broker("b-1", hook)
        rig.join("w-0", node="w")
        one.look()
        rig.silence("w-0")
        rig.passed(40, one)
        assert not one.tell()
        assert not one.tell()
        rig.join("w-0", node="w")
        rig.passed(GONE_SECONDS + 2 * CHECK_SECONDS, one)
        rig.vacate(one)
        other.look()
        rig.now += 1.5
        other.look()
        assert other.holds
        assert other.tell()
        assert told(server.bodies)[2:] == [("node_lost", "w", "began"), ("node_lost", "w", "over")]
        assert other.tell()
        assert len(server.bodies) == 4


def test_the_alert_of_a_lost_node_ends_when_the_node_is_forgotten(rig: Rig) -> None:
    with RawServer(answer()) as server:
        broker = rig.broker("b", Webhook(server.url()))
        rig.join("w-0", node="w")
        broker.look()
        rig.silence("w-0")
        rig.passed(600, broker)
        assert broker.tell()
        assert told(server.bodies) == [("node_lost", "w", "began")]
        broker.service.members.forget("w", "ann")
        rig.passed(GONE_SECONDS + 2 * CHECK_SECONDS, broker)
        assert broker.tell()
        assert told(server.bodies)[1:] == [("node_lost", "w", "over")]
        assert rig.alerts == []


def put(rig: Rig, *alerts: Alert) -> None:
    rig.store.put_alerts(alerts)


def alert(subject: str, **more: Any) -> Alert:
    return Alert(
        kind="node_lost", subject=subject, text="It is löst.", since_ms=1000, began_ms=1000, **more
    )


class Picky(Webhook):
    """Refuses messages about ``bad``, and tells when one about ``good`` came."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9/")
        self.refused, self.came = Event(), Event()

    def post(self, message: Message) -> None:
        if message.subject == "bad":
            self.refused.set()
            raise NotDelivered("it answered 400", refused=True)
        self.came.set()


def test_the_next_alert_does_not_wait_until_one_that_was_refused_is_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.tasks.coordinator.webhook.FIRST_SECONDS", 60.0)
    webhook = Picky()
    sender = AlertSender(webhook, lambda: rig.store)
    sender.start()
    try:
        for subject, happens in (("bad", webhook.refused), ("good", webhook.came)):
            rig.store.put_alerts(
                [Alert(kind="node_lost", subject=subject, text="x", since_ms=1, began_ms=1)]
            )
            sender.wake()
            assert happens.wait(10), subject
            gevent.sleep(0)
    finally:
        sender.stop()


def test_a_message_that_is_refused_holds_up_no_other_and_is_dropped_at_last(rig: Rig) -> None:
    def reply(sock: Any) -> object:
        bad = json.loads(server.bodies[-1])["subject"] == "bad"
        return answer(status="400 Bad Request" if bad else "200 OK")(sock)

    with RawServer(reply) as server:
        broker = rig.broker("b", Webhook(server.url()))
        broker.look()
        put(rig, alert("bad"), alert("good"))
        assert not broker.tell()
        assert [subject for _, subject, _ in told(server.bodies)] == ["bad", "good"]
        put(rig, alert("bad", over_ms=rig.now_ms))
        assert not broker.tell()
        put(rig, alert("bad", over_ms=rig.now_ms - LATE_MS))
        assert broker.tell()
        assert rig.store.untold_alerts() == []


def test_a_broker_that_is_not_the_coordinator_sends_no_alert(rig: Rig) -> None:
    with RawServer(answer()) as server:
        hook = Webhook(server.url())
        one, other = rig.broker("b-2", hook), rig.broker("b-1", hook)
        one.look()
        put(rig, alert("w"))
        assert other.tell()
        assert server.bodies == []


# -- the webhook


def test_an_alert_message_is_json_with_a_stable_id(rig: Rig) -> None:
    with RawServer(answer()) as server:
        url = server.url("/a/b?token=s%20x").replace("http://", "http://me:pa%20ss@")
        seen = alert("wörker", over_ms=2000)
        Webhook(url).post(next_message(seen))
        Webhook(url).post(next_message(replace(seen, told=1)))
    assert server.paths == ["/a/b?token=s%20x"] * 2
    pair = b64encode(b"me:pa ss").decode()
    assert f"Authorization: Basic {pair}\r\n" in server.requests[0]
    assert "Content-Type: application/json\r\n" in server.requests[0]
    assert json.loads(server.bodies[0]) == {
        "id": "node_lost/wörker/1000/began", "state": "began", "kind": "node_lost",
        "subject": "wörker", "text": "It is löst.", "began_ms": 1000, "over_ms": 0,
    }  # fmt: skip
    over = json.loads(server.bodies[1])
    assert (over["state"], over["over_ms"]) == ("over", 2000)
    assert over["id"] == "node_lost/wörker/1000/over"


@pytest.mark.parametrize(
    ("behaviour", "refused"),
    [
        (send(b""), False), (send(b"nonsense\r\n\r\n"), False), (answer(status="503 Away"), False),
        (answer(status="302 Found", location="http://elsewhere.example/"), False),
        (answer(status="429 Slow Down"), False), (answer(status="404 Not Found"), True),
        (send_then_stall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"), False),
    ],
)  # fmt: skip
def test_an_alert_is_not_delivered_unless_the_webhook_answers_with_success(
    monkeypatch: pytest.MonkeyPatch, behaviour: Any, refused: bool
) -> None:
    monkeypatch.setattr(webhook_module, "ANSWER_SECONDS", 0.1)
    with RawServer(behaviour) as server, pytest.raises(NotDelivered) as caught:
        Webhook(server.url("/secret-path?token=secret")).post(next_message(alert("w")))
    assert caught.value.refused == refused
    assert "secret" not in str(caught.value)


def test_a_webhook_fails_if_nobody_listens_or_its_certificate_is_unknown(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed(authority(tmp_path), "own", host="localhost"))
    with RawServer(answer(), tls=context) as server, pytest.raises(NotDelivered):
        Webhook(server.url("/", "localhost")).post(next_message(alert("w")))
    with pytest.raises(NotDelivered, match="refused"):
        Webhook(server.url().replace("https", "http")).post(next_message(alert("w")))


def test_an_undelivered_alert_is_sent_again_with_growing_pauses_and_no_secret_in_the_log(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []

    class Hasty(Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:
                return super().wait()
            pauses.append(timeout)
            return False

    replies = [answer(status="500 Oops")] * 4 + [answer()]
    with RawServer(lambda sock: replies.pop(0)(sock)) as server:
        broker = rig.broker("b", Webhook(server.url("/secret?token=secret")))
        broker.look()
        put(rig, alert("w"))
        sender = broker.coordinator._alert_sender
        assert sender is not None
        sender._due = Hasty()
        sender.start()
        sender.wake()
        with gevent.Timeout(5):
            while rig.store.untold_alerts():
                gevent.sleep(0.001)
        sender.stop()
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    said = capsys.readouterr().err
    assert said.count("alert_not_delivered") == 4
    assert "secret" not in said


# -- the store takes no writes


def test_an_outage_of_the_store_is_reported_once_and_its_end_by_the_next_coordinator(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawServer(answer()) as server:
        hook = Webhook(server.url())
        one, other = rig.broker("b-2", hook), rig.broker("b-1", hook)
        one.look()
        assert rig.queue.outages.now_writable

        def refuse(*_: Any) -> Any:
            raise Unavailable("disk full")

        with monkeypatch.context() as broken:
            broken.setattr(type(rig.store), "take_duties", refuse)
            for broker in (one, other):
                broker.service.duties.want("upkeep")
                with pytest.raises(Unavailable):
                    broker.service.duties.renew()
                broker.coordinator._outage.look()
            later = monotonic() + FAILING_SECONDS
            broken.setattr(outage_module, "monotonic", lambda: later)
            one.coordinator._outage.look()
            assert rig.queue.outages.note is None, "somebody else has just written"
            rig.queue.outages.now_writable = False  # in time
            one.coordinator._outage.look()
            other.coordinator._outage.look()
            with gevent.Timeout(5):
                while not (note := rig.queue.outages.note) or not note.told:
                    gevent.sleep(0.001)
        rig.vacate(one)
        rig.silence("b-2")
        other.look()
        assert other.holds
        assert rig.queue.outages.note is None
        other.tell()
        kinds = [(kind, state) for kind, _, state in told(server.bodies)]
        assert kinds == [("store_not_writable", "began"), ("store_not_writable", "over")]
        assert "disk full" in json.loads(server.bodies[0])["text"]


def test_a_store_that_does_not_answer_counts_as_not_writable(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, answered = rig.broker("b"), Event()
    broker.service.duties.want("upkeep")
    monkeypatch.setattr(type(rig.store), "take_duties", lambda *_: answered.wait() and {})
    renewing = gevent.spawn(broker.service.duties.renew)
    gevent.sleep(0)
    broker.coordinator._outage.look()
    assert rig.queue.outages.note is None
    later = monotonic() + FAILING_SECONDS
    monkeypatch.setattr(outage_module, "monotonic", lambda: later)
    broker.coordinator._outage.look()
    assert rig.queue.outages.note is not None
    rig.queue.outages.end()
    answered.set()
    renewing.get()
    broker.coordinator._outage.look()
    assert rig.queue.outages.note is None
