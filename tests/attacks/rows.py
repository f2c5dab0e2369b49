"""The table of attacks: what each host does, how many hosts there are, and the expected reason.

Each row of the audit has two attacks: the one that was observed, and one of our own with the same
aim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from random import Random

import brotli
import gevent
from gevent import socket

from tests.attacks.servers import NO_ROBOTS, Answers, Hosts, Request, Takes, reply
from tests.support.dns_server import Zone

FOREVER = 3600.0
BROTLI = "Content-Encoding: br"


@dataclass(frozen=True)
class Attack:
    """The hosts are ``hosts`` addresses of 127.``net``.0.0/16, or as many ports of one address if
    ``farm`` is set, or ``names`` in ``zones``, with {n} for the number of each host. The short form
    has ``short`` hosts. A host answers requests by ``answers``, or handles connections by
    ``takes``.

    ``explain`` must say ``said`` of one of the seeds. ``kinds`` are failures, and reasons
    for which sessions are put off; the summary must count some of these. ``options`` are those of
    the crawl. The long form takes ``seconds``.
    """

    name: str
    what: str
    mechanism: str
    net: int
    hosts: int
    short: int
    said: str
    kinds: tuple[str, ...]
    answers: Answers | None = None
    takes: Takes | None = None
    scheme: str = "http"
    target: str = "/"
    farm: bool = False
    names: str = ""
    zones: Mapping[str, Zone] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 40.0

    def serve(self, *, short: bool) -> Hosts:
        """Return the attack's hosts, which the caller starts."""
        ports = (self.short if short else self.hosts) if self.farm else 1
        return Hosts(self.answers, self.takes, ports=ports, log=self.farm)

    def seeds(self, ports: Sequence[int], *, short: bool) -> list[str]:
        """Return a URL of each host."""
        hosts = range(self.short if short else self.hosts)
        if self.farm:
            places = [f"127.{self.net}.0.1:{port}" for port in ports]
        elif self.names:
            places = [f"{self.names.format(n=n)}:{ports[0]}" for n in hosts]
        else:
            places = [f"127.{self.net}.{n // 250}.{n % 250 + 1}:{ports[0]}" for n in hosts]
        return [f"{self.scheme}://{place}{self.target}" for place in places]


def pages(answers: Answers) -> Answers:
    """Answer requests for robots.txt with 404, and all others by ``answers``."""

    def answer(sock: socket.socket, asked: Request) -> object:
        if asked.target == "/robots.txt":
            sock.sendall(NO_ROBOTS)
            return True
        return answers(sock, asked)

    return answer


def always(message: bytes) -> Answers:
    """Answer each request with ``message``, except requests for robots.txt."""

    def answer(sock: socket.socket, asked: Request) -> bool:
        sock.sendall(message)
        return True

    return pages(answer)


# --- time ------------------------------------------------------------------------------------


def byte_by_byte(seconds: float, first: bytes) -> Takes:
    """Send ``first``, and then one zero after each pause of this many seconds."""

    def take(sock: socket.socket) -> None:
        sock.sendall(first)
        while True:
            gevent.sleep(seconds)
            sock.sendall(b"\0")

    return take


def interim_for_ever(sock: socket.socket, asked: Request) -> bool:
    """Send an interim answer each quarter of a second, and never a final one."""
    while True:
        sock.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        gevent.sleep(0.25)


def silent(sock: socket.socket) -> None:
    """Send nothing."""
    gevent.sleep(FOREVER)


def late(seconds: float) -> Answers:
    """After this many seconds send a page that links to more."""

    def answer(sock: socket.socket, asked: Request) -> bool:
        gevent.sleep(seconds)
        sock.sendall(reply(b"<title>late</title>" + _links(_number(asked))))
        return True

    return answer


# --- CPU -------------------------------------------------------------------------------------


@cache
def attribute_bomb() -> bytes:
    """Some 100 KB of brotli: 150,000 attributes of one element, a ">" in some values."""
    names = (b" a%x%s" % (n, b"='>'" if n % 500 == 0 else b"") for n in range(150_000))
    body = b"<title>T</title><p" + b"".join(names) + b">end"
    return reply(brotli.compress(body, quality=3), BROTLI)


def _links(number: int) -> bytes:
    return b"".join(b'<a href="/%d">n</a>' % n for n in range(number + 1, number + 4))


def _number(asked: Request) -> int:
    given = asked.target.split("/")[1]
    return int(given) if given.isdigit() else 0


def costly(repeat: bytes, size: int, noise: int = 0) -> Answers:
    """Send endlessly many pages of ``size`` bytes made of ``repeat``, with ``noise`` additional
    bytes on the wire."""

    @cache
    def page(number: int) -> bytes:
        words = b"<!--" + Random(number).randbytes(noise // 2).hex().encode() + b"-->"
        body = b"<title>T</title>" + _links(number) + words + repeat * (size // len(repeat))
        return reply(brotli.compress(body, quality=4), BROTLI)

    def answer(sock: socket.socket, asked: Request) -> bool:
        sock.sendall(page(_number(asked) % 1000))
        return True

    return pages(answer)


# --- robots.txt ------------------------------------------------------------------------------

RULES = 25_000


@cache
def wildcard_rules() -> bytes:
    """Return a robots.txt with so many rules that matching a long path takes long."""
    lines = ["User-agent: *", *(f"Disallow: /*aaaaaa*b{n:x}" for n in range(RULES))]
    return reply("\n".join(lines).encode(), "Content-Type: text/plain")


def long_paths(robots: bytes) -> Answers:
    """Send pages that link to long paths, and this robots.txt."""

    def answer(sock: socket.socket, asked: Request) -> bool:
        if asked.target == "/robots.txt":
            sock.sendall(robots)
            return True
        many = b"".join(b'<a href="/%d/%s">n</a>' % (n, b"a" * 1800) for n in range(300))
        sock.sendall(reply(many))
        return True

    return answer


def endless_robots(sock: socket.socket, asked: Request) -> bool:
    """Send a robots.txt that never ends, with one more group each 20 ms."""
    if asked.target != "/robots.txt":
        sock.sendall(reply(b"<title>never read</title>"))
        return True
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
    for number in count():
        sock.sendall(b"User-agent: a%d\nDisallow: /*%d\n" % (number, number) * 20)
        gevent.sleep(0.02)
    return False


# --- memory ----------------------------------------------------------------------------------

NEARLY = 10 * 1024 * 1024 - 4096


def sit_on(size: int) -> Answers:
    """Send all of a body except for 100 bytes, and then nothing."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {size}\r\n\r\n"
    piece = b"a word " * 9000

    def answer(sock: socket.socket, asked: Request) -> bool:
        sock.sendall(head.encode())
        left = size - 100
        while left:
            data = piece[:left]
            sock.sendall(data)
            left -= len(data)
        gevent.sleep(FOREVER)
        return False

    return pages(answer)


def tiny_chunks(size: int) -> Answers:
    """Send a body of ``size`` bytes, in chunks of one byte."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"1\r\na\r\n" * 4000

    def answer(sock: socket.socket, asked: Request) -> bool:
        sock.sendall(head)
        for _ in range(size // 4000):
            sock.sendall(piece)
        sock.sendall(b"0\r\n\r\n")
        return True

    return pages(answer)


# --- names -----------------------------------------------------------------------------------


def farm(sock: socket.socket, asked: Request) -> bool:
    """Link from each host to ten more hosts, at ports beside its own."""
    if asked.target == "/robots.txt":
        sock.sendall(NO_ROBOTS)
        return True
    mine = asked.ports.index(asked.port)
    near = [asked.ports[(mine * 10 + n) % len(asked.ports)] for n in range(10)]
    links = "".join(f'<a href="http://{asked.address}:{port}/">n</a>' for port in near)
    more = "".join(f'<a href="/{_number(asked) * 3 + n}">n</a>' for n in range(1, 4))
    sock.sendall(reply(f"<title>farm</title>{links}{more}".encode()))
    return True


def redirects(sock: socket.socket, asked: Request) -> bool:
    """Redirect each request, also that for robots.txt, to a long URL at another address of the
    net."""
    net = asked.address.rsplit(".", 2)[0]
    there = _number(asked) + 1
    to = f"http://{net}.{there // 250 % 250}.{there % 250 + 1}:{asked.port}/{there}/{'a' * 7000}"
    sock.sendall(reply(b"", f"Location: {to}", status="302 Found"))
    return True


# --- the table -------------------------------------------------------------------------------

_TLS_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc"
"""The start of a ServerHello that is as long as a record may be."""
_END_TAGS = b"</q>"
_NESTED = b"<div>" * 200 + b"</q>" * 8000 + b"</div>" * 200

_ROWS = [
    Attack(
        "handshake", "TLS handshake at a byte a second",
        "one deadline for connecting and TLS, whatever comes", 20, 50, 3,
        "no connection within", ("connect_timeout",),
        takes=byte_by_byte(0.5, _TLS_RECORD), scheme="https",
    ),
    Attack(
        "interim", "interim answers for ever, four a second",
        "one deadline for a request", 21, 50, 3,
        "no complete answer within", ("timeout",), answers=pages(interim_for_ever),
    ),
    Attack(
        "attributes", "100 KB of brotli: 150,000 attributes of one element, > in values",
        "the parser is stopped at an element's attributes, and the page read alone", 22, 4, 1,
        "s of CPU", ("costly",), answers=always(attribute_bomb()),
    ),
    Attack(
        "end-tags", "2 MB of end tags that close nothing, in 50 KB",
        "reading a page has a budget of CPU, and its host is charged", 23, 4, 1,
        "s of CPU", ("costly",), answers=costly(_NESTED, 2_000_000, 100_000),
    ),
    Attack(
        "costly", "some hundred bytes that cost a second of CPU, four hosts",
        "their pages are read alone, and their hosts pay", 24, 4, 1,
        "s of CPU", ("costly",), answers=costly(b"<b><i><u><p>x", 9_900_000),
    ),
    Attack(
        "next-to-nothing", "a MB that came as a hundred bytes, as dear as it may be, forty hosts",
        "what came as next to nothing is read alone", 25, 40, 2,
        "came as", ("dense",), answers=costly(_END_TAGS * 2000, 990_000),
    ),
    Attack(
        "almost-10-mib", "10 MiB less a bit, and then nothing",
        "what is being received is under the bound of memory", 26, 100, 16,
        "waited for the memory", ("timeout",), answers=sit_on(NEARLY),
    ),
    Attack(
        "tiny-chunks", "10 MB in chunks of one byte",
        "framing that outweighs what it carries is not read on", 27, 30, 2,
        "almost empty", ("protocol",), answers=tiny_chunks(10_000_000),
    ),
    Attack(
        "trees", "10 MB of links in 300 KB, 400 MB as a tree, ten hosts",
        "a tree that is larger than what is kept for trees is made in another process", 36, 10, 1,
        "s of CPU", ("costly",), answers=costly(b"<a href=/q>x</a> ", 9_900_000, 600_000),
    ),
    Attack(
        "farm", "hosts of one address that link to more of them, delay 1",
        "an address has a share of starts over all workers", 28, 1000, 40,
        "requests in 1 s", ("share",), answers=farm, farm=True,
        options={"delay": 1, "address_rate": 10, "address_connections": 10, "domain_rate": 20},
    ),
    Attack(
        "redirects", "redirects from address to address, at URLs of 7,000 bytes",
        "a redirect is queued like any link, and there is a most of them", 29, 100, 3,
        "redirecting to", ("redirect",), answers=redirects, target="/1/",
    ),
    Attack(
        "slow-zone", "names of one zone, whose name server takes 10 s",
        "a registrable domain has a share of look-ups", 34, 400, 120,
        "look-up|name server|dns", ("look_up",), answers=always(reply(b"late")),
        names="n{n}.slow.test", zones={"slow.test": Zone(("127.34.0.1",), delay=10)},
    ),
    Attack(
        "slow-zones", "names of as many zones, whose name server takes 10 s",
        "slow look-ups have a lane of their own", 35, 400, 20,
        "look-up|name server|dns", ("look_up", "dns_failed"), answers=always(reply(b"late")),
        names="www.n{n}-slow.example", zones={"example": Zone(("127.35.0.1",), delay=10)},
    ),
    Attack(
        "wildcards", "robots.txt of 25,000 rules with wildcards, long URLs",
        "rules are compiled once, the work for a URL is bounded", 30, 10, 1,
        "may match to try them all", ("robots",), answers=long_paths(wildcard_rules()),
        target="/aaaaaaaa",
    ),
    Attack(
        "endless-robots", "robots.txt that never ends",
        "a deadline, and 500 KiB", 31, 100, 3,
        "robots", ("robots_unreachable", "timeout"), answers=endless_robots,
    ),
    Attack(
        "silent", "hosts that accept, and say nothing",
        "slow sessions are bounded, strangers among them", 32, 3000, 80,
        "no complete answer|found no room", ("slow",), takes=silent,
        settings={"request_seconds": "60"}, seconds=63.0,
    ),
    Attack(
        "just-in-time", "each answer just before the request's time is over",
        "slow sessions are bounded, those known to be slow to half of it", 33, 3000, 80,
        "found no room", ("slow",), answers=late(55.0),
        settings={"request_seconds": "60"}, seconds=63.0,
    ),
]  # fmt: skip

ATTACKS = {one.name: one for one in _ROWS}
"""The attacks by name, those of the audit before our own."""
