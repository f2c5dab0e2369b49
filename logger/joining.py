"""A logger as a member: it tells a broker its address, so that others send to it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import gevent
from msgspec.structs import replace

from greencrawl import __version__
from greencrawl.broker.client import BrokerClient
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger, set_level
from greencrawl.schema.process import own_process
from greencrawl.schema.records import InForce, MemberRequest
from greencrawl.schema.settings import Settings

WAIT_SECONDS = 10.0
"""Seconds between two beats."""
PAUSE_SECONDS = 1.0
"""Seconds before another try, while no broker answers."""
LEAVE_SECONDS = 5.0
_ANY = frozenset({"0.0.0.0", "::"})

log = logger("members")


class Joining:
    """The membership of a logger. ``start()`` it, ``stop()`` it. It listens on ``port``."""

    def __init__(self, settings: Settings, port: int) -> None:
        self._settings = settings
        self._own_level = settings.log_level
        self._broker = BrokerClient(
            settings.broker, settings.worker_token, ca=settings.tls_ca, timeout=WAIT_SECONDS
        )
        name = f"{settings.worker_id}-logger-{port}"
        self._request = MemberRequest(
            id=name,
            node=name,
            kind="logger",
            incarnation=epoch_ms(),
            version=__version__,
            address=address_of(settings, port),
        )
        self._following: gevent.Greenlet[..., Any] | None = None

    def start(self) -> None:
        """Join, and stay."""
        self._following = gevent.spawn(self._run)

    def stop(self) -> None:
        """Leave: from now on others send elsewhere."""
        if self._following is not None:
            self._following.kill()
        with suppress(gevent.Timeout), gevent.Timeout(LEAVE_SECONDS):
            try:
                leaving = replace(self._request, leaving=True, why="stopped")
                self._broker.follow(replace(leaving, facts=own_process.facts()))
            except GreencrawlError as error:
                log.info("leave_not_noted", reason=str(error))
        self._broker.disconnect()

    def _run(self) -> None:
        said = False
        while True:
            try:
                rest = self._beat()
                said = False
            except GreencrawlError as error:
                if not said:
                    log.warning("wait_started", what="broker", reason=str(error))
                said, rest = True, PAUSE_SECONDS
            except Exception:  # a bug must not look like an outage
                log.exception("membership_failed")
                rest = WAIT_SECONDS
            gevent.sleep(rest)

    def _beat(self) -> float:
        """Report, and follow the orders; return the seconds until the next time."""
        options = {"log_level": InForce(self._own_level, self._settings.source("log_level"))}
        if self._request.revision and self._ordered:
            options = {"log_level": InForce(self._ordered, "order")}
        facts = replace(own_process.facts((self._settings.data,)), options=options)
        reply = self._broker.follow(replace(self._request, facts=facts))
        if reply.superseded:
            log.error("logger_id_taken", id=self._request.id)
            return WAIT_SECONDS
        self._ordered = reply.options.log_level
        set_level(self._ordered or self._own_level)
        again = reply.revision != self._request.revision
        wait = 0.0 if again else WAIT_SECONDS
        self._request = replace(self._request, revision=reply.revision, wait=wait)
        return 0.0

    _ordered: str | None = None


def address_of(settings: Settings, port: int) -> str:
    """Return the address at which others reach this logger.

    If it listens on all addresses of the machine, its address is the one from which it reaches a
    broker. With TLS it is the machine's full name, because its certificate has a name.
    """
    host = settings.logger_bind[0]
    if host in _ANY:
        host = socket.getfqdn() if settings.tls_cert else _towards(settings.broker[0])
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{name}:{port}"


def _towards(broker: str) -> str:
    """Return our address on the way to a broker; our host name if there is no way now."""
    parts = urlsplit(broker)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
        family, kind, _, _, place = found[0]
        with socket.socket(family, kind) as probe:  # by UDP: nothing is sent
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
