"""This machine's sources of names: its hosts file, its name servers, its own resolver.

The two files are read again when they have changed. The system's resolver (``getaddrinfo``) knows
more than DNS does (mDNS, the names of a local network, search lists), but it blocks a thread until
it answers. So a few threads ask it only for names that DNS cannot have. If
``GREENCRAWL_DNS_SERVERS`` is ``system``, more threads ask it for all names.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from gevent import monkey
from gevent.threadpool import ThreadPool

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.records import Failure, FailureKind

T = TypeVar("T")

Lookup = Callable[[str], Sequence[str]]
"""Host name → addresses as text, best first. Raises ``socket.gaierror``; may block its thread."""

HOSTS = Path("/etc/hosts")
RESOLV_CONF = Path("/etc/resolv.conf")
LOOK_AGAIN_SECONDS = 5.0
"""Seconds between two checks whether a file has changed."""
LOOKUP_THREADS = 8
SYSTEM_THREADS = 32
"""Threads if the system's resolver is asked for all names."""
LOOKUPS_WAITING = 64
"""At most this many look-ups wait for a thread; one more fails at once."""
ANSWER_SECONDS = 300.0
NO_ANSWER_SECONDS = 30.0
"""How long an answer or a failure of the system's resolver is kept: the resolver gives no TTL."""
LOOPBACK = ("127.0.0.1", "::1")

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY)
_NOWHERE = ("invalid", "onion")
"""Endings of names that no name server may be asked for (RFC 6761, RFC 7686)."""


class Found(NamedTuple):
    """The result of a look-up, not judged yet: addresses, best first, or why there are none.

    ``seconds``: how long it may be kept.
    """

    addresses: tuple[str, ...] | Failure
    seconds: float


def missing(name: str, why: str) -> Failure:
    """Return the failure of a name that does not exist, or has no address."""
    return Failure(FailureKind.DNS_MISSING, f"{name}: {why}", requests=0)


def unanswered(name: str, why: str) -> Failure:
    """Return the failure of a name that no server could answer for."""
    return Failure(FailureKind.DNS_FAILED, f"{name}: {why}", requests=0)


class Reread(Generic[T]):
    """The parsed content of a file, read again after it has changed; a missing file counts as
    ""."""

    def __init__(self, path: Path, parse: Callable[[str], T], clock: Clock = monotonic) -> None:
        self._path = path
        self._parse = parse
        self._clock = clock
        self._look_at = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._value = parse("")

    def value(self) -> T:
        """Return the present content, at most some seconds old."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_AGAIN_SECONDS
            try:
                found = self._path.stat()
                seen = (found.st_mtime_ns, found.st_size, found.st_ino)
                if seen != self._seen:
                    self._value = self._parse(self._path.read_text("utf-8", "replace"))
                    self._seen = seen
            except OSError:
                self._value, self._seen = self._parse(""), None
        return self._value


def name_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return the servers that a ``resolv.conf`` names; the local one if it names none."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1 and _is_address(words[1]):
            found.append((words[1], 53))
    return tuple(found) or (("127.0.0.1", 53),)


def hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Return the names of a hosts file, in lower case, and their addresses."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if _is_address(address):
            for name in map(str.lower, names):
                found[name] = (*found.get(name, ()), address)
    return found


def known_here(name: str, listed: Mapping[str, tuple[str, ...]]) -> Found | None:
    """Return the answer for ``name`` without asking anybody; None if it must be asked for."""
    addresses = listed.get(name)
    if addresses is not None:
        return Found(addresses, ANSWER_SECONDS)
    end = name.rpartition(".")[2]
    if end == "localhost":
        return Found(listed.get(end, LOOPBACK), ANSWER_SECONDS)
    if end in _NOWHERE:
        return Found(missing(name, f".{end} has no addresses"), ANSWER_SECONDS)
    return None


def is_local(name: str) -> bool:
    """Return whether only the system's resolver can know ``name``: DNS has no such names for us."""
    return "." not in name or name.endswith(".local")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def system_lookup(name: str) -> list[str]:
    """Return addresses of ``name`` by the system's resolver, in RFC 6724 order. Blocks its
    thread."""
    # The unpatched function: this runs in a thread of its own, where gevent's would start a hub. It
    # takes bytes, because text would go through Python's IDNA 2003 codec first.
    answers = monkey.get_original("socket", "getaddrinfo")(
        name.encode("ascii"), None, type=socket.SOCK_STREAM
    )
    return [sockaddr[0] for *_, sockaddr in answers]


class Threads:
    """Asks a :data:`Lookup` by threads of its own, for a limited number of names at once."""

    def __init__(self, lookup: Lookup = system_lookup, threads: int = LOOKUP_THREADS) -> None:
        self._lookup = lookup
        self._most = threads + LOOKUPS_WAITING
        self._asking = 0
        # These threads are separate: a resolver that hangs must not delay the threads of the store.
        self._threads = ThreadPool(threads)

    def ask(self, name: str) -> Found:
        """Look ``name`` up. The caller may be killed; the thread completes its look-up."""
        if self._asking >= self._most:
            return Found(unanswered(name, "too many names are being looked up"), 1.0)
        self._asking += 1
        try:
            found = self._threads.apply(_look_up, (self._lookup, name))
        finally:
            self._asking -= 1
        if isinstance(found, UnicodeError):
            return Found(missing(name, str(found)), NO_ANSWER_SECONDS)
        if isinstance(found, OSError):
            known = isinstance(found, socket.gaierror) and found.errno in _NO_SUCH_NAME
            why = found.strerror or str(found)
            failure = missing(name, why) if known else unanswered(name, why)
            return Found(failure, NO_ANSWER_SECONDS)
        if not found:
            return Found(missing(name, "no address"), NO_ANSWER_SECONDS)
        return Found(tuple(found), ANSWER_SECONDS)

    def close(self) -> None:
        """Let the threads end, each after its current look-up, which cannot be interrupted."""
        self._threads.kill()


def _look_up(lookup: Lookup, name: str) -> Sequence[str] | OSError | UnicodeError:
    """Call ``lookup`` in a thread. An error is returned, because the pool would print a raised
    one."""
    try:
        return lookup(name)
    except (OSError, UnicodeError) as error:
        return error
