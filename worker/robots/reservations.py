"""The tdmrep.json of each origin: known, fetched once, or not available for now.

Before the first page of an origin, the present session asks for the file with an ordinary paced and
counted request, if robots.txt allows it. The file is kept like robots.txt: in this process for an
hour, in Redis for a day. At most :data:`MAX_REDIRECTS` redirects are followed, on the same host, to
a file of the same name, and only if the robots.txt of its origin allows it. A 4xx, or another kind
of file, means that the site reserves nothing, by the report of TDMRep.

A 429, a 5xx, a network error or a redirect that robots.txt forbids decides nothing yet. An answer
that blocks the host for a page, such as a 429, blocks it here, too: the session ends, and its tasks
go back without a failure. So that this does not go on for ever, the file is asked for again only
:data:`AGAIN_SECONDS` after the host's wait. Meanwhile only the pages' own directives count, in all
processes. If the shared cache does not take the file, each process uses what it got itself.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

import msgspec
import zstandard

from greencrawl.broker.frontier import Frontier
from greencrawl.schema import wire
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import InvalidUrl, Unavailable
from greencrawl.schema.net.urls import canonicalise, host_of, origin_of
from greencrawl.schema.records import Directives, Failure, FailureKind, Fetched
from greencrawl.worker import retry
from greencrawl.worker.robots import tdmrep
from greencrawl.worker.robots.cache import SHARED_SECONDS, RobotsRules
from greencrawl.worker.robots.tdmrep import Reservations
from greencrawl.worker.session.fetcher import Visit, VisitOver

AGAIN_SECONDS = 600.0
"""How long an unavailable file is not asked for again, beyond the wait of its host."""
LOCAL_SECONDS = 3600.0
MAX_REDIRECTS = 2
"""Redirects that are followed: from http to https, and to where the site keeps its files."""
_NOT_NOW = b"not now"
"""The record of a file that is not available."""
_LOOK_SECONDS = 60.0
"""How long this process believes that record without checking again."""
_ORIGINS = 2000
_BYTES = 16 * 1024 * 1024
"""About the most memory of the files that a process keeps."""


class _Kept(NamedTuple):
    """A file in use until a monotonic time."""

    until: float
    file: Reservations


class SiteReservations:
    """The files of origins, for one process."""

    def __init__(self, shared: Frontier, robots: RobotsRules, clock: Clock = monotonic) -> None:
        self._shared = shared
        self._robots = robots
        self._clock = clock
        self._local: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def of(self, visit: Visit, url: str) -> Directives | None:
        """Return what the file of a URL's origin says of it.

        Raises LeaseExpired like :meth:`Visit.get`; VisitOver also if asking for the file made the
        host fail.
        """
        where = origin_of(url) + tdmrep.PATH
        kept = self._local.get(where)
        if kept is None or kept.until <= self._clock():
            if self._barred(visit, where) is not None:
                return None
            kept = self._known(where) or self._fetched(visit, where)
        self._local.move_to_end(where)
        return kept.file.of(url)

    def _known(self, where: str) -> _Kept | None:
        try:
            record = self._shared.robots_get(where)
        except Unavailable:  # it is a cache: what cannot be looked up is fetched
            return None
        if record == _NOT_NOW:
            return self._keep(where, tdmrep.NOTHING, _LOOK_SECONDS)
        body = None if record is None else _unpacked(record)
        return None if body is None else self._keep(where, tdmrep.parse(body), LOCAL_SECONDS)

    def _fetched(self, visit: Visit, where: str) -> _Kept:
        body = self._fetch(visit, where)
        if isinstance(body, Failure):
            return self._not_now(visit, where, body)
        self._share(where, wire.pack(wire.to_msgpack(body)), SHARED_SECONDS)
        return self._keep(where, tdmrep.parse(body), LOCAL_SECONDS)

    def _fetch(self, visit: Visit, url: str) -> bytes | Failure:
        """Return the file at ``url``, b"" if there is none, or why that is not known now."""
        for hop in range(MAX_REDIRECTS + 1):
            answer = visit.get(url, visit.context.headers, tdmrep.MAX_BODY_BYTES + 1)
            if isinstance(answer, Failure):
                return answer
            failure = retry.classify(answer)
            if failure is not None:
                unknown = answer.status == 429 or answer.status >= 500
                return failure if unknown else b""
            if answer.status < 300:
                return answer.body
            target = _target(visit, url, answer)
            if target is None or hop == MAX_REDIRECTS:
                break
            barred = self._barred(visit, target)
            if barred is not None:
                return barred
            url = target
        return b""

    def _barred(self, visit: Visit, url: str) -> Failure | None:
        """Say why the robots.txt of the URL's origin does not let us ask for it."""
        rules = self._robots.group(visit, url)
        if isinstance(rules, Failure):
            return rules
        line = rules.forbids(url)
        return None if line is None else Failure(FailureKind.ROBOTS, f"robots.txt: {line}")

    def _not_now(self, visit: Visit, where: str, failure: Failure) -> _Kept:
        """Note that the file is not available. Raises VisitOver if the host is to rest."""
        block = retry.decide(failure, 0, visit.context.options.tries).block
        seconds = AGAIN_SECONDS + (failure.retry_after or 0.0)
        if block == 0:  # a host's own back-off is no longer than this
            failures = visit.held.session.failures
            seconds += retry.TABLE[failure.kind].wait(failures + 1)
        kept = self._keep(where, tdmrep.NOTHING, seconds)
        if failure.kind is not FailureKind.ROBOTS:  # another crawl's name may be allowed
            self._share(where, _NOT_NOW, int(seconds))
        if block is not None:
            why = f"tdmrep.json: {failure.detail}"
            told = retry.told_to_wait(failure)
            visit.fail(str(failure.kind), block, why, told_to_wait=told)
            raise VisitOver(why)
        return kept

    def _share(self, where: str, record: bytes, seconds: int) -> None:
        with suppress(Unavailable):  # it is a cache: this process knows the file anyway
            self._shared.robots_put(where, record, seconds)

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


def _target(visit: Visit, url: str, answer: Fetched) -> str | None:
    """Return the target of a redirect that may be followed; None for any other."""
    try:
        target = canonicalise(answer.location, url)
    except InvalidUrl:
        return None
    name = target.partition("?")[0].rpartition("/")[2]
    wanted = host_of(target) == visit.host and name == tdmrep.PATH.rpartition("/")[2]
    return target if wanted else None


def _unpacked(record: bytes) -> bytes | None:
    """Return a file as the cache has it; None if the record is damaged."""
    try:
        return wire.from_msgpack(wire.unpack(record, 2 * tdmrep.MAX_BODY_BYTES), bytes)
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None
