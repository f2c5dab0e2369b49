"""Hosts of the table of attacks: good ones, which notice delays, and those of the attackers.

Every address of 127.0.0.0/8 is a host of its own, and so is every port. One :class:`Hosts` listens
on ``ports`` ports of all these addresses, and serves every client of this machine. The long form
runs it as a process: ``python -m tests.attacks.servers NAME`` prints its ports as JSON on a line,
answers each line on its standard input with its counts, and ends when its standard input ends.
"""

from __future__ import annotations

import json
import socket as plain_socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import gevent
from gevent import socket
from gevent.fileobject import FileObjectThread
from gevent.server import StreamServer

from tests.support.dns_server import DnsServer, Zone
from tests.support.site_server import SO_TIMESTAMPNS, arrival

MAX_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the address and port at which it arrived, and its target. ``ports`` are all ports
    of the server."""

    address: str
    port: int
    target: str
    ports: list[int]


Answers = Callable[[socket.socket, Request], object]
"""Answers a request; True keeps the connection."""
Takes = Callable[[socket.socket], object]
"""Handles a connection that was just accepted, in any way."""


class Hosts:
    """Serves ``answers`` to each request, or ``takes`` each connection, on any loopback address.

    ``asked`` counts requests by address. If ``log`` is set, ``arrivals`` has the time of each
    request by ``time.monotonic()``. A context manager.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        takes: Takes | None = None,
        *,
        ports: int = 1,
        log: bool = False,
    ) -> None:
        self._answers = answers
        self._takes = takes
        self._log = log
        self.asked: Counter[str] = Counter()
        self.arrivals: list[float] = []
        self.connections = 0
        self._listeners = [_listener(log=log) for _ in range(ports)]
        self._servers = [StreamServer(one, self._serve) for one in self._listeners]
        self.ports = [int(one.getsockname()[1]) for one in self._listeners]

    def __enter__(self) -> Hosts:
        for server in self._servers:
            server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.stop(timeout=0)

    @property
    def port(self) -> int:
        """The first port."""
        return self.ports[0]

    def _serve(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        if not peer[0].startswith("127."):
            sock.close()
            return
        self.connections += 1
        try:
            sock.setsockopt(plain_socket.IPPROTO_TCP, plain_socket.TCP_NODELAY, 1)
            if self._takes is not None:
                self._takes(sock)
            else:
                self._serve_requests(sock)
        except OSError:
            return  # the crawler gave up, as most of these attacks intend
        finally:
            sock.close()

    def _serve_requests(self, sock: socket.socket) -> None:
        assert self._answers is not None
        address, port = sock.getsockname()[:2]
        waiting = b""
        while True:
            arrived = time.monotonic()
            while b"\r\n\r\n" not in waiting:
                data, arrived = arrival(sock) if self._log else (sock.recv(65536), 0.0)
                if not data or len(waiting) > MAX_HEAD:
                    return
                waiting += data
            head, _, waiting = waiting.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("latin-1")
            self.asked[address] += 1
            if self._log:
                self.arrivals.append(arrived)
            if self._answers(sock, Request(address, port, target, self.ports)) is not True:
                return


def _listener(*, log: bool) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if log:
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # connections inherit it
    listener.bind(("0.0.0.0", 0))
    listener.listen(4096)
    return listener


def reply(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    """Return a well-formed answer, HTML unless a field says otherwise."""
    given = list(fields)
    if not any(field.lower().startswith("content-type:") for field in given):
        given.append("Content-Type: text/html; charset=utf-8")
    lines = [f"HTTP/1.1 {status}", *given, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


NO_ROBOTS = reply(b"", status="404 Not Found")
GOOD_ZONE = {
    "good.test": Zone({f"g{n}.good.test": (f"127.1.0.{n + 1}",) for n in range(20)}, ttl=1),
}
"""Names of good hosts, which have to be looked up again each second."""
LINKS = 4
_WORDS = b"<p>" + b"a page as others have them " * 200


def good(pages: int = 0) -> Answers:
    """Return a site that is a tree of pages: of ``pages``, or without end if that is 0."""

    def answer(sock: socket.socket, asked: Request) -> bool:
        number = asked.target.removeprefix("/")
        if asked.target == "/robots.txt" or not number.isdigit():
            sock.sendall(NO_ROBOTS)
            return True
        here = int(number)
        after = range(LINKS * here + 1, LINKS * here + LINKS + 1)
        links = "".join(f'<a href="/{n}">{n}</a>' for n in after if not pages or n < pages)
        sock.sendall(reply(f"<title>{here}</title>{links}".encode() + _WORDS))
        return True

    return answer


def main() -> int:
    """Serve until standard input ends."""
    from tests.attacks.rows import ATTACKS  # imported late: rows imports this module

    name, *zones_of = sys.argv[1:]
    given = FileObjectThread(sys.stdin.buffer, "rb")
    hosts = Hosts(good()) if name == "good" else ATTACKS[name].serve(short=False)
    zones = dict(ATTACKS[zones_of[0]].zones) if zones_of else {}
    with hosts, DnsServer({**GOOD_ZONE, **zones}) as names:
        print(json.dumps({"ports": hosts.ports, "names": names.address}), flush=True)
        while given.readline():
            counted = {"asked": hosts.asked, "connections": hosts.connections}
            if hosts.arrivals:
                counted["arrivals"] = hosts.arrivals
            print(json.dumps(counted), flush=True)
            gevent.sleep(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
