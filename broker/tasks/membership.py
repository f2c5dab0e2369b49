"""A broker as a member: it reports, and follows its orders."""

from __future__ import annotations

from typing import Any

import gevent
from msgspec.structs import replace

from greencrawl import __version__
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import Trouble, logger, set_level
from greencrawl.schema.logs.sender import Sender
from greencrawl.schema.process import own_process
from greencrawl.schema.records import InForce, MemberRequest
from greencrawl.schema.settings import Settings

WAIT_SECONDS = 15.0
"""Seconds between two beats."""
PAUSE_SECONDS = 1.0
"""Seconds before another try, while the store or Redis is away."""

log = logger("members")


class Membership:
    """The membership of a broker. ``start()`` it, ``stop()`` it."""

    def __init__(
        self, service: Service, settings: Settings, address: str, port: int, sender: Sender
    ) -> None:
        """Build the object.

        ``address`` is where the broker listens; ``port`` distinguishes it from others on its
        machine; ``sender`` has its log lines.
        """
        self._service = service
        self._own_level = settings.log_level
        self._source = settings.source("log_level")
        self._folders = settings.folders
        name = f"{settings.worker_id}-broker-{port}"
        self._request = MemberRequest(
            id=name,
            node=name,
            kind="broker",
            incarnation=epoch_ms(),
            version=__version__,
            address=address,
            wait=WAIT_SECONDS,
        )
        self._sender = sender
        self._greenlets: list[gevent.Greenlet[..., Any]] = []

    @property
    def member(self) -> str:
        """Return the broker's id among the members."""
        return self._request.id

    def start(self) -> None:
        """Join, and follow orders."""
        self._sender.begin(self._request.id, self._request.incarnation)
        self._greenlets = [gevent.spawn(self._service.members.run), gevent.spawn(self._run)]

    def stop(self) -> None:
        """Leave."""
        gevent.killall(self._greenlets)
        request = self._request
        try:
            self._service.members.leave(
                request.id, request.incarnation, "stopped", own_process.facts()
            )
        except Unavailable as error:
            log.info("leave_not_noted", reason=str(error))

    def _run(self) -> None:
        level = InForce(self._own_level, self._source)
        unread = Trouble(log, "membership_not_noted", "membership_noted", level="info")
        while True:
            facts = replace(
                own_process.facts(self._folders),
                options={"log_level": level},
                log_queued=self._sender.queued,
                log_dropped=self._sender.dropped,
            )
            try:
                reply = self._service.members.follow(replace(self._request, facts=facts))
            except Unavailable as error:
                unread.failed(reason=str(error))
                gevent.sleep(PAUSE_SECONDS)
                continue
            except Exception:  # a bug must not look like an outage
                log.exception("membership_failed")
                gevent.sleep(WAIT_SECONDS)
                continue
            unread.done()
            if reply.superseded:  # another broker has this port by now
                gevent.sleep(WAIT_SECONDS)
                continue
            self._sender.tell(reply.log_to)
            ordered = reply.options.log_level
            level = InForce(
                ordered or self._own_level, "order" if ordered is not None else self._source
            )
            set_level(str(level.value))
            self._request = replace(self._request, revision=reply.revision)
