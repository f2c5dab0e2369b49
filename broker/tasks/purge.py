"""Deletions in the background: of whole crawls, and of a host's waiting URLs in a crawl.

A request is a row in the store before the caller is answered, and the row is deleted when nothing
is left. If a broker dies in between, the next one continues. A crawl is unknown from the moment its
deletion is asked for; first it is deleted from the frontier, then its rows. For a host, each
waiting URL gets a final state (excluded: purged) before it is dropped. Stored pages stay, and
leased URLs are finished. One broker does it, under a duty.

Deletions on a node that is away wait for the node, and delay no other deletion.
"""

from __future__ import annotations

from collections.abc import Iterable

from gevent.event import Event

from greencrawl.broker.frontier.coordination.duties import PURGE
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import BATCH
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.duty_task import DutyTask
from greencrawl.broker.tasks.throttle import rested
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import DutyLost, Unavailable, UnknownCrawl
from greencrawl.schema.records import Admission, Commit, Final, Purge

PURGED = "purged"
"""The kind of the final state of URLs that waited for a host."""
LOOK_SECONDS = 2.0
"""Seconds between two checks if there was no request here: another broker may have had one."""
AWAY_SECONDS = 1.0
"""Seconds between two checks whether a needed node is back."""
STOP_SECONDS = 5.0


class Purging(DutyTask):
    """It begins with the deletions that others left."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, PURGE, "deletion")

    def stop(self) -> None:
        """End now, or after :data:`STOP_SECONDS`: repeating half a step is harmless."""
        self._service.stop()
        if self._greenlet is not None:
            self._greenlet.join(STOP_SECONDS)
            self._greenlet.kill()

    @property
    def _asked(self) -> Event:
        return self._service.purging

    def _run(self) -> None:
        while not self._service.stopping.is_set():
            if not self._own.duties.wait(PURGE, LOOK_SECONDS, self._own.stopping.is_set):
                continue
            self._asked.clear()
            self._asked.wait(self.step())

    def step(self) -> float:
        """:meth:`work`, and the consequence if not all can be done; return seconds until the next
        step.

        After a while other brokers are to try what fails here: they may reach more nodes.
        """
        return self._tried(self._work, AWAY_SECONDS, LOOK_SECONDS)

    def _work(self) -> float:
        self.work()
        return LOOK_SECONDS

    def work(self) -> None:
        """Do all deletions, or as much as there is time for until the broker stops.

        It does nothing if another broker has the duty. Raises Unavailable after the others if
        something has to wait for a node that is away, and DutyLost if another has taken the duty
        since.
        """
        if not self._held():
            return
        away: Unavailable | None = None
        for purge in self._service.store.purges():
            try:
                through = self._host(purge) if purge.host else self._crawl(purge)
            except UnknownCrawl:  # the whole crawl was deleted meanwhile
                continue
            except DutyLost:
                raise
            except Unavailable as error:
                away = error
                continue
            if through:
                self._log.info("purge_ended", crawl=purge.crawl, host=purge.host)
        if away is not None:
            raise away
        self._done()

    def _crawl(self, purge: Purge) -> bool:
        service = self._service
        if not purge.total:
            service.store.note_purge(purge.id, 0, service.store.purge_size(purge))
        service.frontier.drop_crawl(purge.instance)
        steps = iter(lambda: service.store.purge_step(purge), False)
        return all(not service.stopping.is_set() for _ in rested(steps, service.clock))

    # -- a host

    def _host(self, purge: Purge) -> bool:
        """Settle and drop what waits, until a whole pass finds nothing."""
        service, crawl, host = self._service, purge.instance, purge.host
        partition = service.frontier.partition_of(host)
        if away := service.away_of(purge):  # so that nothing is settled again and again meanwhile
            raise Unavailable(away[0].why)
        gone, at, found = part.Drain(), 0, False
        while not service.stopping.is_set():
            under = service.frontier.under(partition)
            spilled = service.store.overflow(crawl, partition, host, BATCH)
            self._settle(crawl, [row.item for row in spilled])
            gone = gone._replace(overflow=[row.fingerprint for row in spilled])
            reply = service.frontier.drain(crawl, host, gone, at)
            size = 0
            if not purge.total:
                size = reply.removed + reply.left + service.store.purge_size(purge)
            service.store.note_purge(purge.id, reply.removed, size)
            gone, at = reply.next, reply.at
            names = (*gone.waiting, *gone.later)
            waiting = [part.task_of(0, host, value) for value in names]
            items = [Admission(t.url, t.depth, t.level, t.redirects, t.kind) for t in waiting]
            self._settle(crawl, items)
            # the node no longer knows them as waiting: they are removed, and others are next
            if spilled:
                service.store.overflow_taken(spilled, *under)
            found = found or bool(names or spilled)
            if names or spilled or at >= 0:
                continue
            if not found:
                break
            at, found = 0, False
        else:
            return False
        service.frontier.refill(crawl, partition, host)  # nothing is left: new URLs may stay
        service.store.end_purge(purge.id)
        return True

    def _settle(self, crawl: int, items: Iterable[Admission]) -> None:
        frontier = self._service.frontier
        finals = [
            Final(
                crawl=crawl, fingerprint=frontier.fingerprint(item.url), url=item.url,
                state="excluded", kind=PURGED, detail="the waiting URLs of its host were deleted",
                depth=item.depth, level=item.level, at_ms=epoch_ms(),
                task=item.kind,
            )
            for item in items
            if item.kind.has_row
        ]  # fmt: skip
        if finals:
            self._service.store.commit(Commit(finals=finals))
