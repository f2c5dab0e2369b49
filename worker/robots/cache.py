"""The robots.txt of each origin: known, fetched, or unreachable (RFC 9309).

It is looked up in this process, then in Redis. Otherwise the present session fetches it by an
ordinary paced and counted request.

The answers count as follows (section 2.3.1): 2xx is parsed, up to 500 KiB; up to five redirects are
followed; 4xx except 429 means that there are no rules; 429, 5xx and network errors mean complete
disallow, for now. A redirect to another *host* needs that host's own session. So the question goes
through the queue, as a task that is no page (``TaskKind.ROBOTS``), and the worker with that host's
session puts the answer into the shared cache. Meanwhile our session waits, sending nothing; without
an answer in time the file counts as unreachable for now.

Only a redirect to what looks like a robots.txt is followed (:func:`_wanted`), over two other hosts
at most. Otherwise a host could make us send any request to another host, whose own rules may forbid
it. A file that is not fetched and may have rules (:func:`_may_rule`) counts as unreachable. A
redirect to a home page, an error or a login means, as a 404 or 401 does, that there are no rules.

Long files are compiled one at a time, in slices, with turns for other greenlets in between. The
host then rests for many times as long as its file took.

The shared cache may refuse a file, for example near Redis' memory limit. Then each process fetches
the file once, and uses the rules that it keeps itself.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

from gevent.lock import BoundedSemaphore

from greencrawl.broker.frontier import Frontier, Mode
from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import InvalidUrl, Unavailable
from greencrawl.schema.net.urls import canonicalise, host_of, origin_of
from greencrawl.schema.records import (
    Admission,
    Failure,
    FailureKind,
    Fetched,
    PutOff,
    Task,
    TaskKind,
)
from greencrawl.worker import retry
from greencrawl.worker.process.turns import in_turns
from greencrawl.worker.robots import matching, parser
from greencrawl.worker.session.fetcher import Visit

MAX_REDIRECTS = 5
_LAST_HOST = MAX_REDIRECTS - 1
"""The second other host begins with this redirect count: no redirect to a third host is
followed."""
SHARED_SECONDS = 23 * 3600
LOCAL_SECONDS = 3600
"""With the time in the shared cache this makes 24 hours: RFC 9309 (2.4) allows no older copy."""
ASK_SECONDS = 10.0
"""A session waits this long for an answer from another host's session."""
ASK_AGAIN_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_MOST_FETCHES = 16
"""At most this many sessions ask the shared cache at the same time.

Each of them needs a connection to Redis. A thousand sessions that began together opened some 300
connections, each of 20 KB and for one query.
"""
_ORIGINS = 2000
_RULES_BYTES = 64 * 1024 * 1024
"""About the most memory of the rules that a process keeps."""
_LONG_BYTES = 32 * 1024
"""Longer files are compiled one at a time."""
_DEAR_SECONDS, _SHARE = 0.02, 0.05
"""A file that takes more CPU seconds than the first number may take the second number, a share, of
its host's time."""
_KIND = FailureKind.ROBOTS_UNREACHABLE


class _Kept(NamedTuple):
    """Rules in use until a monotonic time; ``size`` is about their memory in bytes."""

    until: float
    rules: parser.Rules
    size: int


class RobotsRules:
    """Rules by origin, for one process."""

    def __init__(self, shared: Frontier, clock: Clock = monotonic) -> None:
        self._shared = shared
        self._clock = clock
        self._turns = BoundedSemaphore(_MOST_FETCHES)
        self._compiling = BoundedSemaphore(1)
        self._local: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._owed: dict[str, float] = {}
        """Seconds that a file took, until a session of its host rests for them."""

    def rules(self, visit: Visit, url: str) -> parser.Rules | Failure:
        """Return the rules that hold for ``url``, or why they cannot be known now.

        Raises VisitOver and LeaseExpired like :meth:`Visit.get`.
        """
        origin = origin_of(url)
        known = self._known(origin)
        if known is not None:
            return known
        found = self._fetch(visit, f"{origin}/robots.txt", 0)
        if isinstance(found, Failure):
            return found
        record, seconds = found
        with suppress(Unavailable):  # it is a cache: this process knows the rules anyway
            self._put(origin, record, seconds)
        return self._keep(origin, record) or parser.ALLOW_ALL

    def group(self, visit: Visit, url: str) -> matching.Group | Failure:
        """Return what the rules for ``url`` say to the visit's crawl; see :meth:`rules`."""
        rules = self.rules(visit, url)
        if isinstance(rules, Failure):
            return rules
        agent = visit.context.agent
        seconds = self._owed.pop(origin_of(url), 0.0) if self._owed else 0.0
        known = rules.known(agent)
        if known is not None:
            group = known
        else:
            with self._turn(rules.bytes):
                group, took = in_turns(rules.of_steps(agent))
            seconds += took
        if seconds > _DEAR_SECONDS:
            visit.rest(seconds / _SHARE)
        return group

    def sitemaps(self, url: str) -> tuple[str, ...] | None:
        """Return the sitemaps that the rules for ``url`` name; None if the rules were forgotten."""
        kept = self._local.get(origin_of(url))
        return None if kept is None else kept.rules.sitemaps

    def answer(self, visit: Visit, task: Task) -> Failure | None:
        """Read the rules at the task's URL for the session of another host.

        Rules that only this process knows are read again: the other session looks into the shared
        cache. Raises VisitOver and LeaseExpired like :meth:`Visit.get`.
        """
        key = _key(task.url)
        if visit.until_available(lambda: self._get(key)) is not None:
            return None
        found = self._fetch(visit, task.url, task.redirects)
        if isinstance(found, Failure):
            return found
        record, seconds = found
        visit.until_available(lambda: self._put(key, record, seconds, needed=True))
        return None

    def _known(self, origin: str) -> parser.Rules | None:
        kept = self._fresh(origin)
        if kept is not None:
            self._local.move_to_end(origin)
            return kept.rules
        try:
            record = self._get(origin)
        except Unavailable:  # it is a cache: what cannot be looked up is fetched
            return None
        return None if record is None else self._keep(origin, record)

    def _get(self, origin: str) -> bytes | None:
        with self._turns:
            return self._shared.robots_get(origin)

    def _put(self, key: str, record: bytes, seconds: int, *, needed: bool = False) -> None:
        with self._turns:
            self._shared.robots_put(key, record, seconds, needed=needed)

    def _keep(self, origin: str, record: bytes) -> parser.Rules | None:
        cached = parser.unpack(record)
        if cached is None:
            return None
        with self._turn(len(cached.body)):
            kept = self._fresh(origin)  # another session may have had the turn before
            if kept is not None:
                return kept.rules
            rules, seconds = in_turns(cached.rules_steps())
            self._forget(origin)
            kept = self._local[origin] = _Kept(self._clock() + LOCAL_SECONDS, rules, rules.bytes)
            self._bytes += kept.size
        if seconds > _DEAR_SECONDS:
            self._owed[origin] = seconds
        while len(self._local) > _ORIGINS or self._bytes > _RULES_BYTES:
            self._forget(next(iter(self._local)))
        return rules

    def _fresh(self, origin: str) -> _Kept | None:
        kept = self._local.get(origin)
        return kept if kept is not None and kept.until > self._clock() else None

    def _turn(self, size: int) -> AbstractContextManager[object]:
        """Return a turn: one long file is compiled at a time, which saves memory; a short one at
        once."""
        return self._compiling if size > _LONG_BYTES else nullcontext()

    def _forget(self, origin: str) -> None:
        kept = self._local.pop(origin, None)
        if kept is not None:
            self._bytes -= kept.size

    def _fetch(self, visit: Visit, url: str, hops: int) -> tuple[bytes, int] | Failure:
        """Return (record for the cache, seconds it may be kept), or why nothing may be fetched now.

        ``hops`` are the redirects before ``url``.
        """
        for hop in range(hops, MAX_REDIRECTS + 1):
            answer = visit.get(url, visit.context.headers, parser.MAX_BODY_BYTES + 1)
            if isinstance(answer, Failure):
                return _unreachable(answer)
            verdict = parser.verdict_for(answer.status)
            if verdict == "parse":
                return parser.pack("rules", answer.body, answer.fetched_ms), SHARED_SECONDS
            if verdict == "disallow_all_for_now":
                return _unreachable(retry.classify(answer) or Failure(_KIND, code=answer.status))
            target = _target(url, answer)
            if target is None or hop == MAX_REDIRECTS:
                break
            here = host_of(target) == visit.host
            if not _wanted(target, here) or (not here and hops >= _LAST_HOST):
                if not _may_rule(target):
                    break
                detail = f"robots.txt is redirected to {target}, which is not followed"
                return Failure(_KIND, detail, code=answer.status)
            if not here:
                return self._elsewhere(visit, target, max(hop + 1, _LAST_HOST if hops else 0))
            url = target
        return parser.pack("allow", b"", epoch_ms()), SHARED_SECONDS

    def _elsewhere(self, visit: Visit, target: str, hops: int) -> tuple[bytes, int] | Failure:
        """Ask the session of another host for its robots.txt; see the module's docstring."""
        key, asked = _key(target), False
        away: Unavailable | None = None
        limit = self._clock() + ASK_SECONDS
        while True:
            try:
                found = self._cached(key)
                if found is not None:
                    return found
                if not asked:
                    question = Admission(target, 0, 0, hops, TaskKind.ROBOTS)
                    self._shared.admit(visit.context.crawl.id, [question], mode=Mode.FORCE)
                away, asked = None, True
            except Unavailable as error:  # its node is away, or full
                away = error
            if self._clock() >= limit:
                detail = f"robots.txt is redirected to {target}, which"
                if away is not None:  # that is not the hosts' fault
                    why = f"{detail} cannot be asked: {away}"
                    visit.put_off(PutOff.ROBOTS, ASK_AGAIN_SECONDS, why)
                detail = f"{detail} did not answer yet"
                return Failure(_KIND, detail, retry_after=ASK_AGAIN_SECONDS)
            visit.rest(_LOOK_SECONDS)

    def _cached(self, key: str) -> tuple[bytes, int] | None:
        """Return (record, seconds it may be kept) of the shared cache, by the age of the record.

        Raises Unavailable.
        """
        record = self._get(key)
        cached = None if record is None else parser.unpack(record)
        if record is None or cached is None:
            return None
        age_seconds = (epoch_ms() - cached.fetched_ms) // 1000
        return record, max(SHARED_SECONDS - age_seconds, 1)


def _key(url: str) -> str:
    """Return the shared cache's key of the rules at ``url``: their origin, if that implies the
    URL."""
    origin = origin_of(url)
    return origin if url == f"{origin}/robots.txt" else url


def _target(url: str, answer: Fetched) -> str | None:
    """Return where an answer to ``url`` redirects to, None if nowhere."""
    if answer.status not in retry.REDIRECTS or not answer.location:
        return None
    try:
        return canonicalise(answer.location, url)
    except InvalidUrl:
        return None


def _wanted(target: str, same_host: bool) -> bool:
    """Return whether the target of a robots.txt's redirect looks like one.

    On its own host the last part of the path names robots or ends in ``.txt``; on another host it
    is ``robots.txt``, without a query.
    """
    path, query = _path_and_query(target)
    name = path.rstrip("/").rpartition("/")[2]
    if same_host:
        return "robots" in name or name.endswith(".txt")
    return name == "robots.txt" and not query


def _may_rule(target: str) -> bool:
    """Return whether ``target`` may have rules: its path, or a parameter's name, mentions robots or
    text."""
    path, query = _path_and_query(target)
    return "robots" in path or ".txt" in path or query.startswith("robots") or "&robots" in query


def _path_and_query(url: str) -> tuple[str, str]:
    """Return path and query in lower case."""
    path, _, query = url.lower().partition("://")[2].partition("?")
    return path.partition("/")[2], query


def _unreachable(cause: Failure) -> Failure:
    """Return the failure of every page of the origin, with what is known of the cause.

    If the cause stops pages, too (the address is forbidden, the name does not exist, nothing
    listens), the cause is the failure, and the table decides what follows.
    """
    if not cause.requests:
        return cause
    detail = f"robots.txt: {cause.kind} {cause.detail}".rstrip()
    return Failure(_KIND, detail, cause.code, cause.retry_after, cause.requests)
