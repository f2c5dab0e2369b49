"""A raw-socket server for every kind of peer, above all for broken ones.

A behaviour is a function of the connected socket, called once a whole request has arrived. It
returns True to keep the connection for a next request; otherwise the connection is closed.
"""

from __future__ import annotations

import re
import socket as plain_socket
import struct
from collections.abc import Callable, Mapping
from types import TracebackType

import gevent
from gevent import socket, ssl
from gevent.server import StreamServer

Behaviour = Callable[[socket.socket], object]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class RawServer:
    """Serves ``behaviours`` by path on a free loopback port; a context manager.

    ``requests`` has the head of every request that arrived, in order, ``bodies`` their bodies, and
    ``connections`` the number of accepted connections.
    """

    def __init__(
        self,
        behaviours: Mapping[str, Behaviour] | Behaviour,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._behaviours = behaviours
        self._host = host
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0))
        listener.listen(64)
        self._scheme = "http" if tls is None else "https"
        self._server = (
            StreamServer(listener, self._serve)
            if tls is None
            else StreamServer(listener, self._serve, ssl_context=tls)
        )
        self.port: int = listener.getsockname()[1]

    def __enter__(self) -> RawServer:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(timeout=0.1)

    def url(self, path: str = "/", name: str | None = None) -> str:
        """Return the URL of ``path`` here, with the bound address or with another ``name`` for
        it."""
        host = name or (f"[{self._host}]" if ":" in self._host else self._host)
        return f"{self._scheme}://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        """Return the targets of the requests, in order of arrival."""
        return [head.split(" ", 2)[1] for head in self.requests]

    def _serve(self, sock: socket.socket, _peer: object) -> None:
        self.connections += 1
        try:
            while (request := _read_request(sock)) is not None:
                head, body = request
                self.requests.append(head)
                self.bodies.append(body)
                if self._behaviour(head)(sock) is not True:
                    break
        except (ConnectionError, ssl.SSLError):
            return  # the client closed the connection, as many of these behaviours intend
        finally:
            sock.close()

    def _behaviour(self, head: str) -> Behaviour:
        if callable(self._behaviours):
            return self._behaviours
        return self._behaviours[head.split(" ", 2)[1]]


def _read_request(sock: socket.socket) -> tuple[str, bytes] | None:
    """Return head and body of the next request, None at the end of the connection."""
    found, length = b"", 0
    while True:
        head, end, body = found.partition(b"\r\n\r\n")
        if end:
            told = _LENGTH.search(head)
            length = int(told[1]) if told else 0
            if len(body) >= length:
                assert len(body) == length, "more than was announced"
                return (head + end).decode("latin-1"), body
        data = sock.recv(65536)
        if not data:
            return None
        found += data


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> Behaviour:
    """Return a well-formed answer with a Content-Length, kept alive. ``x_y`` is the header
    ``x-y``."""
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode("latin-1")
    return send(head + body, keep=True)


def send(*pieces: bytes, keep: bool = False) -> Behaviour:
    """Send exactly these bytes, each piece in a write of its own; then close, unless ``keep``."""

    def behave(sock: socket.socket) -> bool:
        sock.sendall(pieces[0])
        for piece in pieces[1:]:
            gevent.sleep(0.005)
            sock.sendall(piece)
        return keep

    return behave


def send_late(seconds: float, data: bytes) -> Behaviour:
    """Send these bytes, ``seconds`` after the request, on a connection that is kept."""

    def behave(sock: socket.socket) -> bool:
        gevent.sleep(seconds)
        sock.sendall(data)
        return True

    return behave


def send_then_stall(data: bytes, seconds: float = 10) -> Behaviour:
    """Send these bytes, and then nothing, on an open connection."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(data)
        gevent.sleep(seconds)

    return behave


def drip(data: bytes, interval: float) -> Behaviour:
    """Send one byte each ``interval`` seconds: every single read succeeds, the answer never
    ends."""

    def behave(sock: socket.socket) -> None:
        for byte in data:
            sock.sendall(bytes([byte]))
            gevent.sleep(interval)

    return behave


def send_forever(start: bytes, again: bytes) -> Behaviour:
    """Send ``start``, then ``again`` repeatedly, until the client gives up."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(start)
        while True:
            sock.sendall(again)

    return behave


def send_then_reset(data: bytes) -> Behaviour:
    """Send these bytes, and then a TCP reset instead of an end."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(data)
        gevent.sleep(0.02)  # let them be read: a reset discards what is still under way
        linger = struct.pack("ii", 1, 0)
        sock.setsockopt(plain_socket.SOL_SOCKET, plain_socket.SO_LINGER, linger)

    return behave
