"""From finished pages to settled tasks: store the page → admit its links → finish the task.

Pages go in batches, several batches at once, so that one commit does not delay a worker. The order
of the three steps within a batch is the invariant: a crash anywhere costs a refetch and never a
URL. Each step is repeated until it succeeds, however long the store or Redis are away. The results
that wait here are bounded in bytes. Beyond the bound, no page is asked for
(:meth:`Writer.wait_for_room`), and a greenlet that already has an answer waits in
:meth:`Writer.put`.

If one Redis node is away while others answer, the writer does not wait for it. The store notes that
this node is owed links, and a broker offers these links from the replay log once the node is back.

A batch leaves when it is full, or when the most urgent of its results is due. A result's links to
its own host cannot be fetched before the host's delay is over. So a batch may wait a little for
other results: a commit, a call of Redis and a call of a broker cost some 2 ms of CPU, however large
the batch is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from greencrawl.broker.frontier import Admitted, Frontier
from greencrawl.schema import crash_points
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.records import (
    Admission,
    Commit,
    Dead,
    Done,
    FinishItem,
    Retry,
    Stamp,
    StoredPage,
)
from greencrawl.store.base import MARGIN, Store
from greencrawl.store.errors import Unstorable
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.recent import Recents
from greencrawl.worker.delivery.results import Result
from greencrawl.worker.metrics.table import COMMIT_BUCKETS, SLOT, by_label
from greencrawl.worker.metrics.tallies import Tallies
from greencrawl.worker.orders.figures import Figures
from greencrawl.worker.session.backoff import delays, until_available
from greencrawl.worker.session.held import Sessions
from greencrawl.worker.session.memory_budget import MemoryBudget

log = logger("worker")

BATCH_PAGES = 64
BATCH_BYTES = 4 * 1024 * 1024
BATCHES = 4
LINGER_SECONDS = 0.02
"""Least time that a result waits for others."""
PATIENCE = 0.1
"""A result waits for others for this part of its host's delay."""
PATIENCE_SECONDS = 0.2
"""The longest wait: the host's pages may lead to other hosts."""
BACKLOG_BYTES = 16 * 1024 * 1024
OWE_TRIES = 4
"""Tries before a node that answers, but takes nothing, is owed the links."""
_PAGES, _COMMIT_SECONDS = SLOT["pages"], SLOT["commit_seconds"]
_FAILURES = by_label("failures")
_OUTCOMES = {
    kind: by_label("tasks")[name]
    for kind, name in ((Done, "done"), (Retry, "retry"), (Dead, "dead"))
}


class Writer:
    """Brings batches of results to store, frontier and outbox."""

    def __init__(
        self,
        store: Store,
        frontier: Frontier,
        finishing: Outbox[FinishItem],
        sessions: Sessions,
        *,
        spawn: Callable[..., object] = gevent.spawn,
        backlog_bytes: int = BACKLOG_BYTES,
        linger: float = LINGER_SECONDS,
        memory_budget: MemoryBudget | None = None,
        figures: Figures | None = None,
        tallies: Tallies | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """Build the object; ``spawn`` starts the greenlet of a batch, and ends the process if that
        fails.

        Results count in ``memory_budget``, too.
        """
        self._tallies = tallies or Tallies()
        self._memory_budget = memory_budget or MemoryBudget(clock=clock)
        self._figures = figures or Figures()
        self._spawn = spawn
        self._store = store
        self._frontier = frontier
        self._finishing = finishing
        self._sessions = sessions
        self._backlog_bytes = backlog_bytes
        self._linger = linger
        self._clock = clock
        self._waiting: list[Result] = []
        self._bytes = 0
        self._due = math.inf
        """When the next batch leaves."""
        self._some = Event()
        self._sooner = Event()  # set when the next batch leaves sooner than expected
        self._below_limit = Event()
        self._idle = Event()
        self._idle.set()
        self._batches = BoundedSemaphore(BATCHES)
        self._recent = Recents(clock)

    @property
    def backlog_bytes(self) -> int:
        """Return about how many bytes wait to be stored."""
        return self._bytes

    @property
    def queue_results(self) -> int:
        """Return how many results are in no batch yet."""
        return len(self._waiting)

    def wait_for_room(self) -> None:
        """Block while more than the backlog is waiting."""
        while self._bytes >= self._backlog_bytes:
            if self._waiting:
                self._leave_at(0.0)
            self._below_limit.clear()
            self._below_limit.wait()

    def put(self, result: Result) -> None:
        """Hand over a result; blocks like :meth:`wait_for_room`, which should be called first."""
        self._sessions.submitted(result.held)
        self._figures.note(result.outcome)
        self.wait_for_room()
        result.weight = result.bytes
        self._count(result.weight)
        self._waiting.append(result)
        self._idle.clear()
        self._some.set()
        if len(self._waiting) >= BATCH_PAGES:
            self._leave_at(0.0)
        else:
            rest = min(result.held.session.delay * PATIENCE, PATIENCE_SECONDS)
            self._leave_at(self._clock() + max(rest, self._linger))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._memory_budget.add(size)

    def _leave_at(self, due: float) -> None:
        if due < self._due:
            self._due = due
            self._sooner.set()

    def settle_now(self, result: Result) -> None:
        """Take one result through all steps at once, without :meth:`run`."""
        self._batches.acquire()
        result.weight = result.bytes
        self._count(result.weight)
        self._sessions.submitted(result.held)
        self._write([result])

    def recall(self, page: StoredPage) -> None:
        """Admit the links of a page that was stored before, under a present stamp."""
        for delay in delays():
            work = Commit(pages=[page])
            stamp = self._carry_out(work)
            if self._admit([page], stamp, work.owes):
                return
            gevent.sleep(delay)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way; return False when ``timeout`` seconds were not
        enough."""
        return bool(self._idle.wait(timeout))

    def run(self) -> None:
        """Form batches for ever; a greenlet runs this."""
        while True:
            self._some.wait()
            while (left := self._due - self._clock()) > 0:
                self._sooner.clear()
                self._sooner.wait(left)
            self._batches.acquire()
            batch = self._take()
            self._spawn(self._write, batch)

    def _take(self) -> list[Result]:
        count = size = 0
        for result in self._waiting[:BATCH_PAGES]:
            size += result.weight
            if count and size > BATCH_BYTES:
                break
            count += 1
        batch = self._waiting[:count]
        del self._waiting[:count]
        if not self._waiting:
            self._due = math.inf
            self._some.clear()
        else:
            full = len(self._waiting) >= BATCH_PAGES
            self._due = 0.0 if full else self._clock() + self._linger
        return batch

    def _write(self, batch: list[Result]) -> None:
        size = sum([result.weight for result in batch])
        for delay in delays():
            stamp, owed = self._commit(batch)
            crash_points.point("worker.after_store")
            if stamp is not None and (stamp.refused or stamp.retired):
                for result in batch:
                    result.apply(stamp)
            pages = [result.page for result in batch if result.page is not None]
            if stamp is None or self._admit(pages, stamp, owed):
                break
            log.info("commit_repeated", pages=len(pages), stamp=stamp.clock)
            gevent.sleep(delay)
        crash_points.point("worker.after_admit")
        self._tally(batch)
        for result in batch:
            session = result.held.session
            self._finishing.put(
                FinishItem(
                    session=session.session,
                    token=session.token,
                    task=result.task,
                    outcome=result.outcome,
                )
            )
        self._count(-size)
        self._below_limit.set()
        self._batches.release()
        if not self._bytes:
            self._idle.set()

    def _tally(self, batch: Sequence[Result]) -> None:
        add = self._tallies.add
        for result in batch:
            outcome = result.outcome
            add(_OUTCOMES[type(outcome)])
            if isinstance(outcome, Done) and outcome.stored:
                add(_PAGES)
            for attempt in result.attempts:
                if attempt.kind in _FAILURES:  # otherwise it brought a page
                    add(_FAILURES[attempt.kind])

    def _away(self, pages: Iterable[StoredPage]) -> frozenset[str]:
        """Return the nodes that are away and that these pages link to."""
        return self._frontier.away_of(link for page in pages for link in page.links)

    def _late(self, batch: Sequence[Result]) -> frozenset[str]:
        """Return the nodes that results with an expired lease link to.

        Other workers may have done the tasks of these results, and crawls may be over. If this
        process dies before it admits the links, no other process would admit them.
        """
        now = self._clock()
        late = [r for r in batch if r.held.deadline <= now or r.held.lost]
        if not late:
            return frozenset()
        return self._frontier.nodes_of(
            link for result in late if result.page is not None for link in result.page.links
        )

    def _carry_out(self, work: Commit, batch: Sequence[Result] = ()) -> Stamp:
        """Commit ``work`` with the debts of nodes, until that succeeds; ``work.owes`` has the
        debts.

        The debts are decided again for each try: while the store is away, nodes go and come, and
        leases of ``batch`` end.
        """

        def commit() -> Stamp:
            work.owes = self._away(work.pages) | self._late(batch)
            began = self._clock()
            stamp = self._store.commit(work)
            self._tallies.observe(_COMMIT_SECONDS, COMMIT_BUCKETS, self._clock() - began)
            return stamp

        return until_available(commit, "store")

    def _commit(self, batch: Sequence[Result]) -> tuple[Stamp | None, frozenset[str]]:
        """Make the batch durable, and the debts of nodes for its links.

        A page that cannot be stored becomes a dead letter. Returns the stamp of its rows, None if
        it has none, and the nodes that are owed its links.
        """
        while True:
            work = Commit()
            for result in batch:
                if result.page is not None:
                    work.pages.append(result.page)
                work.attempts += result.attempts
                work.finals += result.finals
                if result.check is not None:
                    work.checks.append(result.check)
                if result.hooks is not None:
                    work.hooks.append(result.hooks)
            if not (work.pages or work.attempts or work.finals):
                return None, work.owes
            try:
                stamp = self._carry_out(work, batch)
                crash_points.note("worker.committed", _urls(work))
                return stamp, work.owes
            except Unstorable as error:
                log.warning("page_not_stored", url=error.url, reason=error.reason)
                if not any(result.mark_unstorable(error) for result in batch):
                    raise

    def _admit(self, pages: Sequence[StoredPage], stamp: Stamp, owed: frozenset[str]) -> bool:
        """Admit the links of pages whose rows carry ``stamp``; return False if the stamp is too
        old.

        Nodes in ``owed`` need not take the links. The stamp is too old when a node's tick has
        passed it by more than the margin: a recovery of that node would not read these rows. If a
        node became owed the links just now, the store's clock counts as its tick.
        """
        links: dict[int, list[Admission]] = {}
        for page in pages:
            if page.links:
                links.setdefault(page.crawl, []).extend(page.links)
        for crawl, found in links.items():
            recent = self._recent.of(crawl, stamp.epochs)
            fresh = recent.fresh(found)
            if not fresh:
                continue
            try:
                admitted = self._offer(crawl, fresh, stamp, owed)
            except UnknownCrawl:
                log.info("links_of_deleted_crawl_dropped", crawl=crawl)
                self._recent.forget(crawl)
                continue
            if admitted.tick - stamp.clock > MARGIN:
                return False
            recent.add(fresh)
        return True

    def _offer(
        self, crawl: int, links: Sequence[Admission], stamp: Stamp, owed: frozenset[str]
    ) -> Admitted:
        """Admit links, or record that their nodes are owed them. Raises UnknownCrawl."""
        call = partial(self._frontier.admit, crawl, links, stamp=stamp, partial=True)
        for delay in islice(delays(), OWE_TRIES):
            admitted = until_available(call, "frontier")
            left = admitted.away - owed
            if left <= self._frontier.away_of(links):
                break
            gevent.sleep(delay)
        if left:
            log.info("links_owed", nodes=len(left), stamp=stamp.clock)
            clock = until_available(partial(self._store.owe, left, stamp.clock), "store")
            admitted.tick = max(admitted.tick, clock)  # their ticks may be as high as the clock
        return admitted


def _urls(work: Commit) -> Iterator[str]:
    """Yield the URLs that a commit settles."""
    yield from (page.url for page in work.pages)
    yield from (final.url for final in work.finals)
