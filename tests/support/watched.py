"""Brokers that share a store and compete for the coordinator's duty, without a Redis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from greencrawl.broker.frontier.coordination.duties import COORDINATOR
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.coordinator.coordinator import CHECK_SECONDS, Coordinator, Watched
from greencrawl.broker.tasks.coordinator.webhook import Webhook
from greencrawl.schema.records import Alert, CrawlOptions, Facts, Member
from greencrawl.store import open_store
from greencrawl.store.base import MINUTE_MS
from tests.support.queue_double import QueueDouble

START_MS = 1_900_000_000_000 // MINUTE_MS * MINUTE_MS


class Broker:
    """One of these brokers, by its id; its greenlets are not started."""

    def __init__(self, rig: Rig, name: str, webhook: Webhook | None, store: Any) -> None:
        self.name, self._rig = name, rig
        self.service = Service(rig.queue, store, clock=lambda: rig.now)
        self.coordinator = Coordinator(self.service, Watched(name, webhook))

    def look(self) -> None:
        self.coordinator.look(self._rig.now_ms)

    @property
    def holds(self) -> bool:
        return self._rig.store.duty_holder(COORDINATOR) == self.service.duties.holder

    def tell(self) -> bool:
        assert self.coordinator._alert_sender is not None
        return self.coordinator._alert_sender.tell(self._rig.now_ms)


class Rig:
    """``now`` is the clock of all in seconds; a crawl ``news`` is active."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.queue = QueueDouble()
        self.store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.crawl = self.store.put_crawl("news", CrawlOptions(), ["a.example"]).id
        self.brokers: list[Broker] = []

    @property
    def now_ms(self) -> int:
        return START_MS + round((self.now - 100.0) * 1000)

    def broker(self, name: str, webhook: Webhook | None = None, store: Any = None) -> Broker:
        """Make a broker; ``store`` replaces the common store."""
        self.join(name, kind="broker")
        made = Broker(self, name, webhook, store or self.store)
        self.brokers.append(made)
        return made

    def join(self, name: str, node: str = "", kind: Any = "worker") -> None:
        """Let a member exist, and report from now on."""
        self.store.put_member(Member(id=name, node=node or name, kind=kind, incarnation=1))
        self.queue.beats.beat(name, 1, Facts())

    def silence(self, name: str) -> None:
        self.queue.beats.gone(name, 1)

    def passed(self, seconds: float, *brokers: Broker) -> None:
        """Let time pass in steps; at each step these brokers look."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + CHECK_SECONDS, until)
            for broker in brokers:
                broker.look()

    def vacate(self, broker: Broker) -> None:
        """Let a broker die; its duty ends."""
        self.store.release_duties(broker.service.duties.holder, [COORDINATOR])

    @property
    def alerts(self) -> list[Alert]:
        return [one for one in self.store.alerts() if one.began_ms]

    def stop(self) -> None:
        for broker in self.brokers:
            broker.service.duties.stop()
        self.store.close()


def told(bodies: list[bytes]) -> list[tuple[str, str, str]]:
    """Return (kind, subject, state) of the messages to a webhook."""
    messages = [json.loads(body) for body in bodies]
    return [(one["kind"], one["subject"], one["state"]) for one in messages]
