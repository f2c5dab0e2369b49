"""A visit: the use of one host session, and what it learns of the host.

Every request of a session – robots.txt, pages, logins – goes through :meth:`Visit.send`. It waits
for the host's pace, checks that the session is still ours, and counts the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn, TypeVar

from gevent.event import Event
from msgspec.structs import replace

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.records import Failure, Fetched, HostReport, PutOff
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.orders.rate import Rate
from greencrawl.worker.session.backoff import AWAY_PATIENCE_SECONDS, delays
from greencrawl.worker.session.caps import NoShare
from greencrawl.worker.session.held import HeldSession
from greencrawl.worker.session.memory_budget import MemoryBudget, MemoryTimeout
from greencrawl.worker.session.pace import Pace
from greencrawl.worker.traps.traps import NO_JUDGE

if TYPE_CHECKING:
    from greencrawl.worker.http.client import Downloader

TURN_SECONDS = 1.0
"""While a request waits for its turn: seconds between two checks whether its session must end."""
CROWDED_SECONDS = 20.0
"""How long a host rests if there was no memory for its answer."""

T = TypeVar("T")


class VisitOver(GreencrawlError):
    """Raised instead of sending a request when the session must end, or the worker stops."""


class Visit:
    """One running session. ``stopping`` is set when the worker is to end."""

    def __init__(
        self,
        held: HeldSession,
        context: CrawlContext,
        fetcher: Downloader,
        stopping: Event,
        memory_budget: MemoryBudget | None = None,
        rate: Rate | None = None,
    ) -> None:
        self._memory_budget = memory_budget or MemoryBudget()
        self._rate = rate or Rate()
        self._holds = 0
        self._kept = 0
        self.held = held
        self.context = context
        self._fetcher = fetcher
        self._stopping = stopping
        self._pace = Pace(held.session.delay, held.session.floor)
        self._requests = 0
        self._failed = ""
        self._why = ""
        self._block = 0.0
        self._put_off = ""
        self._robots_read = False
        self.told_to_wait = False
        """True if the host failed by an answer that says when to come back."""
        self.least_cap = 0
        """The present page may have this many bytes, even if the crawl's pages may not."""
        self.conditions: Mapping[int, dict[str, str]] = {}
        """Number of a task → header fields that ask only for a changed page."""
        self.stored: frozenset[int] | None = None
        """Numbers of tasks whose URLs have a page; None until they are looked up."""
        self.judge = NO_JUDGE
        """Decides which URLs are parked, and learns from pages."""

    @property
    def host(self) -> str:
        """Return the session's host: its name, with its port unless that is 80 or 443."""
        return self.held.session.host

    @property
    def max_body_bytes(self) -> int:
        """Return the size at which the present page's body is cut."""
        return max(self.context.options.max_body_bytes, self.least_cap)

    @property
    def failed(self) -> bool:
        """Return whether the host as a whole failed: then this session sends it no more
        requests."""
        return bool(self._failed)

    @property
    def failure(self) -> str:
        """Return the kind of the host's failure, or "" if it did not fail."""
        return self._failed

    @property
    def why(self) -> str:
        """Return more of the host's failure than its kind, "" if there is no more."""
        return self._why

    def get(
        self, url: str, headers: Mapping[str, str], max_body_bytes: int, *, packs: bool = False
    ) -> Fetched | Failure:
        """Send a GET by :meth:`send`."""
        return self.send("GET", url, headers, b"", max_body_bytes, packs=packs)

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        max_body_bytes: int,
        *,
        packs: bool = False,
    ) -> Fetched | Failure:
        """Send one paced and counted request to the session's host.

        ``packs``: a body larger than pages may be can come packed. The answer counts as in hand
        until :meth:`let_go`, or the next request. Raises VisitOver, and LeaseExpired (of the
        downloader) when the lease ran out meanwhile.
        """
        self._let_go_last()
        self.rest(self._pace.wait_seconds())
        if self._rate.limited:
            self._wait_for_turn()
        try:
            with self.held.waiting(request=True):
                answer = self._fetcher.fetch(
                    url,
                    headers,
                    max_body_bytes=max_body_bytes,
                    deadline=self.held.deadline,
                    method=method,
                    body=body,
                    caps=self.context.caps,
                    watch=self._watched(),
                    pack=packs and self.least_cap > 0,
                )
        except NoShare as error:  # the share is used up: the host comes again later
            self.put_off(error.by, error.seconds, str(error))
        except MemoryTimeout as error:
            self._requests += 1
            self.put_off(PutOff.MEMORY, CROWDED_SECONDS, str(error))
        self._rate.requests += 1 if isinstance(answer, Fetched) else answer.requests
        if isinstance(answer, Fetched):
            self._requests += 1
            self._holds = len(answer.body)
            self._memory_budget.add(self._holds)
        else:
            self._requests += answer.requests
        self._pace.note(answer)
        if self.held.ended == "silent" and isinstance(answer, Failure):
            self.fail(str(answer.kind), 0.0, answer.detail)
            raise VisitOver(answer.detail)
        return answer

    def _watched(self) -> HeldSession | None:
        """Return the session of an unknown host; None for others, which keep their place however
        long they take."""
        known = self._robots_read or self.held.session.robots_known
        return None if known else self.held

    def let_go(self) -> None:
        """Release the last answer, and those kept with it: the writer has them, or they are not
        needed."""
        self._let_go_last()
        if self._kept:
            self._memory_budget.add(-self._kept)
            self._kept = 0

    def _let_go_last(self) -> None:
        if self._holds:
            self._memory_budget.add(-self._holds)
            self._holds = 0

    def keep(self) -> None:
        """Keep the last answer in hand, besides later ones, until :meth:`let_go`."""
        self._kept += self._holds
        self._holds = 0

    def hold(self, size: int) -> None:
        """Count from now on only one answer of this many bytes as in hand."""
        self.let_go()
        self.repacked(size)

    def repacked(self, size: int) -> None:
        """Count this many bytes for the last answer from now on."""
        self._memory_budget.add(size - self._holds)
        self._holds = size

    def rest(self, seconds: float) -> None:
        """Send nothing for this long. Raises VisitOver when the session must end, or has failed."""
        if self._failed:
            raise VisitOver(self._failed)
        if seconds > 0 and not self.held.ended:
            self.held.pause(self._stopping.wait, seconds)
        if self.held.ended or self._stopping.is_set():
            raise VisitOver(self.held.ended or "stopping")

    def _wait_for_turn(self) -> None:
        """Wait until the worker may send one more request. Raises VisitOver like :meth:`rest`."""
        turn = self._rate.turn()
        try:
            while not turn.is_set():
                left = self.held.deadline - monotonic()
                if left <= 0:  # another may have the turn: no request is sent without a lease
                    raise VisitOver("the lease is over")
                self.held.pause(turn.wait, min(TURN_SECONDS, left))
                self.rest(0.0)
        finally:
            turn.left = True

    def until_available(self, action: Callable[[], T]) -> T:
        """Call ``action`` until it does not raise Unavailable, while the lease lasts.

        Raises VisitOver after :data:`AWAY_PATIENCE_SECONDS`: its Redis node may be away for long.
        """
        limit = min(monotonic() + AWAY_PATIENCE_SECONDS, self.held.deadline)
        for delay in delays():
            try:
                return action()
            except Unavailable as error:
                if monotonic() >= limit:
                    raise VisitOver(str(error)) from error
            self.rest(delay)
        raise AssertionError("delays never end")

    def put_off(self, by: PutOff, seconds: float, why: str) -> NoReturn:
        """End the visit through no fault of its host, which rests for this long; raises VisitOver.

        Its tasks go back without a failure, and the host does not count as failing.
        """
        self._put_off = by
        self._block = seconds
        self._why = why[:300]
        raise VisitOver(why)

    def learn_robots(self, crawl_delay: float | None) -> None:
        """Note that robots.txt is known, and keep its crawl-delay from now on."""
        self._robots_read = True
        if crawl_delay is not None:
            self._pace.learn_robots_delay(crawl_delay)

    def rest_for(self, seconds: float) -> None:
        """Add a pause for a host whose answers took about so much work.

        It is added between the end of one request and the start of the next, until the host does
        better.
        """
        self._pace.slow_down(seconds)

    def fail(self, kind: str, block: float, why: str = "", *, told_to_wait: bool = False) -> None:
        """Note that the host failed, and asked for ``block`` seconds (0: its own back-off).

        ``told_to_wait``: it is alive, and said itself when to come back.
        """
        self._failed = kind
        self.told_to_wait = told_to_wait
        self._block = block
        self._why = why[:300]

    def report(self) -> HostReport:
        """Return the report for closing the session; only requests that were sent are counted."""
        report = self._pace.report(
            robots=self._robots_read,
            failed=self._failed,
            block=self._block,
            requests=self._requests,
            why=self._why,
        )
        if self._put_off:
            report = replace(report, put_off=self._put_off)
        record = self.judge.record()
        return replace(report, traps=record) if record else report
