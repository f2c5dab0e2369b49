"""Ports of loopback for the servers of tests, also where several test processes run at once."""

from __future__ import annotations

import random
import socket
from collections import deque
from contextlib import suppress
from itertools import chain

from greencrawl.schema.errors import Unavailable
from greencrawl.worker.http.addresses import BAD_PORTS, SERVICE_PORTS

PORTS = range(10_000, 32_000)
"""Below the ports of outgoing connections: a port that is free now stays free."""
KEPT = 100
_UNUSABLE = BAD_PORTS | SERVICE_PORTS
"""No page is fetched from these ports."""

_tokens: deque[socket.socket] = deque()
"""The last ports given out. Each is held by a UDP socket of the same number, which nothing else
uses. So another test process passes over such a port even while its server does not listen yet, or
is down."""


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens and that no other test process holds, all different."""
    found: list[int] = []
    first = random.randrange(len(PORTS))  # to shuffle them all would take 6 ms of CPU each time
    for port in chain(PORTS[first:], PORTS[:first]):
        if port in _UNUSABLE:
            continue
        if token := _token(port):
            found.append(port)
            _tokens.append(token)
        if len(found) == count:
            break
    else:
        raise Unavailable("no free ports on loopback")
    while len(_tokens) > KEPT:
        _tokens.popleft().close()
    return found


def free_port() -> int:
    return free_ports(1)[0]


def _token(port: int) -> socket.socket | None:
    """Reserve a port; return None if it is in use."""
    token = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with socket.socket() as probe, suppress(OSError):
        token.bind(("127.0.0.1", port))
        probe.bind(("127.0.0.1", port))
        return token
    token.close()
    return None
