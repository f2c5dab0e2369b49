"""Downloads: one call is one request on the wire, and one answer or one failure.

Redirects are not followed and nothing is tried again here: politeness must know of every request.
The host's name is resolved, and its addresses are judged (``greencrawl.worker.http.dns``). The
connection goes to a judged address; the Host header, SNI and the certificate's check use the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from gevent import ssl

from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net.request import header_lines, request_head
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.addresses import BAD_PORTS, SERVICE_PORTS, Network
from greencrawl.worker.http.connections import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    Connection,
    Connections,
    Origin,
)
from greencrawl.worker.http.dns.resolver import LOOKUP_SECONDS, Resolver
from greencrawl.worker.http.dns.system import Lookup
from greencrawl.worker.http.receiving import LEAST_RATE, RATE_SECONDS, Receiver, put_aside
from greencrawl.worker.http.response import Answer
from greencrawl.worker.http.tls import tls_context
from greencrawl.worker.metrics.table import RESPONSE_BUCKETS, SLOT
from greencrawl.worker.metrics.tallies import Tallies
from greencrawl.worker.session.memory_budget import MemoryBudget, Part, Preempted
from greencrawl.worker.session.shares import Shares, Ticket

MAX_IDLE = 600
WAITED_SECONDS = 0.01
"""After a longer wait for a share we check again whether the connection is still usable."""

_REQUESTS, _BYTES, _SECONDS = (
    SLOT[name] for name in ("requests", "received_bytes", "response_seconds")
)
_CONNECTIONS, _HANDSHAKES, _HANDSHAKE_SECONDS = (
    SLOT[name] for name in ("connections", "tls_handshakes", "tls_handshake_seconds")
)
_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(
    r"(https?)://(?:[^/?#@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^/?#@:\[\]\s]+)(?::(\d{1,5}))?"
)


class LeaseExpired(GreencrawlError):
    """Raised when a lease's deadline passed before the request was sent: nothing was sent."""


class Watch(Protocol):
    """Can end a request before any part of its answer has come."""

    cut: Callable[[], bool] | None


class _Request(NamedTuple):
    """Parameters of one exchange; ``until`` is a value of the monotonic clock."""

    url: str
    message: bytes
    max_body_bytes: int
    until: float
    deadline: float
    pack: bool


class Downloader:
    """Fetches URLs over kept-alive connections. One for a process; safe for many greenlets.

    ``request_seconds`` bounds a whole request – look-up, connecting, TLS, sending, headers and
    body, however slowly they come – and ``connect_seconds`` its connecting and TLS alone. A body is
    cut off if it brings less than ``least_rate`` bytes a second after ``rate_seconds``. Bodies
    count in ``memory_budget`` while they are received, and may have to wait for each other. At most
    ``max_idle`` connections are kept, each for ``idle_seconds``. ``dns_servers`` are asked for
    names, or the servers of the system if there are none; a ``resolver`` replaces them all, in a
    thread. ``tls`` is the one context of all https connections. One time is not bounded: how long a
    ready greenlet waits until it runs.
    """

    def __init__(
        self,
        allow_networks: Sequence[Network] = (),
        request_seconds: float = 60.0,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        max_idle: int = MAX_IDLE,
        idle_seconds: float = IDLE_SECONDS,
        least_rate: float = LEAST_RATE,
        rate_seconds: float = RATE_SECONDS,
        memory_budget: MemoryBudget | None = None,
        dns_servers: Sequence[str] = (),
        resolver: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
        shares: Shares | None = None,
        allow_ports: Collection[int] = (),
        tallies: Tallies | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._tallies = tallies or Tallies()
        self._shares = shares
        self._refused_ports = BAD_PORTS | SERVICE_PORTS.difference(allow_ports)
        self._request_seconds = request_seconds
        self._memory_budget = memory_budget or MemoryBudget(clock=clock)
        self._receiver = Receiver(self._memory_budget, least_rate, rate_seconds, clock)
        self._clock = clock
        self._resolver = Resolver(
            allow_networks, resolver, servers=dns_servers, tallies=self._tallies, clock=clock
        )
        self._connections = Connections(
            max_idle=max_idle,
            tls=tls or tls_context(),
            connect_seconds=connect_seconds,
            idle_seconds=idle_seconds,
            opened=self._opened,
            clock=clock,
        )

    def _opened(self, scheme: str, seconds: float) -> None:
        self._tallies.add(_CONNECTIONS)
        if scheme == "https":
            self._tallies.add(_HANDSHAKES)
            self._tallies.add(_HANDSHAKE_SECONDS, seconds)

    def fetch(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        max_body_bytes: int,
        deadline: float,
        method: str = "GET",
        body: bytes = b"",
        caps: Any = None,
        watch: Watch | None = None,
        pack: bool = False,
    ) -> Fetched | Failure:
        """Request a canonical ``url``; return the server's answer, or why there is none.

        Any status comes back as ``Fetched``; ``greencrawl.worker.retry.classify`` judges it. Once
        the head of an answer other than 2xx is there, its status is the answer: if the body then
        breaks off, its first part is kept, marked as truncated. ``headers`` are sent besides Host,
        Accept-Encoding and, with a ``body``, Content-Length. ``deadline`` is a value of the
        monotonic clock. ``caps`` are the limits for ``shares``, if there are any. ``watch`` gets a
        function that ends the request while no part of its answer has come. ``pack``: a large body
        may come back gzipped, whatever its own encoding was. Raises LeaseExpired when the deadline
        has passed, InvalidUrl when ``url`` is not canonical http(s), MemoryTimeout when there is no
        memory for the body, and what ``shares`` raises.
        """
        origin, target = _split(url)
        if origin.port in self._refused_ports:
            detail = f"port {origin.port} of {origin.host} belongs to another protocol"
            if origin.port in SERVICE_PORTS:
                detail = f"port {origin.port} is not in the worker's GREENCRAWL_ALLOW_PORTS"
            return Failure(FailureKind.ADDRESS_FORBIDDEN, detail, requests=0)
        fields = _render(tuple(headers.items()))
        if isinstance(fields, Failure):
            return fields
        started = self._clock()
        addresses = self._resolver.resolve(origin.host, min(LOOKUP_SECONDS, self._request_seconds))
        if isinstance(addresses, Failure):
            return addresses
        until = started + self._request_seconds
        ticket = None
        if self._shares is None:
            connection = self._connections.take(origin, addresses) or self._connections.open(
                origin, addresses, until - self._clock()
            )
        else:
            connection, ticket = self._admitted(origin, addresses, until, caps, deadline)
        if isinstance(connection, Failure):
            return connection
        message = request_head(target, origin.authority, fields, method, len(body)) + body
        request = _Request(url, message, max_body_bytes, until, deadline, pack)
        answer = Answer(bodiless=method == "HEAD")
        part = Part(self._memory_budget, connection.interrupt)
        if watch is not None:
            watch.cut = lambda: not answer.received and part.cut_off()
        try:
            sent_ms, sent = epoch_ms(), self._clock()
            try:
                failure = self._exchange(connection, request, answer, part)
            finally:
                if ticket is not None:
                    ticket.end()
                if watch is not None:
                    watch.cut, part.cut = None, False
            if failure is None or _status_is_the_answer(answer):
                took = self._clock() - sent - connection.held_up - part.paused
                took_ms = max(round(took * 1000), 0)
                return self._fetched(request, answer, part, connection.address, sent_ms, took_ms)
            return failure
        finally:
            part.close()

    def _admitted(
        self, origin: Origin, addresses: Sequence[str], until: float, caps: Any, deadline: float
    ) -> tuple[Connection | Failure, Ticket | None]:
        """Return a connection to one of the addresses that ``shares`` allows; raises what
        ``shares`` raises."""
        assert self._shares is not None
        idle = self._connections.take(origin, addresses)
        if idle is not None:
            began = self._clock()
            try:
                ticket = self._shares.enter(
                    origin.host, idle.address, caps, connect=False, deadline=deadline,
                    make_room=no_room,
                )  # fmt: skip
            except BaseException:
                self._connections.give(idle)
                raise
            if self._clock() - began < WAITED_SECONDS or not idle.stale():
                return idle, ticket
            idle.close()
            if ticket is not None:
                ticket.end()
        kind, told = FailureKind.UNREACHABLE, []
        budget = self._connections.connect_seconds  # for all addresses together
        for index, address in enumerate(addresses):
            ticket = self._shares.enter(
                origin.host, address, caps, connect=True, deadline=deadline,
                make_room=partial(self._connections.drop_idle, address),
            )  # fmt: skip
            began = self._clock()
            left = min(until - began, budget)
            if ticket is None:
                return self._connections.open(origin, addresses[index:], left), None
            found = self._connections.open(origin, [address], left / (len(addresses) - index))
            budget -= self._clock() - began
            if isinstance(found, Connection):
                found.closed = ticket.opened()
                return found, ticket
            ticket.end()
            told.append(found.detail)
            kind = found.kind
            if kind is FailureKind.TLS:
                break
        return Failure(kind, "; ".join(told), requests=0), None

    @property
    def idle_connections(self) -> int:
        """Return how many connections are kept for a next request, at most ``max_idle``."""
        return len(self._connections)

    def close(self) -> None:
        """Close idle connections; those in use close when their request ends."""
        self._connections.close()
        self._resolver.close()

    def _exchange(
        self, connection: Connection, request: _Request, answer: Answer, part: Part
    ) -> Failure | None:
        """Send and read on an open connection; keep it if the answer ended cleanly."""
        reusable = False
        try:
            if self._clock() >= request.deadline:
                raise LeaseExpired(f"the lease ended before {request.url} was asked for")
            self._tallies.add(_REQUESTS)
            connection.ask(request.message, request.until)
            failure = self._receiver.read(
                connection, request.until, request.max_body_bytes, answer, part, request.pack
            )
            reusable = failure is None and answer.reusable
            return failure
        except TimeoutError as error:
            detail = str(error) or f"no complete answer within {self._request_seconds:g} s"
            return Failure(FailureKind.TIMEOUT, detail, code=answer.status)
        except Preempted:
            return put_aside(answer, part)
        except ssl.SSLError as error:
            return Failure(FailureKind.TLS, error.reason or str(error), code=answer.status)
        except OSError as error:
            return Failure(FailureKind.RESET, error.strerror or str(error), code=answer.status)
        finally:
            if reusable:
                self._connections.give(connection)
            else:
                connection.close()

    def _fetched(
        self,
        request: _Request,
        answer: Answer,
        part: Part,
        address: str,
        sent_ms: int,
        took_ms: int,
    ) -> Fetched | Failure:
        """Return the record of the answer, its content-encoding undone. Raises MemoryTimeout."""
        self._tallies.add(_BYTES, len(answer.body))
        self._tallies.observe(_SECONDS, RESPONSE_BUCKETS, took_ms / 1000)
        most, pack = request.max_body_bytes, request.pack
        decoded = self._receiver.decode(request.until, most, answer, part, pack)
        if decoded.error and not _status_is_the_answer(answer):
            detail, cpu = decoded.error, decoded.cpu
            return Failure(FailureKind.DECODE, detail, code=answer.status, unpacking=cpu)
        return Fetched(
            url=request.url,
            status=answer.status,
            headers=answer.headers,
            body=decoded.body,
            fetched_ms=sent_ms,
            elapsed_ms=took_ms,
            wire_bytes=len(answer.body),
            truncated=decoded.truncated or bool(decoded.error),
            address=address,
            cookies=answer.cookies,
            unpacking=decoded.cpu,
            robots_tags=answer.robots_tags,
            links_cut=answer.links_cut,
            packed=decoded.packed,
        )


def no_room() -> bool:
    """Return False: there is no connection to close."""
    return False


def _status_is_the_answer(answer: Answer) -> bool:
    return answer.head_done and not 200 <= answer.status < 300


def _split(url: str) -> tuple[Origin, bytes]:
    """Return origin and request target of a canonical URL. Raises InvalidUrl for any other."""
    path = url.find("/", url.find("://") + 3)
    if path < 0 or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidUrl(url, "not canonical")
    target, _, _ = url[path:].partition("#")
    return _origin(url[:path]), target.encode("ascii")


@lru_cache(maxsize=4096)
def _origin(text: str) -> Origin:
    found = _ORIGIN.fullmatch(text)
    if found is None or int(found[3] or 0) > 65535:
        raise InvalidUrl(text, "not an http(s) origin")
    scheme, host, port = found[1], found[2].lower(), found[3]
    authority = host if port is None or int(port) == _PORTS[scheme] else f"{host}:{int(port)}"
    number = _PORTS[scheme] if port is None else int(port)
    return Origin(scheme, host.strip("[]"), number, authority.encode("ascii"))


@lru_cache(maxsize=256)
def _render(headers: tuple[tuple[str, str], ...]) -> bytes | Failure:
    """Return header lines; a Failure for what HTTP does not allow.

    Apart from the configuration only a user's hook makes headers, so this is a failure of the hook.
    """
    try:
        return header_lines(dict(headers))
    except ValueError as error:
        return Failure(FailureKind.HOOK, str(error), requests=0)
