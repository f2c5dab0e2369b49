"""A synthetic web: its graph is a function of the URL, and a process of its own serves and logs it.

Page *g* of *N* is ``/p/<g div H>`` on host ``g mod H``; it links to the pages ``F·g + 1 … F·g + F``
below *N* (a tree, so that exactly the *N* pages can be reached from page 0) and to a few others
that a hash of *g* names. What a crawl must find is therefore known without crawling. Each host is a
loopback address; all share one port. :class:`Web` starts the process and reads its log, a file of
fixed records, so that a hundred thousand requests cost the server one write a round of its loop.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import IO, Any

from tests.support import webfiles
from tests.support.checkout import ROOT
from tests.support.site_server import Hit, arrival, listeners

_RECORD = struct.Struct("<IIIdd")
"""Host, page (or one of the two numbers below), status, arrived, ended."""
_ROBOTS = 0xFFFFFFFF
_OTHER = 0xFFFFFFFE
HEAD_BYTES = 64 * 1024
LONG_SECONDS = 5.0
"""The time for a client to take a long answer; all other clients wait meanwhile."""
ABANDONED = 0
"""Status in the log of a request whose connection was closed before its answer."""


@dataclass(frozen=True)
class WebSpec:
    """The parts of the web that is served. Durations in seconds.

    ``hosts`` × some pages make ``pages`` in all. Every answer but robots.txt (404) comes after
    ``answer_seconds``, or what ``slow`` says for a page number. ``titles`` are of single pages
    (``tests.support.deadly_hook`` obeys them). ``tarpits`` further hosts answer everything a byte
    each ``drip_seconds``; their pages are not among the ``pages``.

    ``sitemaps`` files list all pages, which then link to nothing; the first host's robots.txt names
    an index of them, and each answers after ``sitemap_seconds``. With ``requisites`` pages need
    images, styles and fonts. Each host has this many ``traps``; its first page links to them, and
    then its pages have texts (``tests.support.webfiles``).
    """

    hosts: int = 100
    pages: int = 5000
    fan_out: int = 8
    cross_links: int = 2
    answer_seconds: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    tarpits: int = 0
    drip_seconds: float = 1.0
    sitemaps: int = 0
    sitemap_seconds: float = 0.0
    requisites: bool = False
    traps: int = 0

    @cached_property
    def addresses(self) -> list[str]:
        """Return one loopback address a host, the tarpits' last."""
        return [f"127.{10 + i // 50000}.{i // 250 % 200}.{i % 250 + 1}" for i in range(self.all)]

    @property
    def all(self) -> int:
        """Return the number of hosts and tarpits."""
        return self.hosts + self.tarpits

    def links(self, page: int) -> list[int]:
        """Return the pages that ``page`` links to."""
        if self.sitemaps:
            return []
        below = range(self.fan_out * page + 1, self.fan_out * page + self.fan_out + 1)
        found = [child for child in below if child < self.pages]
        mixed = page
        for _ in range(self.cross_links):
            mixed = (mixed * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
            found.append((mixed >> 33) % self.pages)
        return found

    def path(self, page: int) -> tuple[int, str]:
        """Return host number and path of a page."""
        return page % self.hosts, f"/p/{page // self.hosts}"


class Web:
    """The serving process, from outside. Use as a context manager."""

    def __init__(self, spec: WebSpec, log: Path) -> None:
        self.spec = spec
        self.log = log
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Web:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.web", str(self.log)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._tell(asdict(self.spec))
        self.port = int(self._answer())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def throttle(self, hosts: Iterable[int], retry_after: int, requests: int = 1) -> None:
        """From now on answer the next ``requests`` to each of these hosts, except for robots.txt,
        by 429 with a Retry-After of ``retry_after`` seconds. This is in force when it returns.
        """
        self._tell({"throttle": list(hosts), "retry_after": retry_after, "requests": requests})
        self._answer()

    # -- what is expected

    def url(self, page: int) -> str:
        host, path = self.spec.path(page)
        return f"http://{self.spec.addresses[host]}:{self.port}{path}"

    def seeds(self, number: int = 1) -> list[str]:
        """Return the first pages: from page 0 alone all others are found, more start faster."""
        return [self.url(page) for page in range(min(number, self.spec.pages))]

    def expected(self) -> set[str]:
        """Return all pages, sitemaps and requisites: what a crawl without a limit must have
        stored."""
        found = {self.url(page) for page in range(self.spec.pages)}
        if self.spec.sitemaps:
            found.update(self.at(0, f"/m/{n}") for n in range(self.spec.sitemaps + 1))
        for page in range(self.spec.pages if self.spec.requisites else 0):
            number, host = divmod(page, self.spec.hosts)
            found.update(self.at(host, path) for path in webfiles.needed(number))
        return found

    def at(self, host: int, path: str) -> str:
        """Return a URL at a host, by its number."""
        return f"http://{self.spec.addresses[host]}:{self.port}{path}"

    def tarpit_urls(self, pages: int = 1) -> list[str]:
        """Return this many URLs on each tarpit."""
        names = self.spec.addresses[self.spec.hosts :]
        return [f"http://{name}:{self.port}/p/{n}" for name in names for n in range(pages)]

    # -- received requests

    def requests(self) -> int:
        """Return how many requests have been answered or abandoned: this is cheap."""
        return self.log.stat().st_size // _RECORD.size

    def hits(self) -> list[Hit]:
        """Return all requests so far, also those for robots.txt, in order of ending.

        ``arrived`` is when the kernel received the request; ``ended`` just before the last bytes of
        the answer were handed to it, or when a close by the peer was noticed. Both are
        ``time.monotonic()``, the same clock in all processes of this machine.
        """
        return [self._hit(*record) for record in self._records()]

    def _records(self) -> Iterator[tuple[int, int, int, float, float]]:
        data = self.log.read_bytes()
        whole = len(data) - len(data) % _RECORD.size
        yield from _RECORD.iter_unpack(data[:whole])

    def _hit(self, host: int, page: int, status: int, arrived: float, ended: float) -> Hit:
        target = {_ROBOTS: "/robots.txt", _OTHER: "/?"}.get(page) or webfiles.target_of(page)
        return Hit(self.spec.addresses[host], target, status, arrived, ended, "")

    # -- the process

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the synthetic web did not start or died; see its traceback above")
        return line.decode().strip()


# --- the serving process: one thread, one epoll, no gevent -----------------------------------


class _Connection:
    """A connection and the one request that it may have under way."""

    __slots__ = ("arrived", "buffer", "host", "page", "rest", "sock", "status")

    def __init__(self, sock: socket.socket, host: int) -> None:
        self.sock = sock
        self.host = host
        self.buffer = b""
        self.rest = b""  # of the answer under way
        self.arrived = 0.0
        self.page = _OTHER
        self.status = ABANDONED


class _Server:
    def __init__(self, spec: WebSpec, log: int, control: IO[bytes]) -> None:
        self.spec = spec
        self._log = log
        self._control = control
        self._poll = select.epoll()
        self._listening: dict[int, tuple[socket.socket, int]] = {}
        self._open: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Connection]] = []
        self._number = count()
        self._records: list[bytes] = []
        self._throttled: dict[int, list[int]] = {}  # host → [requests left, Retry-After]
        self.port = 0

    def listen(self) -> None:
        for host, sock in enumerate(listeners(self.spec.addresses)):
            self._listening[sock.fileno()] = (sock, host)
            self._poll.register(sock, select.EPOLLIN)
            self.port = sock.getsockname()[1]
        self._poll.register(self._control, select.EPOLLIN)

    def run(self) -> None:
        """Serve until the control is closed."""
        control = self._control.fileno()
        while True:
            wait = max(self._due[0][0] - time.monotonic(), 0) if self._due else -1
            for descriptor, _ in self._poll.poll(wait):
                if descriptor == control:
                    line = self._control.readline()
                    if not line:
                        return
                    self._command(json.loads(line))
                elif descriptor in self._listening:
                    self._accept(*self._listening[descriptor])
                elif descriptor in self._open:
                    self._read(self._open[descriptor])
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                self._step(heapq.heappop(self._due)[2])
            if self._records:
                os.write(self._log, b"".join(self._records))
                self._records.clear()

    def _command(self, given: dict[str, Any]) -> None:
        for host in given["throttle"]:
            self._throttled[host] = [given["requests"], given["retry_after"]]
        print("ok", flush=True)

    def _accept(self, listener: socket.socket, host: int) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open[sock.fileno()] = _Connection(sock, host)
        self._poll.register(sock, select.EPOLLIN)

    def _close(self, connection: _Connection) -> None:
        if connection.arrived:
            self._record(connection, ABANDONED)
        descriptor = connection.sock.fileno()
        if self._open.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)
            connection.sock.close()

    def _read(self, connection: _Connection) -> None:
        try:
            chunk, at = arrival(connection.sock)
        except BlockingIOError:
            return
        except OSError:
            chunk, at = b"", 0.0
        connection.buffer += chunk
        if not chunk or len(connection.buffer) > HEAD_BYTES:
            self._close(connection)
            return
        if b"\r\n\r\n" in connection.buffer and not connection.arrived:
            connection.arrived = at
            self._answer(connection)

    def _answer(self, connection: _Connection) -> None:
        """Find the answer of a request that has come in, and when it is due."""
        head, _, connection.buffer = connection.buffer.partition(b"\r\n\r\n")
        target = head.split(b" ", 2)[1].decode("latin-1")
        wait, tarpit, kind = 0.0, connection.host >= self.spec.hosts, "text/html"
        connection.page = _ROBOTS if target == "/robots.txt" else _number(target)
        if tarpit:
            connection.status, body, extra = 200, b"<title>tar</title>", ""
        else:
            connection.status, body, extra, wait = self._page(connection)
            kind = _type(connection.page)
        reason = HTTPStatus(connection.status).phrase
        connection.rest = (
            f"HTTP/1.1 {connection.status} {reason}\r\n{extra}"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        if wait or tarpit:
            self._later(connection, wait)
        else:
            self._send(connection, len(connection.rest))

    def _page(self, connection: _Connection) -> tuple[int, bytes, str, float]:
        """Return status, body, further header lines, and seconds until it is sent."""
        if connection.page == _ROBOTS:
            if self.spec.sitemaps and not connection.host:
                return 200, b"Sitemap: /m/0\n", "", 0.0
            return 404, b"", "", 0.0
        limit = self._throttled.get(connection.host)
        if limit is not None and limit[0] > 0:
            limit[0] -= 1
            return 429, b"", f"Retry-After: {limit[1]}\r\n", 0.0
        kind, number = divmod(connection.page, webfiles.KIND_STEP)
        if connection.page != _OTHER and kind:
            return self._file(connection.host, webfiles.LETTERS[kind], number)
        page = connection.page * self.spec.hosts + connection.host
        if connection.page == _OTHER or page >= self.spec.pages:
            return 404, b"", "", 0.0
        wait = self.spec.slow.get(page, self.spec.answer_seconds)
        return 200, self._body(page), "", wait

    def _file(self, host: int, letter: str, number: int) -> tuple[int, bytes, str, float]:
        """Return a file that is no page, in the form of :meth:`_page`."""
        spec, body, wait = self.spec, b"", 0.0
        if letter == "m" and not host and number <= spec.sitemaps > 0:
            body, wait = webfiles.sitemap(number, self._listed(number)), spec.sitemap_seconds
        elif letter == "t" and number < spec.traps:
            body = webfiles.trap(number, spec.traps)
        elif letter == "s" and spec.requisites:
            body = webfiles.style(number)
        elif letter in "rf" and spec.requisites:
            body = f"{letter}{host}.{number}".encode()
        return 200 if body else 404, body, "", wait

    def _listed(self, number: int) -> Iterator[str]:
        """Yield the URLs of the files of the index, 0, or of the pages of a file."""
        spec = self.spec
        if number:
            paths = map(spec.path, range(number - 1, spec.pages, spec.sitemaps))
        else:
            paths = ((0, f"/m/{n}") for n in range(1, spec.sitemaps + 1))
        for host, path in paths:
            yield f"http://{spec.addresses[host]}:{self.port}{path}"

    def _body(self, page: int) -> bytes:
        spec = self.spec
        text = [f"<!doctype html><title>{spec.titles.get(page) or f'Page {page}'}</title>"]
        for target in spec.links(page):
            host, path = spec.path(target)
            text.append(f"<a href=http://{spec.addresses[host]}:{self.port}{path}>{target}</a> ")
        if spec.requisites:
            text.append(webfiles.shown(page // spec.hosts))
        if spec.traps:
            text.append(f"<p>{webfiles.words(page)}</p>")
            if page < spec.hosts:
                text.append("<a href=/t/0>Calendar</a>")
        return "".join(text).encode()

    def _later(self, connection: _Connection, seconds: float) -> None:
        due = time.monotonic() + seconds
        heapq.heappush(self._due, (due, next(self._number), connection))

    def _step(self, connection: _Connection) -> None:
        """Send what is due: the whole answer, or a tarpit's next byte."""
        if not connection.arrived:
            return  # closed meanwhile
        tarpit = connection.host >= self.spec.hosts
        self._send(connection, 1 if tarpit else len(connection.rest))
        if connection.rest:
            self._later(connection, self.spec.drip_seconds)

    def _send(self, connection: _Connection, size: int) -> None:
        part, connection.rest = connection.rest[:size], connection.rest[size:]
        if not connection.rest:
            # Logged before it is sent: a client cannot have the answer earlier than this says.
            self._record(connection, connection.status)
        try:
            left = part[connection.sock.send(part) :]
            if left:  # a long sitemap; all else is far smaller than a socket's buffer
                connection.sock.settimeout(LONG_SECONDS)
                connection.sock.sendall(left)
                connection.sock.setblocking(False)
        except OSError:  # the client is gone
            connection.rest = b""
            self._close(connection)

    def _record(self, connection: _Connection, status: int) -> None:
        self._records.append(
            _RECORD.pack(
                connection.host, connection.page, status, connection.arrived, time.monotonic()
            )
        )
        connection.arrived = 0.0


def _number(target: str) -> int:
    number = webfiles.number_of(target)
    return _OTHER if number < 0 else number


def _type(number: int) -> str:
    """Return the type of the file with a number of the log."""
    if number >= _OTHER:
        return "text/plain" if number == _ROBOTS else "text/html"
    return webfiles.TYPES[webfiles.LETTERS[number // webfiles.KIND_STEP]]


def _main(log: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C; the control's end stops it
    control = os.fdopen(0, "rb", buffering=0)
    given = json.loads(control.readline())
    for numbered in ("slow", "titles"):
        given[numbered] = {int(page): value for page, value in given[numbered].items()}
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = _Server(WebSpec(**given), file, control)
    server.listen()
    print(server.port, flush=True)
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
