"""Errands: requests of a login to a host other than the one whose session logs in.

A login may involve several hosts, such as a form at ``shop.example`` that redirects to
``id.example`` and back. But only a host's own session sends requests to it. So the request is left
in the frontier, sealed. A task that is no page (``TaskKind.ERRAND``) makes some worker open a
session of that host. This worker sends the request, at that host's pace, and leaves the answer,
sealed. Meanwhile the asking session waits, and does the errands for its *own* host. Otherwise two
hosts whose logins need each other would wait for ever.

If an errand is lost (the worker that took it dies, or Redis comes back empty), the asking session
only loses time. It gives up after :data:`ASK_SECONDS`, and the login is made again. When the asking
session ends, it withdraws an errand that no worker took; if a worker took the errand, the session
waits for the answer. robots.txt is not checked: a person configured the login.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import gevent
import msgspec
from msgspec import Struct

from greencrawl.broker.frontier import Frontier, Mode
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.net.urls import canonicalise, host_of, origin_of
from greencrawl.schema.records import (
    Admission,
    Failure,
    FailureKind,
    Fetched,
    PutOff,
    TaskKind,
)
from greencrawl.schema.wire import from_msgpack, to_msgpack
from greencrawl.worker import retry
from greencrawl.worker.auth.transport import MAX_BODY_BYTES
from greencrawl.worker.session.backoff import AWAY_PATIENCE_SECONDS, delays, until_available

if TYPE_CHECKING:
    from greencrawl.worker.session.fetcher import Visit

T = TypeVar("T")

ASK_SECONDS = 60.0
"""A session waits this long for the answer to a request that another session sends."""
ASK_AGAIN_SECONDS = 30.0
PATH = "/.well-known/greencrawl-errand"
"""The URL of the task that asks for a session. This URL is never fetched."""
_LOOK_SECONDS = 0.1
_MOST = 100
"""After this many errands in a row the session's own tasks have their turn."""

log = logger("worker")


class _Request(Struct, frozen=True):
    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class _Answer(Struct, frozen=True):
    """A page or a failure: one of the two is set."""

    fetched: Fetched | None = None
    failure: Failure | None = None


_UNREADABLE = b""
"""This stands in place of an answer if the request could not be unsealed."""


class Errands:
    """The errands of one process. ``unseal`` raises ValueError for what another key has sealed."""

    def __init__(
        self,
        frontier: Frontier,
        seal: Callable[[bytes], bytes],
        unseal: Callable[[bytes], bytes],
        clock: Clock = monotonic,
    ) -> None:
        self._frontier = frontier
        self._seal = seal
        self._unseal = unseal
        self._clock = clock

    def send(
        self, visit: Visit, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched | Failure:
        """Send one request of a login: by ``visit`` itself, or as an errand for the host of
        ``url``.

        ``url`` is canonical. Raises VisitOver and LeaseExpired like ``Visit.send``; VisitOver also
        if the other host's Redis node is away.
        """
        host = host_of(url)
        if host == visit.host:
            return visit.send(method, url, headers, body, MAX_BODY_BYTES)
        errand_id = secrets.token_hex(8)
        sealed = self._seal(to_msgpack(_Request(method, url, dict(headers), body)))
        question = Admission(origin_of(url) + PATH, kind=TaskKind.ERRAND)
        crawl = visit.context.crawl.id
        limit = self._clock() + AWAY_PATIENCE_SECONDS
        try:
            self._within(visit, limit, lambda: self._put(host, errand_id, sealed))
            ask = partial(self._frontier.admit, crawl, [question], mode=Mode.FORCE)
            self._within(visit, limit, ask)
            return self._await(visit, host, errand_id)
        except Unavailable as error:  # the Redis node of the other host may be away for long
            detail = f"the login leads to {host}, which cannot be asked: {error}"
            visit.put_off(PutOff.LOGIN, ASK_AGAIN_SECONDS, detail)
        finally:
            with suppress(Unavailable):  # then it expires
                self._frontier.errand_drop(host, errand_id)

    def serve(self, visit: Visit) -> int:
        """Send the errands that wait for the host of the visit; return the number of requests.

        Every session that waits for a login calls this, whichever worker makes the login. If the
        host fails, the visit fails. Raises VisitOver and LeaseExpired like ``Visit.send``.
        """
        count = 0
        while count < _MOST and self._serve_one(visit):
            count += 1
        return count

    def _await(self, visit: Visit, host: str, errand_id: str) -> Fetched | Failure:
        limit = self._clock() + ASK_SECONDS
        while True:
            sealed = self._within(
                visit, limit, lambda: self._frontier.errand_answered(host, errand_id)
            )
            if sealed is not None:
                return self._opened(host, sealed)
            if self._clock() >= limit:
                detail = f"the login leads to {host}, which did not answer yet"
                return Failure(FailureKind.LOGIN, detail, retry_after=ASK_AGAIN_SECONDS, requests=0)
            try:
                if not self._serve_one(visit):
                    visit.rest(_LOOK_SECONDS)
            except GreencrawlError:  # VisitOver or LeaseExpired
                last = self._last(host, errand_id, limit)
                if last is None:
                    raise
                return last

    def _last(self, host: str, errand_id: str, limit: float) -> Fetched | Failure | None:
        """Return the answer to an errand that a worker took, although our session ends; None if no
        worker took it.

        The answer may have a refresh token, and only this one is still valid.
        """
        with suppress(Unavailable):
            while self._clock() < limit:
                withdrawn = self._frontier.errand_withdraw(host, errand_id)
                sealed = self._frontier.errand_answered(host, errand_id)
                if sealed is not None:
                    return self._opened(host, sealed)
                if withdrawn:
                    return None
                gevent.sleep(_LOOK_SECONDS)
        return None

    def _opened(self, host: str, sealed: bytes) -> Fetched | Failure:
        try:
            answer = from_msgpack(self._unseal(sealed), _Answer)
        except (ValueError, msgspec.DecodeError):
            answer = _Answer()
        return answer.fetched or answer.failure or Failure(FailureKind.LOGIN, _alike(host))

    def _serve_one(self, visit: Visit) -> bool:
        """Do one errand; return False if none waits for the visit's host, or the host has
        failed."""
        if visit.failed:
            return False
        taken = visit.until_available(lambda: self._frontier.errand_take(visit.host))
        if taken is None:
            return False
        errand_id, sealed = taken
        request = self._request(visit.host, sealed)
        if request is None:
            log.warning("login_errand_not_read", host=visit.host)
            self._answer(visit.host, errand_id, _UNREADABLE)
            return True
        try:
            answer = visit.send(
                request.method, request.url, request.headers, request.body, MAX_BODY_BYTES
            )
        except GreencrawlError:  # VisitOver or LeaseExpired: nothing was sent
            with suppress(Unavailable):
                self._frontier.errand_put(visit.host, errand_id, sealed, ASK_SECONDS)
            raise
        failure: Failure | None
        if isinstance(answer, Failure):
            made, failure = _Answer(failure=answer), answer
        else:
            made, failure = _Answer(fetched=answer), retry.classify(answer)
        self._answer(visit.host, errand_id, self._seal(to_msgpack(made)))
        if failure is not None:
            decision = retry.decide(failure, 0, visit.context.crawl.options.tries)
            if decision.block is not None:
                visit.fail(str(failure.kind), decision.block)
        return True

    def _request(self, host: str, sealed: bytes) -> _Request | None:
        """Decode a request; None if it is not readable, or was not meant for ``host``."""
        try:
            request = from_msgpack(self._unseal(sealed), _Request)
            meant = host_of(canonicalise(request.url))
        except (ValueError, msgspec.DecodeError):
            return None
        return request if meant == host else None

    def _put(self, host: str, errand_id: str, sealed: bytes) -> None:
        self._frontier.errand_put(host, errand_id, sealed, ASK_SECONDS)

    def _within(self, visit: Visit, limit: float, action: Callable[[], T]) -> T:
        """Call ``action`` again while it raises Unavailable; after ``limit`` let Unavailable
        through.

        Raises VisitOver.
        """
        for delay in delays():
            try:
                return action()
            except Unavailable:
                if self._clock() >= limit:
                    raise
            visit.rest(delay)
        raise AssertionError("delays never end")

    def _answer(self, host: str, errand_id: str, sealed: bytes) -> None:
        answer = self._frontier.errand_answer
        call = partial(answer, host, errand_id, sealed, ASK_SECONDS)
        with suppress(Unavailable):  # nobody waits for it any more
            until_available(call, "frontier", most=ASK_SECONDS)


def _alike(host: str) -> str:
    return (
        f"the login leads to {host}, whose worker has another key: "
        "set GREENCRAWL_SESSION_KEY alike on all workers"
    )
