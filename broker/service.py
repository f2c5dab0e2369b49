"""What every handler of the HTTP face works with: the frontier, the store, and what is going on.

The frontier is seen through :class:`Queue`, which names exactly what the face needs of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import gevent
import greenlet
from gevent.event import Event
from gevent.pool import Group

from broker.frontier.frontier import Room
from broker.frontier.partition import Mode
from broker.problems import HttpProblem
from schema.clock import Clock, monotonic
from schema.errors import Unavailable, UnknownCrawl
from schema.log import logger
from schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlStats,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostState,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
    UrlState,
)
from store.base import Store

log = logger("broker")

DELETE_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class Sums(Protocol):
    """Totals of a crawl over all partitions, read in one scan; ``open`` tasks are still to do."""

    @property
    def open(self) -> int: ...
    @property
    def leased(self) -> int: ...
    @property
    def admitted(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class Queue(Protocol):
    """The frontier as the HTTP face and the upkeep use it; every call may raise Unavailable."""

    activity: Event
    """Set whenever something was admitted or finished through this process."""

    overflowing: Event
    """Set when something waits in the overflow, as far as this process knows."""

    def fingerprint(self, url: str) -> int: ...
    def admit(
        self, crawl: int, items: Sequence[Admission], *, mode: Mode = Mode.NEW, batch: int = 0
    ) -> list[bool]: ...
    def room(self, partition: int, most: int = 50) -> Room: ...
    def refill(self, crawl: int, partition: int, host: str) -> int: ...
    def watch_memory(self) -> None: ...
    @property
    def full(self) -> bool: ...
    def put_crawl(self, crawl: Crawl) -> None: ...
    def drop_crawl(self, crawl: int) -> None: ...
    def stop_leasing(self, crawl: Crawl) -> None: ...
    def scan(self, crawl: int) -> Sums | None: ...
    def lease(self, request: LeaseRequest) -> LeaseReply: ...
    def reconcile(self, request: ReconcileRequest) -> ReconcileReply: ...
    def extend(self, items: Sequence[ExtendItem], ttl: float) -> list[ItemStatus]: ...
    def close_sessions(self, items: Sequence[CloseItem]) -> list[ItemStatus]: ...
    def finish(self, items: Sequence[FinishItem]) -> list[ItemStatus]: ...
    def release(self, items: Sequence[ReleaseItem]) -> list[ItemStatus]: ...
    def stats(self, crawl: Crawl) -> CrawlStats: ...
    def host(self, host: str) -> HostState: ...
    def patch_host(self, host: str, patch: HostPatch) -> HostState: ...
    def slowest(self, limit: int = 5) -> list[HostState]: ...
    def where(self, crawl: Crawl, url: str) -> UrlState: ...
    def ready(self) -> str | None: ...
    def metrics(self) -> dict[str, float]: ...


class Service:
    """One broker process: its frontier and store, and the crawls it is deleting."""

    def __init__(self, frontier: Queue, store: Store, clock: Clock = monotonic) -> None:
        self.frontier = frontier
        self.store = store
        self.clock = clock
        self.stopping = Event()
        self.admitting: set[int] = set()
        """Seed batches that a request is admitting right now."""
        self._deleting: set[int] = set()
        self._work = Group()
        self._polls: set[greenlet.greenlet] = set()

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Lease; a call that waits is ended by :meth:`end_polls`."""
        poll = gevent.getcurrent()
        self._polls.add(poll)
        try:
            return self.frontier.lease(request)
        finally:
            self._polls.discard(poll)

    def end_polls(self) -> None:
        """End every waiting lease with Unavailable, so that its worker asks another broker."""
        for poll in list(self._polls):
            gevent.kill(poll, Unavailable("this broker is stopping"))

    def crawl(self, name: str) -> Crawl:
        """A crawl that may be changed. Raises UnknownCrawl; a 409 while it is being deleted."""
        found = self.store.crawl(name)
        if self.deleting(found.id):
            raise HttpProblem(409, f"crawl {name} is being deleted")
        return found

    def deleting(self, crawl: int) -> bool:
        """Whether this process is deleting the crawl right now."""
        return crawl in self._deleting

    def delete(self, crawl: Crawl) -> None:
        """Delete the crawl in the background: first from the frontier, then its rows.

        Repeating it is harmless; after a crash half-way the caller deletes again.
        """
        if crawl.id not in self._deleting:
            self._deleting.add(crawl.id)
            self._work.spawn(self._delete, crawl)

    def _delete(self, crawl: Crawl) -> None:
        waits = list(DELETE_BACKOFF_SECONDS)
        try:
            while not self.stopping.is_set():
                try:
                    self.frontier.drop_crawl(crawl.id)
                    self.store.delete_crawl(crawl.id)
                except Unavailable as error:
                    wait = waits.pop(0) if len(waits) > 1 else waits[0]
                    log.warning("deleting a crawl waits", crawl=crawl.name, error=str(error))
                    self.stopping.wait(wait)
                else:
                    log.info("crawl deleted", crawl=crawl.name)
                    return
        except UnknownCrawl:
            log.info("crawl was deleted already", crawl=crawl.name)
        finally:
            self._deleting.discard(crawl.id)

    def settled(self, seconds: float) -> bool:
        """Wait for deletions in the background; False if some are not through by then."""
        self._work.join(timeout=seconds)
        return not self._deleting

    def stop(self, seconds: float = 10.0) -> None:
        """End background work; a deletion that is not through is for the caller to repeat."""
        self.stopping.set()
        if not self.settled(seconds):
            log.warning("a deletion was cut short; delete again", crawls=len(self._deleting))
            self._work.kill()
