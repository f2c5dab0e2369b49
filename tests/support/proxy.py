"""Proxies that treat traffic as networks do: they delay, lose, redirect or repeat it.

They run in the caller's gevent hub, which must keep running.
"""

from __future__ import annotations

import random
import socket as plain_socket
import struct
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

import gevent
from gevent import socket
from gevent.event import AsyncResult, Event
from gevent.server import StreamServer

Address = tuple[str, int]
Target = Address | Callable[[], Address]
"""An address, or a function that returns it at each connection."""
Mode = Literal["pass", "hold", "drop"]

CHUNK = 65536
CONNECT_SECONDS = 5.0
MAX_HEAD_BYTES = 64 * 1024


def address_of(url: str) -> Address:
    """Return host and port of a URL; both must be there."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"no host and port: {url}")
    return parts.hostname, parts.port


def _address(target: Target) -> Address:
    return target() if callable(target) else target


class TcpProxy:
    """Carries TCP from a free loopback port to ``target``; a context manager.

    ``mode`` may be set at any time, by :meth:`hold`, :meth:`drop` and :meth:`mend`. To the peers a
    held or dropped connection stays open and answers nothing, as when packets vanish. A new
    ``target`` holds for connections made from then on; :meth:`reset` ends the others. ``tap`` is
    shown all that the target sends, as it passes.
    """

    def __init__(self, target: Target, tap: Callable[[bytes], None] | None = None) -> None:
        self.target = target
        self.tap = tap
        self.mode: Mode = "pass"
        self.port = 0
        self.connections = 0
        """Connections accepted so far."""
        self.lost_bytes = 0
        """Bytes dropped so far."""
        self._flowing = Event()
        self._flowing.set()
        self._links: set[_Link] = set()
        self._server: StreamServer | None = None

    @property
    def address(self) -> str:
        """Return ``127.0.0.1:port``, without a scheme."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> TcpProxy:
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.port = int(self._server.server_port or 0)
        return self

    def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.stop(timeout=0.1)
        self.reset()

    def __enter__(self) -> TcpProxy:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def hold(self) -> None:
        """Forward nothing; what peers send waits, and arrives late once mended."""
        self.mode = "hold"
        self._flowing.clear()

    def drop(self) -> None:
        """Drop the data that peers send. A connection that lost bytes is reset once mended."""
        self.mode = "drop"
        self._flowing.set()

    def mend(self) -> None:
        """Forward again."""
        self.mode = "pass"
        self._flowing.set()
        for link in [link for link in self._links if link.broken]:
            link.reset()

    def reset(self) -> None:
        """End every connection by a TCP reset."""
        for link in list(self._links):
            link.reset()

    def _serve(self, client: socket.socket, _peer: object) -> None:
        self.connections += 1
        link = _Link(self, client)
        self._links.add(link)
        try:
            link.run()
        finally:
            self._links.discard(link)

    # -- for links

    def passes(self) -> bool:
        """Wait while traffic is held; False if it is dropped."""
        while self.mode == "hold":
            self._flowing.wait()
        return self.mode == "pass"


class _Link:
    """One client's connection and ours to the target."""

    def __init__(self, proxy: TcpProxy, client: socket.socket) -> None:
        self.broken = False
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._over = Event()

    def run(self) -> None:
        """Carry both directions until either side ends."""
        pumps = []
        try:
            if not self._proxy.passes():
                self.broken = True  # no target knows of it: what it sends is swallowed
                pumps = [gevent.spawn(self._pump, self._client, None)]
            else:
                server = socket.create_connection(_address(self._proxy.target), CONNECT_SECONDS)
                server.settimeout(None)
                self._server = server
                for sock in (server, self._client):
                    sock.setsockopt(plain_socket.IPPROTO_TCP, plain_socket.TCP_NODELAY, 1)
                pumps = [
                    gevent.spawn(self._pump, self._client, server),
                    gevent.spawn(self._pump, server, self._client),
                ]
            self._over.wait()
        except OSError:
            self.reset()  # the target refuses the connection, so the proxy ends the client's
        finally:
            gevent.killall(pumps)
            self._client.close()
            if self._server is not None:
                self._server.close()

    def reset(self) -> None:
        """End both sides by a reset, so that nothing half-sent looks complete."""
        for sock in (self._client, self._server):
            if sock is not None and sock.fileno() >= 0:
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(plain_socket.SOL_SOCKET, plain_socket.SO_LINGER, linger)
        self._over.set()

    def _pump(self, source: socket.socket, sink: socket.socket | None) -> None:
        try:
            while data := source.recv(CHUNK):
                if self._proxy.passes() and not self.broken and sink is not None:
                    if self._proxy.tap is not None and source is self._server:
                        self._proxy.tap(data)
                    sink.sendall(data)
                else:
                    self.broken = True
                    self._proxy.lost_bytes += len(data)
            while self.broken and self._proxy.mode == "drop":
                gevent.sleep(0.05)  # its end is lost like all else
        except OSError:
            self.reset()
        self._over.set()


class Repeater:
    """An HTTP/1.1 proxy that delivers each POST ``copies`` times, shuffled among the others.

    Every copy travels on a connection of its own after a delay of its own, random within
    ``spread_seconds``; the client gets the answer that arrives first, whichever copy it is of.
    Other methods are delivered once, at once. ``delivered`` counts copies that were answered, by
    method and path. A context manager; ``seed`` makes the delays reproducible.
    """

    def __init__(
        self, target: Target, copies: int = 3, spread_seconds: float = 0.2, seed: int = 1
    ) -> None:
        self.target = target
        self.copies = copies
        self.spread_seconds = spread_seconds
        self.port = 0
        self.delivered: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failed: Counter[str] = Counter()
        """Copies without an answer, by the error."""
        self._random = random.Random(seed)
        self._under_way: set[gevent.Greenlet[..., Any]] = set()
        self._server: StreamServer | None = None

    def __enter__(self) -> Repeater:
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.port = int(self._server.server_port or 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.stop(timeout=0.1)
        gevent.killall(list(self._under_way))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settle(self, seconds: float) -> bool:
        """Wait until no copy is on its way any more; return False if some still are."""
        gevent.joinall(list(self._under_way), timeout=seconds)
        return not self._under_way

    def _serve(self, client: socket.socket, _peer: object) -> None:
        client.setsockopt(plain_socket.IPPROTO_TCP, plain_socket.TCP_NODELAY, 1)
        buffer = b""
        try:
            while (message := _read_message(client, buffer)) is not None:
                head, body, buffer = message
                answer = self._deliver(head, body)
                if answer is None:
                    return  # no copy was answered: the client sees a closed connection
                client.sendall(answer)
        except OSError:
            return  # the client went away
        finally:
            client.close()

    def _deliver(self, head: bytes, body: bytes) -> bytes | None:
        """Send the copies; return the first answer, or None if no copy got one."""
        method, path = head.split(b" ", 2)[:2]
        name = f"{method.decode()} {path.decode().partition('?')[0]}"
        request = _closing(head) + body
        first: AsyncResult[bytes | None] = AsyncResult()
        if method != b"POST":
            return self._send(request, name, first, 0.0)
        waits = [self._random.uniform(0, self.spread_seconds) for _ in range(self.copies)]
        sent: list[gevent.Greenlet[..., Any]] = [
            gevent.spawn(self._send, request, name, first, wait) for wait in waits
        ]
        for copy in sent:
            self._under_way.add(copy)
            copy.link(self._under_way.discard)
        gevent.spawn(self._give_up, sent, first)
        return first.get()

    @staticmethod
    def _give_up(sent: list[gevent.Greenlet[..., Any]], first: AsyncResult[bytes | None]) -> None:
        gevent.joinall(sent)
        if not first.ready():
            first.set(None)

    def _send(
        self, request: bytes, name: str, first: AsyncResult[bytes | None], wait: float
    ) -> bytes | None:
        gevent.sleep(wait)
        try:
            answer = _exchange(_address(self.target), request)
        except OSError as error:
            self.failed[f"{name}: {error}"] += 1
            return None
        self.delivered[name] += 1
        self.statuses[int(answer.split(b" ", 2)[1])] += 1
        if not first.ready():
            first.set(answer)
        return answer


def _read_message(sock: socket.socket, buffer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return head (with its empty line), body, and the bytes after it; None at a clean end.

    Raises ConnectionError if the message is cut off. It knows only Content-Length, like brokers.
    """
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        data = sock.recv(CHUNK)
        if not data:
            if buffer:
                raise ConnectionError("cut off in a head")
            return None
        buffer += data
        if len(buffer) > MAX_HEAD_BYTES and b"\r\n\r\n" not in buffer:
            raise ConnectionError("endless head")
    head, rest = buffer[: end + 4], buffer[end + 4 :]
    missing = int(_field(head, b"content-length") or 0)
    while len(rest) < missing:
        data = sock.recv(CHUNK)
        if not data:
            raise ConnectionError("cut off in a body")
        rest += data
    return head, rest[:missing], rest[missing:]


def _field(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _closing(head: bytes) -> bytes:
    """Return the request's head with a request to close the connection after the answer."""
    lines = head[:-4].split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"Connection: close"]) + b"\r\n\r\n"


def _exchange(target: Address, request: bytes) -> bytes:
    """Send a request; return its answer as the client has to see it: complete, and kept alive."""
    with socket.create_connection(target, CONNECT_SECONDS) as sock:
        sock.settimeout(None)
        sock.setsockopt(plain_socket.IPPROTO_TCP, plain_socket.TCP_NODELAY, 1)
        sock.sendall(request)
        message = _read_message(sock, b"")
    if message is None:
        raise ConnectionError("no answer")
    head, body, _ = message
    kept = [
        line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")
    ]
    return b"\r\n".join(kept) + b"\r\n\r\n" + body
