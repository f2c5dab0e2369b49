"""Connections to the broker, each with a deadline for its current activity.

A peer that opens a connection and sends nothing, or a byte a second, holds a greenlet, a socket and
some kilobytes. So each part of a request has its own deadline: the TLS handshake, the whole head,
the rest of a body after the answer, an answer that the peer does not read, and the pause between
two requests. (:func:`greencrawl.broker.api.bodies.read` limits the reading of a body.) There is no
deadline while a request is being answered: leases wait. One greenlet checks all connections once a
second and shuts those that are late, so a request costs no timer.
"""

from __future__ import annotations

import resource
import select
import socket
from contextlib import suppress
from email.message import Message
from math import inf
from typing import Any, Protocol

import gevent
from gevent import monkey, pywsgi
from gevent.pywsgi import WSGIServer

from greencrawl.broker.frontier.waiting import CALLER
from greencrawl.schema.clock import monotonic
from greencrawl.schema.log import logger

log = logger("http")

WSGIHandler: Any = pywsgi.WSGIHandler
_poll = monkey.get_original("select", "poll")  # it does not block here

HANDSHAKE_SECONDS = 10.0
HEAD_SECONDS = 10.0
"""Seconds for a request's line and header fields. They count from the first byte; on a new
connection they count from the start of the connection."""
REST_SECONDS = 120.0
"""At most this many seconds pass between two requests of a connection."""
LEAST_RATE = 16 * 1024
"""A body must arrive, and an answer must be read, with at least this many bytes a second, on
average after some grace."""
SEND_SECONDS = 30.0
"""Seconds of grace for a peer that reads its answer slowly."""
LEFT_SECONDS = 5.0
"""Seconds for the rest of a body that was answered without being read."""
MOST_HEAD_BYTES = 64 * 1024
MOST_CONNECTIONS = 4096
SPARE_FILES = 256
"""Files that are kept free for Redis, the store and logs."""
LOOK_SECONDS = 1.0


def most_connections() -> int:
    """Return how many connections are allowed: :data:`MOST_CONNECTIONS`, or fewer if files are
    scarce."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or soft < most:
        wanted = MOST_CONNECTIONS + SPARE_FILES
        soft = wanted if most == resource.RLIM_INFINITY else max(soft, min(most, wanted))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    return max(min(MOST_CONNECTIONS, soft - SPARE_FILES), 16)


class Connection:
    """A connection. ``until`` is its deadline, ``since`` when it began to wait for its peer."""

    __slots__ = ("answered", "since", "socket", "until")

    def __init__(self, sock: Any, now: float) -> None:
        self.socket = sock
        self.since = now
        self.until = now + HANDSHAKE_SECONDS
        self.answered = False

    def wait(self, seconds: float) -> None:
        """Wait for the peer from now on, for this long."""
        self.since = monotonic()
        self.until = self.since + seconds

    def is_open(self) -> bool:
        """Return whether the connection is still open at the peer, as far as the system knows."""
        descriptor = self.socket.fileno()
        if descriptor < 0:
            return False
        look = _poll()
        look.register(descriptor, select.POLLRDHUP)
        return not look.poll(0)

    def shut(self) -> None:
        """Shut the connection down: its reader and its writer see its end.

        This is done on the socket below TLS, since a TLS socket would lose its state while it is
        read.
        """
        with suppress(OSError, AttributeError):  # it was closed just now
            self.socket._sock.shutdown(socket.SHUT_RDWR)
        self.until = inf


class _Lines(Protocol):
    def readline(self, limit: int = -1, /) -> bytes: ...


class _Head:
    """Reads the lines of a head, within a limit of bytes."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines
        self._left = MOST_HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        line = self._lines.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise ValueError(f"a head of more than {MOST_HEAD_BYTES} bytes")
        return line


class Handler(WSGIHandler):  # type: ignore[misc]
    """pywsgi's handler, which reports the activity of its connection."""

    server: BoundedServer

    def __init__(self, sock: Any, address: Any, server: BoundedServer) -> None:
        super().__init__(sock, address, server)
        self.connection = server.connections[gevent.getcurrent()]

    def MessageClass(self, lines: Any, *rest: Any) -> Message:
        """Parse the header fields."""
        fields: Message = super().MessageClass(_Head(lines), *rest)
        return fields

    def read_requestline(self) -> str:
        """Wait for a request, and read its first line."""
        seconds = REST_SECONDS if self.connection.answered else HEAD_SECONDS
        self.connection.wait(seconds)
        line: str = super().read_requestline()
        self.connection.until = min(self.connection.until, monotonic() + HEAD_SECONDS)
        return line

    def handle_one_response(self) -> None:
        """Answer a request whose head is read."""
        self.connection.until = inf
        CALLER.set(self.connection.is_open)
        super().handle_one_response()
        self.connection.answered = True

    def handle_error(self, kind: Any, error: Any, trace: Any) -> None:
        """Log an error of an answer; if the peer is gone, log only that.

        If a peer is gone, TLS raises other errors than those that pywsgi ignores.
        """
        if isinstance(error, OSError):  # the application answers its own errors
            self.close_connection = True
            log.info("peer_lost", reason=str(error))
        else:
            super().handle_error(kind, error, trace)

    def _sendall(self, data: bytes) -> None:
        self.connection.wait(SEND_SECONDS + len(data) / LEAST_RATE)
        super()._sendall(data)
        self.connection.wait(LEFT_SECONDS)


class BoundedServer(WSGIServer):
    """pywsgi's server with a limit of connections, and a deadline for each that waits for its
    peer."""

    handler_class = Handler

    def __init__(self, *arguments: Any, most: int = MOST_CONNECTIONS, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.connections: dict[Any, Connection] = {}
        self._most = most
        self._looking: Any = None

    def start(self) -> None:
        """Accept connections, and look after them."""
        super().start()
        self._looking = gevent.spawn(self._look)

    def stop(self, timeout: float | None = None) -> None:
        """End all connections."""
        if self._looking is not None:
            self._looking.kill(block=False)
        super().stop(timeout)

    def wrap_socket_and_handle(self, client_socket: Any, address: Any) -> None:
        """Handle a connection to a TLS listener: the handshake, and the requests after it."""
        given: Any = {**(self.ssl_args or {}), "do_handshake_on_connect": False}
        with self._known(client_socket) as connection:
            secure = vars(self)["wrap_socket"](client_socket, **given)
            connection.socket = secure
            try:
                secure.do_handshake()
                super().handle(secure, address)
            except OSError as error:
                log.debug("connection_failed", text=str(error))
            finally:
                secure.close()

    def handle(self, sock: Any, address: Any) -> None:
        """Handle a connection to a listener without TLS."""
        with self._known(sock):
            super().handle(sock, address)

    def _known(self, sock: Any) -> _Known:
        if len(self.connections) >= self._most:
            self._make_room()
        return _Known(self.connections, Connection(sock, monotonic()))

    def _make_room(self) -> None:
        """Shut a waiting connection: the oldest that never sent a request, or else the oldest."""
        waiting = [one for one in self.connections.values() if one.until < inf]
        if not waiting:
            return  # all connections are being answered; a new one must not wait in the backlog
        oldest = min(waiting, key=lambda one: (one.answered, one.since))
        oldest.shut()

    def _look(self) -> None:
        while True:
            gevent.sleep(LOOK_SECONDS)
            now = monotonic()
            late = [one for one in self.connections.values() if one.until < now]
            for one in late:
                one.shut()
            if late:
                log.info("connections_shut", count=len(late), open=len(self.connections))


class _Known:
    """Keeps a connection in the server's list while the block runs."""

    def __init__(self, connections: dict[Any, Connection], connection: Connection) -> None:
        self._connections = connections
        self._connection = connection

    def __enter__(self) -> Connection:
        self._connections[gevent.getcurrent()] = self._connection
        return self._connection

    def __exit__(self, *_: object) -> None:
        del self._connections[gevent.getcurrent()]
