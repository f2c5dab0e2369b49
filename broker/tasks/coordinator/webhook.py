"""Posts alerts to the operator's webhook: the coordinator does it, from the store's rows.

The rows are the queue: a message that could not be delivered is tried again with growing pauses, by
whichever broker is the coordinator then. A message is noted as delivered after the webhook took it.
So if its sender dies in between, it is sent twice; its ``id`` is the same both times. Nothing else
waits for it.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Literal
from urllib.parse import unquote, urlsplit

import gevent
from gevent import Greenlet
from gevent.event import Event
from msgspec import Struct
from msgspec.structs import replace

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Alert, AlertKind
from greencrawl.schema.settings import mask_path
from greencrawl.schema.wire import to_json
from greencrawl.store.base import Store

log = logger("alerts")

ANSWER_SECONDS = 10.0
"""Seconds for a whole request, look-up and TLS included."""
FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0
"""Pauses after a failure: twice as long each time, from the first to the longest."""
FAILURES = 16
"""At most this many failures in a row are counted: the pause has reached its limit long before."""
LATE_MS = 86_400_000
"""Messages of an alert that is over are dropped after this long, if they cannot be delivered."""
ANSWER_BYTES = 4096
REFUSED = frozenset(range(400, 500)) - {408, 425, 429}
"""Statuses by which a webhook refuses only this message: other messages overtake it."""


class Message(Struct, frozen=True, kw_only=True):
    """The JSON object that is posted. ``id`` is the same each time the same message is sent.

    ``kind``, ``subject`` and ``text`` come from the :class:`Alert`; moments are Unix ms.
    """

    id: str
    state: Literal["began", "over"]
    kind: AlertKind
    subject: str
    text: str
    began_ms: int
    over_ms: int = 0


def next_message(alert: Alert) -> Message:
    """Return the first of an alert's two messages that was not delivered."""
    state: Literal["began", "over"] = "over" if alert.told else "began"
    return Message(
        id=f"{alert.kind}/{alert.subject}/{alert.since_ms}/{state}",
        state=state, kind=alert.kind, subject=alert.subject, text=alert.text,
        began_ms=alert.began_ms, over_ms=alert.over_ms if alert.told else 0,
    )  # fmt: skip


class NotDelivered(Exception):
    """Raised when the webhook did not take a message; ``refused`` if it is this message's fault."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Webhook:
    """The webhook. Its URL may hold a secret anywhere: no error shows it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.shown = mask_path(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "User-Agent": "greencrawl"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"

    def post(self, message: Message) -> None:
        """Send a message once. Raises NotDelivered unless it is answered with a 2xx status in
        time."""
        try:
            with gevent.Timeout(ANSWER_SECONDS, TimeoutError("no answer in time")):
                status = self._status(message)
        except (OSError, HTTPException) as error:
            raise NotDelivered(str(error) or type(error).__name__) from error
        if not 200 <= status < 300:
            raise NotDelivered(f"it answered {status}", refused=status in REFUSED)

    def _status(self, message: Message) -> int:
        connection = (
            HTTPSConnection(
                self._host, self._port, timeout=ANSWER_SECONDS, context=ssl.create_default_context()
            )
            if self._secure
            else HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS)
        )
        try:
            headers = {**self._headers, "Idempotency-Key": message.id.encode().hex()}
            connection.request("POST", self._target, to_json(message), headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES)
            return answer.status
        finally:
            connection.close()


class AlertSender:
    """The webhook's greenlet, one in each broker; it posts while the broker is the coordinator."""

    def __init__(self, webhook: Webhook, held: Callable[[], Store | None]) -> None:
        """Build the object; ``held`` returns the store under the duty, None while another broker
        has it."""
        self._webhook = webhook
        self._held = held
        self._due = Event()
        self._failures = 0
        self._greenlet: Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin to wait for messages."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End at once; the next coordinator delivers the rest."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def wake(self) -> None:
        """Check for messages now."""
        self._due.set()

    def _run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            try:
                delivered = self.tell(epoch_ms())
            except DutyLost as error:
                log.info("alert_sender_superseded", reason=str(error))
                continue
            except Unavailable as error:
                log.info("alerts_delayed", reason=str(error))
                delivered = False
            except Exception:
                log.exception("alerts_failed")
                delivered = False
            if delivered:
                self._failures = 0
                continue
            self._due.wait(min(FIRST_SECONDS * 2**self._failures, MOST_SECONDS))
            self._failures = min(self._failures + 1, FAILURES)
            self._due.set()

    def tell(self, now_ms: int) -> bool:
        """Post all messages, the oldest first; return False if some are left to try again.

        Raises Unavailable, and DutyLost if another broker is the coordinator by now.
        """
        store, left = self._held(), False
        if store is None:
            return True
        for alert in store.untold_alerts():
            while alert.told < 1 + (alert.over_ms > 0):
                if self._held() is None:
                    return True
                store.note_told(alert)  # raises DutyLost: another broker is to post it
                try:
                    self._webhook.post(next_message(alert))
                except NotDelivered as error:
                    late = alert.over_ms and now_ms - alert.over_ms >= LATE_MS
                    log.warning(
                        "alert_dropped" if late else "alert_not_delivered", alert=alert.kind,
                        subject=alert.subject, to=self._webhook.shown, reason=str(error),
                    )  # fmt: skip
                    if not late and not error.refused:
                        return False
                    if not late:
                        left = True
                        break
                alert = replace(alert, told=alert.told + 1)
                store.note_told(alert)
        return not left
