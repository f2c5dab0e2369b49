"""A name server on loopback, over UDP and TCP: zones that answer, are slow, silent or broken.

It stands where a worker expects the recursive server of its network, so its answers say that
recursion is to be had. It keeps nothing: a slow zone is slow at each question.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import gevent
from gevent import socket
from gevent.server import DatagramServer, StreamServer

Names = Mapping[str, tuple[str, ...]]

_SIX = {dns.rdatatype.A: False, dns.rdatatype.AAAA: True}
_PLAIN_UDP = 512
_TRIES = 100


@dataclass(frozen=True)
class Zone:
    """The names at and below one name, and how the server answers for them.

    ``addresses`` are those of each name; a mapping gives those of some names, and no other names
    exist; a name with no addresses exists but has none. ``aliases`` are CNAMEs, which the server
    follows into other zones. Negative answers carry a SOA with ``negative_ttl``, or none if that is
    None.

    ``delay``: seconds before each answer. ``silent``: it does not answer at all; ``silent_for``: it
    does not answer about these types; ``missing_for``: it answers NXDOMAIN about these. ``rcode``:
    this instead of records. ``truncated``: the whole answer comes only by TCP. ``without_edns``: it
    answers FORMERR to queries with EDNS; ``drops_edns``: it does not answer them.

    ``forged``: before each UDP answer it sends some that nobody asked for, with these addresses:
    one with another id, and one to another question.
    """

    addresses: tuple[str, ...] | Names = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    ttl: int = 300
    negative_ttl: int | None = 60
    delay: float = 0.0
    silent: bool = False
    silent_for: tuple[str, ...] = ()
    missing_for: tuple[str, ...] = ()
    rcode: dns.rcode.Rcode | None = None
    truncated: bool = False
    without_edns: bool = False
    drops_edns: bool = False
    forged: tuple[str, ...] = ()


class DnsServer:
    """It answers for ``zones``, which may change while it runs; use it as a context manager.

    A name belongs to the zone with the longest name that it ends with, "" being the root; a name in
    no zone is REFUSED. ``address`` is the value for ``GREENCRAWL_DNS_SERVERS``. ``asked`` has each
    question in order, as ``name type``; ``by_tcp`` has those that came by TCP. ``waiting`` counts,
    by zone, the questions that wait for their answer now, and ``most_waiting`` the most so far.
    """

    def __init__(self, zones: Mapping[str, Zone], *, host: str = "127.0.0.1") -> None:
        self.zones = dict(zones)
        self.asked: list[str] = []
        self.by_tcp: list[str] = []
        self.waiting: Counter[str] = Counter()
        self.most_waiting: Counter[str] = Counter()
        self._under_way: set[Any] = set()
        datagrams, listener = _both(host)
        self._datagrams = DatagramServer(datagrams, self._datagram)
        self._stream = StreamServer(listener, self._connection)
        self.port: int = listener.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def __enter__(self) -> DnsServer:
        self._datagrams.start()
        self._stream.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer nothing any more, not even what waits."""
        gevent.killall(list(self._under_way))
        self._datagrams.stop()
        self._stream.stop()

    def names(self) -> list[str]:
        """Return the names that were asked for, each once, in order of their first question."""
        return list(dict.fromkeys(question.split()[0] for question in self.asked))

    # -- transport

    def _datagram(self, wire: Any, peer: Any) -> None:
        me = gevent.getcurrent()
        self._under_way.add(me)
        try:
            for answer in self._answers(wire, by_tcp=False):
                self._datagrams.sendto(answer, peer)
        finally:
            self._under_way.discard(me)

    def _connection(self, connection: socket.socket, _: object) -> None:
        me = gevent.getcurrent()
        self._under_way.add(me)
        try:
            with connection, connection.makefile("rb") as stream:
                while len(head := stream.read(2)) == 2:
                    wire = stream.read(struct.unpack("!H", head)[0])
                    for answer in self._answers(wire, by_tcp=True):
                        connection.sendall(struct.pack("!H", len(answer)) + answer)
        except OSError:
            pass  # the client went away
        finally:
            self._under_way.discard(me)

    # -- answers

    def _answers(self, wire: bytes, *, by_tcp: bool) -> list[bytes]:
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text(omit_final_dot=True).lower()
        kind = query.question[0].rdtype
        question = f"{name} {dns.rdatatype.to_text(kind)}"
        self.asked.append(question)
        if by_tcp:
            self.by_tcp.append(question)
        apex = self._apex(name)
        if apex is None:
            return [_rendered(query, dns.rcode.REFUSED, by_tcp)]
        zone = self.zones[apex]
        self.waiting[apex] += 1
        self.most_waiting[apex] = max(self.most_waiting[apex], self.waiting[apex])
        try:
            gevent.sleep(zone.delay)
        finally:
            self.waiting[apex] -= 1
        type_ = dns.rdatatype.to_text(kind)
        dropped = zone.drops_edns and query.edns >= 0
        if zone.silent or dropped or type_ in zone.silent_for:
            return []
        if zone.without_edns and query.edns >= 0:
            plain = dns.message.make_response(query)
            plain.use_edns(False)
            plain.set_rcode(dns.rcode.FORMERR)
            return [plain.to_wire()]
        answer = dns.message.make_response(query, recursion_available=True)
        if zone.rcode is not None:
            answer.set_rcode(zone.rcode)
        elif type_ in zone.missing_for:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif zone.truncated and not by_tcp:
            answer.flags |= dns.flags.TC
        else:
            self._fill(answer, name, kind)
        forged = [] if by_tcp else _forged(query, name, zone.forged)
        return [*forged, _wire(answer, query, by_tcp)]

    def _apex(self, name: str) -> str | None:
        labels = name.split(".")
        ends = (".".join(labels[at:]) for at in range(len(labels) + 1))
        return next((end for end in ends if end in self.zones), None)

    def _fill(self, answer: dns.message.Message, name: str, kind: dns.rdatatype.RdataType) -> None:
        """Add the records of ``name``, those its aliases lead to, or a SOA where there are none."""
        for _ in range(_TRIES):
            apex = self._apex(name)
            if apex is None:
                answer.set_rcode(dns.rcode.SERVFAIL)
                return
            zone = self.zones[apex]
            alias = zone.aliases.get(name)
            if alias is None:
                break
            answer.answer.append(
                dns.rrset.from_text(f"{name}.", zone.ttl, "IN", "CNAME", f"{alias}.")
            )
            name = alias
        known = zone.addresses
        mine = known.get(name) if isinstance(known, Mapping) else known
        fitting = [address for address in mine or () if (":" in address) is _SIX.get(kind)]
        if fitting:
            kind_name = dns.rdatatype.to_text(kind)
            answer.answer.append(
                dns.rrset.from_text(f"{name}.", zone.ttl, "IN", kind_name, *fitting)
            )
            return
        if mine is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        if zone.negative_ttl is not None:
            soa = f"ns.invalid. admin.invalid. 1 3600 600 86400 {zone.negative_ttl}"
            answer.authority.append(
                dns.rrset.from_text(f"{apex}.", zone.negative_ttl, "IN", "SOA", soa)
            )


def _both(host: str) -> tuple[socket.socket, socket.socket]:
    """Open sockets for datagrams and for connections at one free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_TRIES):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0))
        listener.listen(64)
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        try:
            datagrams.bind(listener.getsockname()[:2])
        except OSError:
            listener.close()
            datagrams.close()
        else:
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            return datagrams, listener
    raise OSError("found no port that is free for UDP and TCP")


def _rendered(query: dns.message.Message, rcode: dns.rcode.Rcode, by_tcp: bool) -> bytes:
    answer = dns.message.make_response(query, recursion_available=True)
    answer.set_rcode(rcode)
    return _wire(answer, query, by_tcp)


def _wire(answer: dns.message.Message, query: dns.message.Message, by_tcp: bool) -> bytes:
    """Return the answer's bytes; if they are too many for UDP, without records and marked."""
    wire = answer.to_wire(max_size=65_535)
    most = max(query.payload, _PLAIN_UDP) if query.edns >= 0 else _PLAIN_UDP
    if by_tcp or len(wire) <= most:
        return wire
    short = dns.message.make_response(query, recursion_available=True)
    short.flags |= dns.flags.TC
    return short.to_wire()


def _forged(query: dns.message.Message, name: str, addresses: tuple[str, ...]) -> list[bytes]:
    """Return answers with ``addresses`` that do not belong to the query."""
    if not addresses:
        return []
    made = []
    for other in (False, True):
        whose = f"other.{name}" if other else name
        false = dns.message.make_query(whose, query.question[0].rdtype)
        false.id = query.id if other else query.id ^ 1
        answer = dns.message.make_response(false, recursion_available=True)
        answer.answer.append(dns.rrset.from_text(f"{whose}.", 300, "IN", "A", *addresses))
        made.append(answer.to_wire())
    return made
