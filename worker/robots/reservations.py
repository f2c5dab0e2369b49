"""tdmrep.json of each origin: known, fetched once, or not to be had for now.

It is asked for before the first page of an origin is, by the session at hand, as an ordinary paced
and counted request, and where robots.txt lets us. It is kept as robots.txt is: in this process for
an hour, in Redis for a day. Redirects are followed on the same host, to a file of the same name. A
4xx, or what is no such file, says that the site reserves nothing, as the report of TDMRep has it.
A 429, a 5xx or a network error says nothing as yet: the file is asked for again after
:data:`AGAIN_SECONDS`, and meanwhile pages speak for themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec
import zstandard

from greencrawl.schema import wire
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import InvalidUrl, Unavailable
from greencrawl.schema.net.urls import canonicalise, host_of, origin_of
from greencrawl.schema.records import Directives, Fetched
from greencrawl.worker import retry
from greencrawl.worker.robots import tdmrep
from greencrawl.worker.robots.cache import MAX_REDIRECTS, SHARED_SECONDS
from greencrawl.worker.robots.matching import Group
from greencrawl.worker.robots.tdmrep import Reservations
from greencrawl.worker.session.fetcher import Visit

AGAIN_SECONDS = 600.0
"""How long a file that could not be had is not asked for again by this process."""
LOCAL_SECONDS = 3600.0
_ORIGINS = 2000
_BYTES = 16 * 1024 * 1024
"""About what the files that are kept in a process may take of its memory."""


class FileCache(Protocol):
    """The part of the frontier that is needed here; see ``greencrawl.broker.frontier.Frontier``."""

    def robots_get(self, origin: str) -> bytes | None:
        """What :meth:`robots_put` kept under a URL, or None. Raises Unavailable."""

    def robots_put(self, origin: str, value: bytes, seconds: int, *, needed: bool = False) -> bool:
        """Keep a site's file for all workers. False where there is no room. Raises Unavailable."""


class _Kept(NamedTuple):
    """A file in use until a monotonic time."""

    until: float
    file: Reservations


class SiteReservations:
    """What the files of origins say, for one process."""

    def __init__(self, shared: FileCache, clock: Clock = monotonic) -> None:
        self._shared = shared
        self._clock = clock
        self._local: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def of(self, visit: Visit, url: str, rules: Group) -> Directives | None:
        """What the file of a URL's origin says of it; ``rules`` are those of its robots.txt.

        Raises VisitOver and LeaseExpired like :meth:`Visit.get`.
        """
        where = origin_of(url) + tdmrep.PATH
        kept = self._local.get(where)
        if kept is None or kept.until <= self._clock():
            if rules.forbids(where) is not None:
                return None
            kept = self._known(where) or self._fetched(visit, where)
        self._local.move_to_end(where)
        return kept.file.of(url)

    def _known(self, where: str) -> _Kept | None:
        try:
            record = self._shared.robots_get(where)
        except Unavailable:  # a cache: what cannot be looked up is fetched
            return None
        body = None if record is None else _unpacked(record)
        return None if body is None else self._keep(where, tdmrep.parse(body), LOCAL_SECONDS)

    def _fetched(self, visit: Visit, where: str) -> _Kept:
        body = _fetch(visit, where)
        if body is None:
            return self._keep(where, tdmrep.NOTHING, AGAIN_SECONDS)
        record = wire.pack(wire.to_msgpack(body))
        with suppress(Unavailable):  # a cache: what it does not take is known here all the same
            self._shared.robots_put(where, record, SHARED_SECONDS)
        return self._keep(where, tdmrep.parse(body), LOCAL_SECONDS)

    def _keep(self, where: str, file: Reservations, seconds: float) -> _Kept:
        self._forget(where)
        kept = self._local[where] = _Kept(self._clock() + seconds, file)
        self._bytes += file.bytes
        while len(self._local) > 1 and (len(self._local) > _ORIGINS or self._bytes > _BYTES):
            self._forget(next(iter(self._local)))
        return kept

    def _forget(self, where: str) -> None:
        kept = self._local.pop(where, None)
        if kept is not None:
            self._bytes -= kept.file.bytes


def _fetch(visit: Visit, url: str) -> bytes | None:
    """The file at ``url``, b"" where there is none; None: that is not known now."""
    for _ in range(MAX_REDIRECTS + 1):
        answer = visit.get(url, visit.context.headers, tdmrep.MAX_BODY_BYTES + 1)
        if not isinstance(answer, Fetched) or answer.status == 429 or answer.status >= 500:
            return None
        if answer.status not in retry.REDIRECTS:
            return answer.body if 200 <= answer.status < 300 else b""
        try:
            url = canonicalise(answer.location, url)
        except InvalidUrl:
            return b""
        name = url.partition("?")[0].rpartition("/")[2]
        if host_of(url) != visit.host or name != tdmrep.PATH.rpartition("/")[2]:
            return b""
    return b""


def _unpacked(record: bytes) -> bytes | None:
    """A file as the cache has it; None if the record is damaged."""
    try:
        return wire.from_msgpack(wire.unpack(record, 2 * tdmrep.MAX_BODY_BYTES), bytes)
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None
