"""The requests that ``fetch`` of a user's own kernel may send; each is judged like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from gevent.lock import BoundedSemaphore
from msgspec.structs import replace

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.request import header_lines
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import Failure, FailureKind, Fetched, Task, TaskKind
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.own import OwnKernel
from greencrawl.worker.kernels.visit import TaskVisit

if TYPE_CHECKING:
    from greencrawl.worker.auth import Authenticated
    from greencrawl.worker.process.guarded import Guarded
    from greencrawl.worker.robots.cache import RobotsRules
    from greencrawl.worker.session.fetcher import Visit

MOST_REQUESTS = 20
"""A kernel sends at most this many requests for one task."""
MOST_SENT_BYTES = 2 * 1024 * 1024
"""The body of one request has at most this many bytes."""
METHODS = frozenset({"GET", "HEAD", "POST"})


class Mark(Protocol):
    """The name of a task in the crash record, while its user's code runs."""

    def enter(self) -> None:
        """Put the name there."""

    def leave(self) -> None:
        """Remove the name, if it is there."""


class Unmarked:
    """A mark that records nothing, for code that runs in a separate process."""

    def enter(self) -> None:
        """Do nothing: nothing is recorded."""

    def leave(self) -> None:
        """Do nothing: nothing was recorded."""


class JudgedVisit(TaskVisit):
    """See :class:`TaskVisit`. A request that is not allowed returns a failure, and is not sent.

    A request may go only to the session's host, and not to what robots.txt or the crawl's
    ``exclude`` forbids. The number of answers of a task is bounded. The size of all answers except
    the last is bounded by the crawl's ``max_body_bytes``. All answers count as in hand.
    """

    __slots__ = ("_ended", "_kept", "_sent", "_turn", "mark")

    def __init__(
        self, visit: Visit, task: Task, auth: Authenticated, guarded: Guarded, robots: RobotsRules
    ) -> None:
        super().__init__(visit, task, auth, guarded, robots)
        self.mark: Mark = Unmarked()
        self._sent = 0
        self._kept = 0
        self._turn = BoundedSemaphore(1)
        self._ended = False

    def end(self) -> None:
        """End the visit after the kernel has returned: nothing more is sent, and code that it left
        running gets failures."""
        self._ended = True
        self._turn.acquire()

    def get(self, url: str, headers: Mapping[str, str]) -> Fetched | Failure:
        """See :meth:`TaskVisit.get`."""
        return self.send("GET", url, headers)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Fetched | Failure:
        """See :meth:`TaskVisit.send`."""
        if self._ended or not self._turn.acquire(blocking=False):
            return _refused("one request at a time, and none after `fetch` has returned")
        self.mark.leave()  # others may be read while this waits
        try:
            return self._send(method, url, headers, body)
        except BaseException as error:  # a kernel that catches it must not continue
            self.over = error
            raise
        finally:
            self._turn.release()
            if not self._ended:
                self.mark.enter()

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched | Failure:
        if self.over is not None:
            raise self.over
        try:
            target, sent = canonicalise(url, self.task.url), dict(headers)
            header_lines(sent)
            problem = self._problem(method, target, body)
        except (InvalidUrl, TypeError, ValueError, AttributeError) as error:
            problem = _refused(f"{type(error).__name__}: {error}")
        if problem is not None:
            return problem
        self._sent += 1
        if method == "GET":
            answer = super().get(target, sent)
        else:
            answer = super().send(method, target, sent, body)
        if isinstance(answer, Fetched):
            self._kept += len(answer.body)
            self._visit.keep()
        return answer

    def _problem(self, method: str, url: str, body: bytes) -> Failure | None:
        """Say why a request may not be sent."""
        if method not in METHODS:
            return _refused(f"{method!r} is none of {', '.join(sorted(METHODS))}")
        if len(body) > MOST_SENT_BYTES or not isinstance(body, bytes):
            return _refused(f"a request may have at most {MOST_SENT_BYTES:,} bytes")
        if host_of(url) != self.host:
            return _refused(f"{url} is at another host than {self.host}: let it be a link")
        if self._sent >= MOST_REQUESTS:
            return _refused(f"{MOST_REQUESTS} requests were made for one page: no more are allowed")
        if self._kept >= self.max_body_bytes:
            return _refused(
                f"answers of {self._kept:,} bytes are in hand: no more requests are made"
            )
        if url == self.task.url:  # this URL was judged before
            return None
        needed = replace(self.task, kind=TaskKind.REQUISITE)
        why = self._guarded.excluded_by(self._visit, needed, url)
        if why is not None:
            return _refused(f"{url} is not asked for: {why}")
        asked = self._robots.group(self._visit, url)
        if isinstance(asked, Failure):
            return asked
        self._visit.learn_robots(asked.delay)
        line = asked.forbids(url)
        return _refused(f"{url} is not asked for: robots.txt: {line}") if line else None


def _refused(why: str) -> Failure:
    return Failure(FailureKind.KERNEL, why, requests=0)


def visit_for(kernel: Kernel) -> type[TaskVisit]:
    """Return the visit for the ``fetch`` of a kernel: our own kernels need no judge."""
    return JudgedVisit if isinstance(kernel, OwnKernel) else TaskVisit
