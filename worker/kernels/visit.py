"""The argument of a kernel's ``fetch``: a visit, as one task may use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from greencrawl.schema.net.request import shown
from greencrawl.schema.records import Failure, Fetched, Task

if TYPE_CHECKING:
    from greencrawl.worker.auth import Authenticated
    from greencrawl.worker.auth.base import Grant, Kind, Verdict
    from greencrawl.worker.process.guarded import Guarded
    from greencrawl.worker.robots.cache import RobotsRules
    from greencrawl.worker.session.fetcher import Visit


class TaskVisit:
    """The requests of one task. Raises VisitOver and LeaseExpired like the session's visit."""

    __slots__ = ("_auth", "_guarded", "_robots", "_visit", "over", "task")

    def __init__(
        self, visit: Visit, task: Task, auth: Authenticated, guarded: Guarded, robots: RobotsRules
    ) -> None:
        self.task = task
        self.over: BaseException | None = None
        """Why the session, or the greenlet, has ended: no kernel may continue after that."""
        self._visit = visit
        self._auth = auth
        self._guarded = guarded
        self._robots = robots
        visit.least_cap = 0

    @property
    def host(self) -> str:
        """Return the only host that may be asked: its name, with its port unless that is 80 or
        443."""
        return self._visit.host

    @property
    def max_body_bytes(self) -> int:
        """Return the size at which a body is cut."""
        return self._visit.max_body_bytes

    def allow(self, size: int) -> None:
        """Allow a body of this many bytes, which is more than for a page."""
        self._visit.least_cap = size

    def get(self, url: str, headers: Mapping[str, str]) -> Fetched | Failure:
        """Send a GET of a canonical URL, with the credentials that it needs."""
        visit = self._visit
        answer = self._auth.get(visit, url, headers, self._verdict)
        if isinstance(answer, Fetched):
            context = visit.context
            answer.request = context.shown if headers is context.headers else shown(headers)
        return answer

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Fetched | Failure:
        """Send one request of a canonical URL; other methods than GET carry no credentials."""
        if method == "GET":
            return self.get(url, headers)
        visit = self._visit
        answer = visit.send(method, url, headers, body, visit.max_body_bytes)
        if isinstance(answer, Fetched):
            answer.request = shown(headers)
        return answer

    def _verdict(self, kind: Kind, fetched: Fetched, grant: Grant | None) -> Verdict | Failure:
        return self._guarded.verdict(self._visit, self.task, kind, fetched, grant)
