"""An HTTP server with a log for judges: which request arrived where and when, and how it was
answered.

It speaks just enough HTTP/1.1 for a crawler (GET and HEAD, keep-alive), on any number of loopback
addresses that share one port, each of which counts as a host of its own.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import gevent
from gevent.server import StreamServer

MAX_HEAD_BYTES = 64 * 1024
SO_TIMESTAMPNS = 35
"""Of Linux (asm-generic/socket.h); Python's socket module does not name it."""
_TIMESPEC = struct.Struct("qq")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a site. ``address`` is the loopback address of the connection.

    ``target`` is the request line's target, byte for byte; header names are lower-case.
    """

    address: str
    target: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a site, ``wait`` seconds after the request arrived."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(
        default_factory=lambda: {"Content-Type": "text/html; charset=utf-8"}
    )
    wait: float = 0.0


Site = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the log. ``arrived`` and ``ended`` are ``time.monotonic()`` seconds: when the
    kernel received the request's first bytes, and when the answer had been handed to it.
    """

    address: str
    target: str
    status: int
    arrived: float
    ended: float
    agent: str


class SiteServer:
    """Serve ``site`` on one free port of every address. ``hits`` is in the order of ending.

    It runs in the caller's gevent hub; ``arrived`` is right even if the hub is late. Use
    as a context manager, or ``start()`` and ``stop()``.
    """

    def __init__(self, site: Site, addresses: Sequence[str] = ("127.0.0.1",)) -> None:
        self.site = site
        self.addresses = tuple(addresses)
        self.port = 0
        self.hits: list[Hit] = []
        self.in_flight = 0
        self._servers: list[StreamServer] = []

    def start(self) -> SiteServer:
        """Listen. Raises OSError when no port is free on all addresses after some tries."""
        for listener in listeners(self.addresses):
            server = StreamServer(listener, self._serve)
            server.start()
            self._servers.append(server)
        self.port = int(self._servers[0].server_port or 0)
        return self

    def stop(self) -> None:
        for server in self._servers:
            server.stop(timeout=1)
        self._servers.clear()

    def __enter__(self) -> SiteServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, path: str = "/", address: str | None = None) -> str:
        return f"http://{address or self.addresses[0]}:{self.port}{path}"

    def log(self) -> list[Hit]:
        """Return all hits so far, in order of arrival."""
        return sorted(self.hits, key=lambda hit: hit.arrived)

    def _serve(self, sock: socket.socket, _peer: object) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = str(sock.getsockname()[0])
        buffer = b""
        try:
            while True:
                arrived = time.monotonic() if buffer else 0.0
                while (end := buffer.find(b"\r\n\r\n")) < 0:
                    chunk, at = arrival(sock)
                    if not chunk or len(buffer) > MAX_HEAD_BYTES:
                        return
                    arrived = arrived or at
                    buffer += chunk
                head, buffer = buffer[:end], buffer[end + 4 :]
                if not self._answer(sock, address, head, arrived):
                    return
        except OSError:
            return  # the peer went away, as a killed crawler does; its hit is in the log

    def _answer(self, sock: socket.socket, address: str, head: bytes, arrived: float) -> bool:
        """Answer one request and log it; True if the connection stays open."""
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        self.in_flight += 1
        status = 500
        try:
            if method in ("GET", "HEAD"):
                answer = self.site(Request(address, target, headers))
            else:
                answer = Answer(405, headers={"Allow": "GET, HEAD", "Connection": "close"})
            status = answer.status
            if answer.wait:
                gevent.sleep(answer.wait)
            sock.sendall(_render(answer, with_body=method != "HEAD"))
        finally:
            self.in_flight -= 1
            agent = headers.get("user-agent", "")
            self.hits.append(Hit(address, target, status, arrived, time.monotonic(), agent))
        return headers.get("connection", "").lower() != "close" and status != 405


def arrival(sock: socket.socket) -> tuple[bytes, float]:
    """Return bytes, and their time of arrival by ``time.monotonic()``.

    The kernel stamps packets when they arrive (SO_TIMESTAMPNS, socket(7)), by the wall clock.
    Raises OSError.
    """
    data, ancillary, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(_TIMESPEC.size))
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack_from(value)
            return data, seconds + nanoseconds / 1e9 + _monotonic_minus_wall()
    return data, time.monotonic()


def _monotonic_minus_wall() -> float:
    """Return the seconds between the two clocks; this is right even if the process is preempted
    meanwhile."""
    best, difference = float("inf"), 0.0
    for _ in range(10):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < best:
            best, difference = after - before, (before + after) / 2 - wall
        if best < 20e-6:
            break
    return difference


def _render(answer: Answer, *, with_body: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines.append(f"Content-Length: {len(answer.body)}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + answer.body if with_body else head


def listeners(addresses: Sequence[str], tries: int = 20) -> list[socket.socket]:
    """Return listening sockets on one port that is free on every address."""
    for attempt in range(tries):
        bound: list[socket.socket] = []
        try:
            for address in addresses:
                sock = socket.socket()
                bound.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # connections inherit it
                sock.bind((address, bound[0].getsockname()[1] if len(bound) > 1 else 0))
                sock.listen(1024)
        except OSError:
            for sock in bound:
                sock.close()
            if attempt == tries - 1:
                raise
        else:
            for sock in bound:
                sock.setblocking(False)
            return bound
    raise OSError("no address given")
