"""Connections to judged addresses: opened, kept while idle, and dropped when they are stale."""

from __future__ import annotations

import errno
import math
import select
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
from gevent import getcurrent, monkey, socket, ssl

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.records import Failure, FailureKind
from greencrawl.worker.http.addresses import address_name
from greencrawl.worker.http.tls import connect_failure, wrapped
from greencrawl.worker.process.blocked import blocked

if TYPE_CHECKING:
    from greenlet import greenlet

STOOD_SECONDS, EXCUSED_SECONDS = 0.5, 1.0
"""If a timer is late by the first value, the process was frozen or busy. Then data that the peer
sent meanwhile may be read for the second value; the request waits no longer for the rest."""
IDLE_SECONDS = 15.0
CONNECT_SECONDS = 10.0
READ_BYTES = 64 * 1024

# All connections share this buffer, so it stays in the processor's cache. Memory for each answer,
# and a copy from it, would cost a page 5 µs.
_received = memoryview(bytearray(READ_BYTES))
_READ, _WRITE = 1, 2
_poll = monkey.get_original("select", "poll")
_bare_socket = monkey.get_original("socket", "socket")
_LOCAL_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Origin(NamedTuple):
    """The owner of a connection. ``host`` is without brackets, ``authority`` a Host header."""

    scheme: str
    host: str
    port: int
    authority: bytes


class Connection:
    """A connected socket (inside TLS for https), bound to one origin and one judged address.

    :meth:`shake_hands`, :meth:`ask` and :meth:`receive` wait for the peer, but not beyond
    ``until``, a value of ``clock``, however many waits they take. The socket itself does not block:
    gevent's methods would set up a time-out for every single wait. Here one timer outlives the
    waits; only when it rings, it checks whether the current wait has more time. One greenlet at a
    time may use it.
    """

    __slots__ = (
        "_blocked",
        "_clock",
        "_hub",
        "_poller",
        "_readable",
        "_receive",
        "_rings",
        "_send",
        "_timer",
        "_until",
        "_waiting",
        "_writable",
        "address",
        "closed",
        "excused",
        "held_up",
        "idle_since",
        "place",
        "socket",
    )

    def __init__(
        self, origin: Origin, address: str, sock: socket.socket, clock: Clock = monotonic
    ) -> None:
        self.place = (origin, address)
        self.address = address
        self.idle_since = 0.0
        self.closed: Callable[[], None] | None = None
        """Called once it is closed."""
        self._clock = clock
        if isinstance(sock, ssl.SSLSocket):
            self.socket = sock
            self._send = sock.write  # ``send`` does not say what it would wait for
        else:
            self.socket = _bare_socket(sock.family, sock.type, sock.proto, sock.detach())
            self._send = self.socket.send
        self.socket.settimeout(0.0)
        self._receive = self.socket.recv_into
        descriptor = self.socket.fileno()
        self._poller = _poll()
        self._poller.register(descriptor, select.POLLIN)
        self._hub = gevent.get_hub()
        self._readable = self._hub.loop.io(descriptor, _READ)
        self._writable = self._hub.loop.io(descriptor, _WRITE)
        self._timer: Any = None
        self._rings = math.inf  # when the timer rings; without one, never
        self._until = 0.0
        self.excused = 0.0
        """Seconds that a request may wait beyond its time, since the process was frozen
        meanwhile."""
        self._waiting: greenlet | None = None
        self._blocked = blocked()
        self.held_up = 0.0
        """Seconds of the request's waits in which this process, not its peer, was slow."""

    def stale(self) -> bool:
        """Return whether the peer has closed, or sent data that nobody asked for. Never blocks.

        An answer comes only after its request, so an idle socket that is readable is of no use.
        """
        return bool(self._poller.poll(0))

    def shake_hands(self, until: float) -> None:
        """Agree on TLS, if the socket is inside it. Raises TimeoutError and OSError.

        gevent would set up its time-out again at each byte.
        """
        self.excused = 0.0
        while isinstance(self.socket, ssl.SSLSocket):
            try:
                self.socket.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._wait(self._readable, until)
            except ssl.SSLWantWriteError:
                self._wait(self._writable, until)

    def ask(self, data: bytes, until: float) -> None:
        """Send all of ``data`` and wait until there is something to receive.

        Raises TimeoutError, or OSError when the connection is lost.
        """
        self.excused = self.held_up = 0.0
        left: bytes | memoryview = data
        while True:
            try:
                sent = self._send(left)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(self._writable, until)
            except ssl.SSLWantReadError:
                self._wait(self._readable, until)
            else:
                if sent == len(left):
                    break
                left = memoryview(left)[sent:]
        self._wait(self._readable, until)  # trying first would cost a system call and an error

    def receive(self, until: float, most: int = READ_BYTES) -> memoryview | None:
        """Return at most ``most`` bytes of what has come; an empty view when the peer has closed.

        If there was nothing, wait, and return None. The result is valid until this greenlet lets
        another one run, which may receive, too. Raises TimeoutError, or OSError when the connection
        is lost.
        """
        try:
            return _received[: self._receive(_received, most)]
        except (BlockingIOError, ssl.SSLWantReadError):
            self._wait(self._readable, until)
        except ssl.SSLWantWriteError:
            self._wait(self._writable, until)
        return None

    def interrupt(self, error: BaseException) -> None:
        """Raise ``error`` in the current wait, if there is one. Call this in the hub."""
        if self._waiting is not None:
            self._waiting.throw(error)

    def close(self) -> None:
        """Close at once; errors of the peer no longer matter."""
        self._stop_timer()
        self._readable.close()
        self._writable.close()
        self.socket.close()
        if self.closed is not None:
            self.closed()
            self.closed = None

    def _wait(self, watcher: Any, until: float) -> None:
        until += self.excused
        if until < self._rings:
            self._set_timer(until)
        self._until, self._waiting = until, getcurrent()
        before = self._blocked.count
        try:
            self._hub.wait(watcher)
        finally:
            self._waiting = None
        if self._blocked.count != before:
            self.held_up += self._blocked.before_this(before)

    def pause(self, seconds: float) -> None:
        """Let other greenlets run between two reads."""
        before = self._blocked.count
        gevent.sleep(seconds)
        if self._blocked.count != before:
            self.held_up += self._blocked.after(before)

    def _set_timer(self, until: float) -> None:
        self._stop_timer()
        # Without ``ref``: a loop with nothing else to wait for must not wait for idle connections.
        self._timer = self._hub.loop.timer(max(0.0, until - self._clock()), ref=False)
        self._timer.start(self._ring, update=True)
        self._rings = until

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer, self._rings = None, math.inf

    def _ring(self) -> None:
        """Handle the timer; the loop calls this. The current wait may have begun after the one that
        set the timer. If nothing waits, the next wait sets the timer again."""
        self._stop_timer()
        if self._waiting is None:
            return
        late = self._clock() - self._until
        if late > STOOD_SECONDS and not self.excused and self._poller.poll(0):
            self.excused = late + EXCUSED_SECONDS
            self._until += self.excused
        if self._clock() < self._until:
            self._set_timer(self._until)
        else:
            self._waiting.throw(TimeoutError())


class Connections:
    """Keep-alive connections by origin and address, bounded in number and in idle time.

    If there are more than ``max_idle``, the longest idle one is closed. :meth:`take` checks each
    connection (:meth:`Connection.stale`): a request on a dead one would have to be sent again, and
    politeness would not know of it.
    """

    def __init__(
        self,
        *,
        max_idle: int,
        tls: ssl.SSLContext,
        idle_seconds: float = IDLE_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        opened: Callable[[str, float], object] = lambda scheme, seconds: None,
        clock: Clock = monotonic,
    ) -> None:
        """Build the object; ``opened`` gets the scheme of each new connection, and the seconds that
        its TLS took."""
        self._opened = opened
        self._max_idle, self._tls = max_idle, tls
        self._idle_seconds = idle_seconds
        self.connect_seconds = connect_seconds
        self._clock = clock
        self._by_place: dict[tuple[Origin, str], list[Connection]] = {}
        self._by_age: OrderedDict[Connection, None] = OrderedDict()  # the longest idle one first
        self._sweeper: gevent.Greenlet[[], None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._by_age)

    def take(self, origin: Origin, addresses: Sequence[str]) -> Connection | None:
        """Return an idle, usable connection to ``origin`` at one of ``addresses``, or None."""
        for address in addresses:
            waiting = self._by_place.get((origin, address))
            while waiting:
                connection = waiting.pop()  # the one used last is the least likely to be dead
                if not waiting:
                    del self._by_place[connection.place]
                del self._by_age[connection]
                too_old = self._clock() - connection.idle_since > self._idle_seconds
                if not too_old and not connection.stale():
                    return connection
                connection.close()
        return None

    def give(self, connection: Connection) -> None:
        """Keep a connection whose last answer was read to its end."""
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._clock()
        self._by_place.setdefault(connection.place, []).append(connection)
        self._by_age[connection] = None
        if len(self._by_age) > self._max_idle:
            self._drop(next(iter(self._by_age)))
        if self._sweeper is None:
            self._sweeper = gevent.spawn(self._sweep)

    def open(
        self, origin: Origin, addresses: Sequence[str], timeout: float
    ) -> Connection | Failure:
        """Connect to the first of ``addresses`` that accepts, within ``timeout`` seconds at most.

        Each address gets an equal share of the remaining time. Certificates are checked against the
        origin's name, whatever the address. On failure no byte of a request was sent (``requests``
        is 0), and the last address's error gives the kind.
        """
        budget = min(timeout, self.connect_seconds)
        until = self._clock() + budget
        told: list[str] = []
        failure = Failure(FailureKind.UNREACHABLE, "no address", requests=0)
        for index, address in enumerate(addresses):
            left = until - self._clock()
            if left <= 0:
                break
            found = self._connect(origin, address, left / (len(addresses) - index))
            if isinstance(found, Connection):
                return found
            told.append(f"{address}: {found.detail}")
            failure = Failure(found.kind, "; ".join(told), requests=0)
            if found.kind is FailureKind.TLS:
                break  # a wrong certificate is an answer; other addresses would only repeat it
        return failure

    def drop_idle(self, address: str) -> bool:
        """Close the longest idle connection to the machine of ``address``.

        Returns False if there is none.
        """
        machine = address_name(address)
        for connection in self._by_age:
            if address_name(connection.address) == machine:
                self._drop(connection)
                return True
        return False

    def close(self) -> None:
        """Close idle connections, and from now on all that are given back."""
        self._closed = True
        self._drop_all()
        if self._sweeper is not None:
            self._sweeper.kill()

    def _connect(self, origin: Origin, address: str, timeout: float) -> Connection | Failure:
        """Try one address: TCP, then TLS if the scheme asks for it."""
        until = self._clock() + timeout
        sock: socket.socket | None = None
        connection: Connection | None = None
        try:
            sock = self._socket(address)
            sock.settimeout(timeout)
            sock.connect((address, origin.port))
            if origin.scheme == "https":
                sock = wrapped(self._tls, sock, origin.host)
            connection, sock = Connection(origin, address, sock, self._clock), None
            began = self._clock()
            connection.shake_hands(until)
            self._opened(origin.scheme, self._clock() - began)
            ready, connection = connection, None
            return ready
        except TimeoutError:
            return Failure(FailureKind.CONNECT_TIMEOUT, f"no connection within {timeout:.1f} s")
        except OSError as error:
            return connect_failure(error)
        finally:
            if sock is not None:
                sock.close()
            if connection is not None:
                connection.close()

    def _socket(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            if error.errno not in _LOCAL_SHORTAGE or not self._by_age:
                raise
            self._drop_all()  # idle connections are closed first when descriptors run out
            return socket.socket(family, socket.SOCK_STREAM)

    def _drop(self, connection: Connection) -> None:
        waiting = self._by_place[connection.place]
        waiting.remove(connection)
        if not waiting:
            del self._by_place[connection.place]
        del self._by_age[connection]
        connection.close()

    def _drop_all(self) -> None:
        while self._by_age:
            self._drop(next(iter(self._by_age)))

    def _sweep(self) -> None:
        """Close connections that are idle for too long; end when nothing is left to watch."""
        while self._by_age:
            oldest = next(iter(self._by_age))
            left = oldest.idle_since + self._idle_seconds - self._clock()
            if left > 0:
                gevent.sleep(left)
            else:
                self._drop(oldest)
        self._sweeper = None
