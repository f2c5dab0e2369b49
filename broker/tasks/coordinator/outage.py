"""Alerts about a store that takes no writes; if several brokers note the outage, the first counts.

The store keeps every other alert. During the outage the alert about it is a note in Redis
(``greencrawl.broker.frontier.coordination.outages``). The first coordinator that can write again
adds it to the other alerts, as one that is over.
"""

from __future__ import annotations

import gevent
from gevent import Greenlet

from greencrawl.broker.frontier.coordination.outages import Outage, Outages
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.coordinator.webhook import (
    MOST_SECONDS,
    NotDelivered,
    Webhook,
    next_message,
)
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.store.base import Store

log = logger("alerts")

LOOK_SECONDS = 1.0
FAILING_SECONDS = 20.0
"""A broker that could not write for this long says so, if no other can write either."""
REASON = 500
"""The reason that is shown has at most this many characters."""


class OutageWatch:
    """One broker's watch for an outage.

    It has a greenlet of its own: all other greenlets may wait for the store.
    """

    def __init__(self, service: Service, webhook: Webhook | None) -> None:
        self._service = service
        self._outages: Outages = service.frontier.outages
        self._webhook = webhook
        self._greenlet: Greenlet[[], None] | None = None
        self._alert_sender: Greenlet[[Outage], None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            gevent.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Unavailable as error:
                log.info("outage_not_noted", reason=str(error))
            except Exception:  # a bug must not leave an outage unseen for good
                log.exception("outage_not_noted")

    def look(self) -> None:
        """Note an outage if there is one that no broker has noted. Raises Unavailable."""
        since, reason = self._service.duties.failing or (monotonic(), "")
        if monotonic() - since < FAILING_SECONDS:
            return
        outage = Outage(epoch_ms(), f"The store takes no writes: {reason[:REASON]}")
        if self._outages.begin(outage):
            log.error("alert_started", alert="store_not_writable", reason=reason)
            if self._webhook is not None:
                self._alert_sender = gevent.spawn(self._tell, outage)

    def _tell(self, outage: Outage) -> None:
        """Post that an outage began, until it ends: then the coordinator sends both messages."""
        pause = 1.0
        while self._webhook is not None:
            try:
                if self._outages.open() != outage:
                    return
                self._webhook.post(next_message(outage.alert()))
                self._outages.note_told(outage)
                return
            except (NotDelivered, Unavailable) as error:
                log.warning(
                    "alert_not_delivered", alert="store_not_writable", to=self._webhook.shown,
                    reason=str(error),
                )  # fmt: skip
            gevent.sleep(pause)
            pause = min(2 * pause, MOST_SECONDS)

    def over(self, store: Store, now_ms: int) -> bool:
        """Note that the store has just taken a write; return whether there is a message to send.

        Raises Unavailable and DutyLost.
        """
        self._outages.writable()
        outage = self._outages.open()
        if outage is None:
            return False
        store.put_alerts([outage.alert(now_ms)])
        self._outages.end()
        log.info("alert_ended", alert="store_not_writable")
        return True

    def stop(self) -> None:
        """End at once."""
        if self._greenlet is not None:
            self._greenlet.kill()
        if self._alert_sender is not None:
            self._alert_sender.kill()
