"""DNS queries and answers as bytes; dnspython parses names and numbers in them.

An answer is read only as far as needed, so that a long one costs little. Everything in it except
addresses, aliases and the SOA of a missing name is skipped.
"""

from __future__ import annotations

import secrets
import struct
from typing import NamedTuple

import dns.exception
import dns.flags
import dns.name
import dns.rcode
import dns.rdatatype
import dns.wire
from gevent import socket

UDP_BYTES = 1232
"""The longest answer by UDP that a server may send: no link fragments it."""
MOST_RECORDS = 200
MOST_BYTES = 8192
"""At most this many bytes of an answer are read; only the first part of a longer one."""
MOST_ALIASES = 16
A, AAAA = int(dns.rdatatype.A), int(dns.rdatatype.AAAA)
TYPES = (A, AAAA)
BROKEN = (dns.exception.DNSException, ValueError, IndexError, struct.error)
"""Errors of a broken answer."""

_FAMILIES = {A: socket.AF_INET, AAAA: socket.AF_INET6}
_IN = 1
_FIRST_POINTER, _POINTER = b"\xc0\x00", b"\xc0\x0c"
"""The least pointer, and the pointer to the query's name, which follows the 12 bytes of the
header."""
_HEADER = struct.Struct("!6H")
_TRUNCATED = dns.flags.TC >> 8
_IS_ANSWER = dns.flags.QR >> 8
"""Flags in a message's third byte."""
_WITHOUT_EDNS = (dns.rcode.FORMERR, dns.rcode.NOTIMP)
_MOST_TTL = 2**31 - 1


class Answer(NamedTuple):
    """The result of one query."""

    addresses: tuple[str, ...]
    exists: bool
    ttl: float


def read(wire: bytes, kind: int) -> Answer:
    """Read the answer to a query of this type, and follow the aliases in it.

    Only the first records of a long one count. Raises dnspython's FormError; ValueError if there is
    no address among those records.
    """
    parser = dns.wire.Parser(wire)
    _, _, _, answers, authorities, _ = parser.get_struct("!6H")
    cut = answers + authorities > MOST_RECORDS or len(wire) >= MOST_BYTES
    name = _name(parser)
    parser.get_struct("!HH")
    aliases: dict[bytes, tuple[bytes, int]] = {}
    found: dict[bytes, list[tuple[str, int]]] = {}
    pointed = {_POINTER: name}
    for _ in range(min(answers, MOST_RECORDS)):
        try:
            owner = _owner(parser, pointed)
            type_, class_, ttl, length = parser.get_struct("!HHIH")
            if length > parser.remaining():
                raise ValueError("it ends within a record")
        except BROKEN:
            if not cut:
                raise
            break
        with parser.restrict_to(length):
            if type_ == dns.rdatatype.CNAME and class_ == _IN:
                aliases[owner] = _name(parser), ttl
            elif type_ == kind and class_ == _IN:
                address = socket.inet_ntop(_FAMILIES[kind], parser.get_remaining())
                found.setdefault(owner, []).append((address, ttl))
            else:
                parser.get_remaining()
    least = _MOST_TTL
    for _ in range(MOST_ALIASES):
        if name in found or name not in aliases:
            break
        name, ttl = aliases[name]
        least = min(least, _ttl(ttl))
    records = found.get(name, [])
    least = min([least, *(_ttl(ttl) for _, ttl in records)])
    if cut and not records:
        raise ValueError(f"{answers + authorities} records, no address among the first")
    if not records:
        least = min(least, _negative_ttl(parser, authorities))
    exists = wire[3] & 15 == dns.rcode.NOERROR
    return Answer(tuple(address for address, _ in records), exists, float(least))


def _name(parser: dns.wire.Parser) -> bytes:
    """Return a name in its canonical form, whatever its pointers and case."""
    return dns.name.from_wire_parser(parser).to_digestable()


def _owner(parser: dns.wire.Parser, pointed: dict[bytes, bytes]) -> bytes:
    """Return a record's name; nearly always it is a pointer to the name of the query, or of the
    record before.

    The target of a pointer is read once: names may be long, and records many.
    """
    pointer = parser.wire[parser.current : parser.current + 2]
    if len(pointer) < 2 or pointer < _FIRST_POINTER:
        return _name(parser)
    known = pointed.get(pointer)
    if known is None:
        known = pointed[pointer] = _name(parser)
    else:
        parser.get_bytes(2)
    return known


def _negative_ttl(parser: dns.wire.Parser, authorities: int) -> int:
    """Return how long a zone says that a name is missing (RFC 2308); 0 if it does not say."""
    for _ in range(authorities):
        _name(parser)
        type_, class_, ttl, length = parser.get_struct("!HHIH")
        with parser.restrict_to(length):
            if type_ == dns.rdatatype.SOA and class_ == _IN:
                _name(parser)
                _name(parser)
                return min(_ttl(ttl), _ttl(parser.get_struct("!5I")[-1]))
            parser.get_remaining()
    return 0


def _ttl(seconds: int) -> int:
    """Return a TTL; one with the highest bit set counts as 0 (RFC 2181)."""
    return seconds if seconds <= _MOST_TTL else 0


def wire_name(name: str) -> bytes | None:
    """Return a host name as in a query; None if DNS has no such names."""
    if not name.isascii():
        return None
    labels = name.rstrip(".").lower().encode().split(b".")
    wire = b"".join(bytes((len(label),)) + label for label in labels if len(label) < 64) + b"\0"
    fits = all(0 < len(label) < 64 for label in labels) and len(wire) <= 255
    return wire if fits else None


def query(name: bytes, kind: int, *, edns: bool) -> bytes:
    """Return a query with a random id; ``name`` is from :func:`wire_name`."""
    header = _HEADER.pack(secrets.randbits(16), dns.flags.RD, 1, 0, 0, int(edns))
    question = name + struct.pack("!HH", kind, 1)
    option = b"\0" + struct.pack("!HHIH", dns.rdatatype.OPT, UDP_BYTES, 0, 0) if edns else b""
    return header + question + option


def belongs(wire: bytes, query: bytes) -> bool:
    """Return whether ``wire`` answers exactly this query, by its id and the repeated question."""
    if len(wire) < _HEADER.size or not wire[2] & _IS_ANSWER or wire[:2] != query[:2]:
        return False
    end = query.index(0, _HEADER.size) + 5
    same = wire[_HEADER.size : end].lower() == query[_HEADER.size : end]
    return same or asks_for_no_edns(wire)


def is_cut(wire: bytes) -> bool:
    """Return whether an answer was too long for UDP."""
    return bool(wire[2] & _TRUNCATED)


def error(wire: bytes) -> str:
    """Return the name of a server's error code; "" if there is none."""
    code = wire[3] & 15
    if code in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return ""
    return dns.rcode.to_text(dns.rcode.Rcode(code))


def asks_for_no_edns(wire: bytes) -> bool:
    """Return whether a server that does not know EDNS sent ``wire``; such an answer may lack the
    question."""
    return wire[3] & 15 in _WITHOUT_EDNS
