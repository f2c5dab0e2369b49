"""The coordinator's duty moves between real brokers that are killed, frozen or cut off."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import CrawlOptions, Member
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.broker_process import BrokerProcess
from tests.support.effort import by_night
from tests.support.proxy import TcpProxy
from tests.support.raw_server import RawServer, answer
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until
from tests.support.watched import told
from tests.support.web import Web, WebSpec

TAKEN_SECONDS = 20.0
"""Another broker has the duty within this time."""


class Brokers:
    """Three brokers on one store and one Redis; their ids are in the order of their letters."""

    def __init__(self, folder: Path, redis: RedisServer, hook: RawServer) -> None:
        self._path = folder / "content.sqlite"
        url = f"sqlite:///{self._path}"
        self.store: Store = open_store(url)
        self.store.put_crawl("news", CrawlOptions(), ["a.example"])
        self.hook = hook
        self.of = {
            letter: BrokerProcess(
                folder / letter, worker_id=letter, store=url, alert=hook.url("/secret"),
                redis=redis.url,
            )
            for letter in "abc"
        }  # fmt: skip

    def events(self, letter: str) -> list[dict[str, Any]]:
        """Return the events in a broker's log."""
        if not (self.of[letter].folder / "log").exists():
            return []
        return [json.loads(line) for line in self.of[letter].log().splitlines()]

    @property
    def coordinator(self) -> str:
        """Return the letter of the broker that has the duty now, "" while none has."""
        taken = [
            (event["epoch"], letter) for letter in self.of for event in self.events(letter)
            if event["event"] == "duty_taken" and event["duty"] == "coordinator"
        ]  # fmt: skip
        held = self.store.duty_holder("coordinator")
        return max(taken)[1] if held and taken and max(taken)[0] == self.epoch() else ""

    def epoch(self) -> int:
        db = sqlite3.connect(self._path)
        try:
            sql = "SELECT epoch FROM duties WHERE name = 'coordinator'"
            return int(db.execute(sql).fetchone()[0])
        finally:
            db.close()

    def becomes(self, letter: str) -> None:
        wait_until(
            lambda: self.coordinator == letter, TAKEN_SECONDS, f"{letter} is the coordinator",
            every=0.1,
        )  # fmt: skip

    def lose(self, node: str) -> None:
        """Record a node as lost that never existed."""
        self.store.put_member(Member(id=f"{node}-0", node=node, kind="worker", incarnation=1))
        self.store.member_left(f"{node}-0", 1, "lost", epoch_ms())

    def find(self, node: str) -> None:
        """Let the node come back and stop in order."""
        self.store.put_member(Member(id=f"{node}-0", node=node, kind="worker", incarnation=2))
        self.store.member_left(f"{node}-0", 2, "stopped", epoch_ms())

    def freeze(self, letter: str) -> None:
        os.kill(self._pid(letter), signal.SIGSTOP)

    def go_on(self, letter: str) -> None:
        os.kill(self._pid(letter), signal.SIGCONT)

    def _pid(self, letter: str) -> int:
        process = self.of[letter].process
        assert process is not None
        return process.pid

    def messages(self, subject: str) -> list[str]:
        """Return the states of the webhook's messages about a subject."""
        return [state for _, about, state in told(self.hook.bodies) if about == subject]

    def hears(self, subject: str, state: str, seconds: float = 30.0) -> None:
        wait_until(lambda: state in self.messages(subject), seconds, f"{subject}: {state}")


@pytest.fixture
def brokers(tmp_path: Path, redis_server: RedisServer) -> Iterator[Brokers]:
    with ExitStack() as stack:
        hook = stack.enter_context(RawServer(answer()))
        made = Brokers(tmp_path, redis_server, hook)
        stack.callback(made.store.close)
        for broker in made.of.values():
            stack.callback(broker.kill)
        yield made
        assert "secret" not in str([made.events(letter) for letter in made.of])


def test_the_broker_with_the_highest_id_becomes_coordinator_when_the_old_one_dies_or_freezes(
    brokers: Brokers,
) -> None:
    brokers.of["a"].start()
    brokers.becomes("a")
    brokers.lose("w")
    brokers.of["b"].start()
    brokers.of["c"].start()
    brokers.hears("w", "began")
    assert brokers.coordinator == "a", "nobody is deposed"
    brokers.of["a"].kill()
    brokers.becomes("c")
    brokers.freeze("c")
    brokers.becomes("b")
    epoch = brokers.epoch()
    brokers.go_on("c")
    brokers.lose("x")
    brokers.hears("x", "began")
    assert brokers.epoch() == epoch, "it takes nothing back"
    assert brokers.messages("w") == brokers.messages("x") == ["began"]
    for letter in "bc":
        assert brokers.of[letter].stop() == 0
    assert brokers.store.duty_holder("coordinator") == "", "given back"


@by_night
def test_a_coordinator_that_was_frozen_for_a_minute_before_a_write_writes_nothing(
    brokers: Brokers,
) -> None:
    for letter in "cab":
        brokers.of[letter].start()
    brokers.becomes("c")
    lock = sqlite3.connect(brokers._path, isolation_level=None)
    brokers.lose("w")
    lock.execute("BEGIN IMMEDIATE")
    time.sleep(5.5)  # it wants to write the alert, and waits
    brokers.freeze("c")
    lock.execute("ROLLBACK")
    lock.close()
    brokers.becomes("b")
    brokers.hears("w", "began")
    time.sleep(60)
    before = [alert for alert in brokers.store.alerts() if alert.subject == "w"]
    brokers.go_on("c")
    wait_until(
        lambda: any(
            event["event"] in ("coordinator_superseded", "duty_lost")
            for event in brokers.events("c")
        ),
        TAKEN_SECONDS,
        "it finds out",
    )
    time.sleep(10)
    assert brokers.coordinator == "b"
    assert [alert for alert in brokers.store.alerts() if alert.subject == "w"] == before
    assert brokers.messages("w") == ["began"]
    brokers.find("w")
    brokers.hears("w", "over", 60.0)
    brokers.of["b"].kill()
    brokers.becomes("c")
    time.sleep(10)
    assert brokers.messages("w") == ["began", "over"]


@by_night
def test_a_coordinator_that_is_cut_off_from_redis_leaves_the_duty_to_another_broker(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with ExitStack() as stack:
        hook = stack.enter_context(RawServer(answer()))
        brokers = Brokers(tmp_path, redis_server, hook)
        stack.callback(brokers.store.close)
        proxy = stack.enter_context(TcpProxy(("127.0.0.1", redis_server.port)))
        brokers.of["c"].settings["redis"] = f"redis://127.0.0.1:{proxy.port}"
        for letter in "cb":
            stack.callback(brokers.of[letter].kill)
            brokers.of[letter].start()
        brokers.becomes("c")
        proxy.hold()
        brokers.becomes("b")
        proxy.mend()
        time.sleep(10)
        assert brokers.coordinator == "b"


@by_night
def test_an_alert_of_an_unwritable_store_is_sent_once_at_its_beginning_and_once_at_its_end(
    brokers: Brokers,
) -> None:
    for letter in "cb":
        brokers.of[letter].start()
    brokers.becomes("c")
    lock = sqlite3.connect(brokers._path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    brokers.hears("store", "began", 60.0)
    brokers.of["c"].kill()
    time.sleep(30)
    assert brokers.messages("store") == ["began"]
    client = brokers.of["b"].client()
    assert [one.kind for one in client.alerts()] == ["store_not_writable"]
    lock.execute("ROLLBACK")
    lock.close()
    brokers.hears("store", "over", 90.0)
    time.sleep(15)
    assert brokers.messages("store") == ["began", "over"]
    assert client.alerts() == []


@by_night
def test_an_alert_of_a_hook_that_fails_in_a_short_crawl_is_sent_at_its_beginning_and_end(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    broken = WebSpec(hosts=1, pages=12, titles=dict.fromkeys(range(12), "broken"))
    with (
        RawServer(answer()) as hook,
        Web(broken, tmp_path / "web.log") as web,
        System(tmp_path / "system", [redis_server.url], alert=hook.url()) as system,
    ):
        system.start()
        system.crawl(web.seeds(), name="brief", delay=0, hook="tests.support.picky_hook")
        system.wait_done(20, "brief")
        assert told(hook.bodies) == [], "nobody can know it yet"
        began, over = (("hook_failing", "brief", state) for state in ("began", "over"))
        wait_until(lambda: began in told(hook.bodies), 90, "began")
        time.sleep(150)
        assert told(hook.bodies) == [began], "nobody has mended it"
        system.call("DELETE", "/v1/crawls/brief")
        wait_until(lambda: over in told(hook.bodies), 120, "over")
        time.sleep(75)
        assert told(hook.bodies) == [began, over]
