"""A client of recursive name servers: addresses of a name, with their TTL, by UDP and by TCP.

dnspython reads the answers; the sockets are gevent's. A look-up asks for IPv4 and IPv6 at once,
from a port of its own, which the system picks at random. A silent server is asked again, and the
next one with it; the first answer of any of them counts, however late. A server that fails
(SERVFAIL, REFUSED, a closed port) is not asked for that name again. An answer counts only if its id
and its question are those that were sent to that server.

Some forwarders drop queries with EDNS. So a silent server is asked again without EDNS; if it
answers that, it is asked without EDNS for some minutes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import gevent
from gevent import select, socket

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.text.variables import bind
from greencrawl.worker.http.dns import messages
from greencrawl.worker.http.dns.messages import AAAA, BROKEN, MOST_BYTES, TYPES, A, Answer
from greencrawl.worker.http.dns.system import (
    RESOLV_CONF,
    Found,
    Reread,
    missing,
    name_servers,
    unanswered,
)

Server = tuple[str, int]
"""Address and port."""

LEAST_SECONDS, MOST_SECONDS = 60.0, 3600.0
"""Addresses are kept as long as their TTL says, within these limits."""
MISSING_LEAST_SECONDS, MISSING_MOST_SECONDS = 30.0, 900.0
"""A missing name, or one without addresses, is kept as long as its zone says (RFC 2308), within
these."""
UNANSWERED_SECONDS = 10.0
"""How long we remember that no server could answer."""
AGAIN_SECONDS = 0.5
"""After this long without an answer servers are asked again, then after twice as long each time."""
OTHER_SECONDS = 0.3
"""How long an answer with addresses waits for those of the other version."""
TCP_SECONDS = 5.0
PLAIN_SECONDS = 600.0
"""How long a server is asked without EDNS after it answered only such a query."""


class NameServers:
    """The servers in ``named``, as ``address:port``, or those of the system."""

    def __init__(
        self,
        named: Sequence[str] = (),
        *,
        resolv_conf: Reread[tuple[Server, ...]] | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._named = tuple(bind(server) for server in named)
        self._system = resolv_conf or Reread(RESOLV_CONF, name_servers, clock)
        self._clock = clock
        self._preferred: Server | None = None
        self._plain: dict[Server, float] = {}
        """Servers that are asked without EDNS, and until when."""

    def servers(self) -> tuple[Server, ...]:
        """Return all servers; first the one that last answered when another did not."""
        known = self._named or self._system.value()
        if self._preferred not in known:
            return known
        at = known.index(self._preferred)
        return known[at:] + known[:at]

    def ask(
        self, name: str, seconds: float, slow_at: float, turn_slow: Callable[[], None]
    ) -> Found:
        """Look ``name`` up, within ``seconds``. Blocks its greenlet, which may be killed.

        If the look-up lasts beyond ``slow_at``, or needs TCP, ``turn_slow`` is called; an exception
        that it raises ends the look-up.
        """
        wire = messages.wire_name(name)
        if wire is None:
            return Found(missing(name, "no such name can be"), MISSING_MOST_SECONDS)
        until = self._clock() + seconds
        exchange = _Exchange(name, wire, self.servers(), until, self._clock, self._plain)
        try:
            found = exchange.run(slow_at, turn_slow)
        finally:
            exchange.close()
        self._preferred = exchange.answered or self._preferred
        return found


class _Line:
    """Queries to one server, by a socket of their own."""

    __slots__ = ("edns", "failed", "sent", "server", "socket")

    def __init__(self, server: Server, *, edns: bool) -> None:
        self.server = server
        self.edns = edns
        self.failed: set[int] = set()
        self.sent: dict[int, list[bytes]] = {}
        """Sent queries by type, the newest last; the first two bytes are the id."""
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)

    def send(self, name: bytes, kinds: Sequence[int]) -> None:
        """Send queries of these types, or send them again. Raises OSError."""
        if not self.sent:
            self.socket.connect(self.server)
        for kind in kinds:
            queries = self.sent.setdefault(kind, [])
            if not queries or (self.edns and len(queries) == 1):
                queries.append(messages.query(name, kind, edns=self.edns and not queries))
            self.socket.send(queries[-1])

    def of(self, wire: bytes) -> int | None:
        """Return the type of the query that an answer belongs to; None if it is none of ours."""
        return next(
            (
                kind
                for kind, queries in self.sent.items()
                if any(messages.belongs(wire, query) for query in queries)
            ),
            None,
        )

    def only_plain(self, kind: int, wire: bytes) -> bool:
        """Return whether ``wire`` answers a query without EDNS that followed one with EDNS."""
        queries = self.sent[kind]
        return len(queries) > 1 and wire[:2] == queries[1][:2]


class _Exchange:
    """The queries for one name, until they are answered."""

    def __init__(
        self,
        name: str,
        wire: bytes,
        servers: Sequence[Server],
        until: float,
        clock: Clock,
        plain: dict[Server, float],
    ) -> None:
        self._name, self._wire, self._servers = name, wire, servers
        self._until, self._clock = until, clock
        self._plain = plain
        self._lines: list[_Line] = []
        self._answers: dict[int, Answer] = {}
        self._why: dict[int, str] = {}
        """Types that a server failed to answer, and how."""
        self._tries = 0
        self._enough_at = until
        self.answered: Server | None = None
        """The server that answered when the first one had not."""

    def run(self, slow_at: float, turn_slow: Callable[[], None]) -> Found:
        """Ask until there is an answer, no server is left to ask, or the time is over."""
        began = self._clock()
        pause = AGAIN_SECONDS
        again_at = began
        while True:
            now = self._clock()
            if self._done(now) or now >= self._until:
                return self._found(now - began)
            if now >= slow_at:
                turn_slow()
                slow_at = self._until
            if now >= again_at or all(self._failed(line) for line in self._lines):
                if not self._ask_next():
                    return self._found(now - began)
                again_at, pause = now + pause, pause * 2
            for line in self._ready(min(again_at, slow_at, self._enough_at, self._until) - now):
                self._read(line, turn_slow)

    def close(self) -> None:
        """Close the sockets."""
        for line in self._lines:
            line.socket.close()

    def _open(self) -> list[int]:
        """Return the types that have no answer yet."""
        return [kind for kind in TYPES if kind not in self._answers]

    def _failed(self, line: _Line) -> bool:
        return all(kind in line.failed for kind in self._open())

    def _ask_next(self) -> bool:
        """Ask the next server that has not failed; return False if there is none."""
        for _ in self._servers:
            at = self._tries % len(self._servers)
            self._tries += 1
            if at == len(self._lines):
                try:
                    server = self._servers[at]
                    edns = self._plain.get(server, 0.0) <= self._clock()
                    self._lines.append(_Line(server, edns=edns))
                except OSError as error:  # no file descriptor is left
                    self._why.update(dict.fromkeys(self._open(), str(error)))
                    return False
            line = self._lines[at]
            kinds = [kind for kind in self._open() if kind not in line.failed]
            if kinds:
                self._send(line, kinds)
                if not self._failed(line):
                    return True
        return False

    def _send(self, line: _Line, kinds: Sequence[int]) -> None:
        try:
            line.send(self._wire, kinds)
        except OSError as error:
            self._fail(line, kinds, str(error))

    def _fail(self, line: _Line, kinds: Sequence[int], why: str) -> None:
        line.failed.update(kinds)
        self._why.update(dict.fromkeys(kinds, f"{line.server[0]}: {why}"))

    def _ready(self, seconds: float) -> list[_Line]:
        """Return the lines with something to read, after a wait; a single line is returned at
        once."""
        lines = {line.socket: line for line in self._lines if not self._failed(line)}
        if len(lines) < 2:
            for one in lines:  # there is nothing else to wait for: the read itself waits
                one.settimeout(max(seconds, 0.0))
            return list(lines.values())
        found, _, _ = select.select(list(lines), [], [], max(seconds, 0.0))
        for one in found:
            one.settimeout(0.0)
        return [lines[one] for one in found]

    def _read(self, line: _Line, turn_slow: Callable[[], None]) -> None:
        try:
            wire = line.socket.recv(MOST_BYTES)
        except (TimeoutError, BlockingIOError):
            return
        except OSError as error:
            self._fail(line, self._open(), str(error))
            return
        kind = line.of(wire)
        if kind is None or kind in self._answers:
            return  # forged, or answered already
        if line.edns and messages.asks_for_no_edns(wire):
            line.edns = False
            line.sent.clear()
            self._send(line, self._open())
            return
        try:
            if messages.is_cut(wire):
                turn_slow()
                wire = self._by_tcp(line, kind)
            self._take(line, kind, wire)
        except OSError as error:
            self._fail(line, [kind], str(error) or "no answer by TCP")
        except BROKEN as error:
            self._fail(line, [kind], f"a broken answer ({error})")

    def _by_tcp(self, line: _Line, kind: int) -> bytes:
        """Return the whole of an answer that is too long for UDP. Raises OSError and ValueError."""
        query = line.sent[kind][-1]
        seconds = max(0.0, min(TCP_SECONDS, self._until - self._clock()))
        with (
            gevent.Timeout(seconds, TimeoutError("no answer by TCP in time")),
            socket.create_connection(line.server, seconds) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.sendall(struct.pack("!H", len(query)) + query)
            (length,) = struct.unpack("!H", stream.read(2))
            wire: bytes = stream.read(min(length, MOST_BYTES))
        if line.of(wire) != kind:
            raise ValueError("to another question")
        return wire

    def _take(self, line: _Line, kind: int, wire: bytes) -> None:
        """Keep an answer. Raises the errors of a broken one."""
        error = messages.error(wire)
        if error:
            self._fail(line, [kind], error)
            return
        answer = self._answers[kind] = messages.read(wire, kind)
        if line.edns and line.only_plain(kind, wire):
            self._plain[line.server] = self._clock() + PLAIN_SECONDS
        if answer.addresses:
            self._enough_at = min(self._enough_at, self._clock() + OTHER_SECONDS)
        if line is not self._lines[0]:
            self.answered = line.server

    def _done(self, now: float) -> bool:
        """Return whether no further answer can make a difference."""
        four, six = self._answers.get(A), self._answers.get(AAAA)
        if (four and six) or (four and not four.exists):
            return True
        one = four or six
        if one is None or not one.addresses:
            return False
        return now >= self._enough_at or (AAAA if four else A) in self._why

    def _found(self, took: float) -> Found:
        four, six = self._answers.get(A), self._answers.get(AAAA)
        have = [answer for answer in (six, four) if answer is not None and answer.addresses]
        if have:
            addresses = tuple(address for answer in have for address in answer.addresses)
            ttl = min(answer.ttl for answer in have)
            kept = min(max(ttl, LEAST_SECONDS), MOST_SECONDS)
            return Found(addresses, kept if four and six else LEAST_SECONDS)
        if four and (six or not four.exists):
            ttl = four.ttl if six is None else min(four.ttl, six.ttl)
            kept = min(max(ttl, MISSING_LEAST_SECONDS), MISSING_MOST_SECONDS)
            why = "has no address" if four.exists else "no such name"
            return Found(missing(self._name, why), kept)
        why = ", ".join(dict.fromkeys(self._why.values())) or f"no answer within {took:.1f} s"
        return Found(unanswered(self._name, why), UNANSWERED_SECONDS)
