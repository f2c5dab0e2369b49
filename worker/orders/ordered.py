"""Applies orders to a process of a worker, and reports its state."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from greencrawl.schema.log import set_level
from greencrawl.schema.logs.sender import Sender
from greencrawl.schema.process import own_process
from greencrawl.schema.records import FAILURES, Facts, NodeOptions
from greencrawl.schema.settings import Settings
from greencrawl.worker.crawls import Crawls
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.engine import Engine
from greencrawl.worker.orders.figures import Figures
from greencrawl.worker.orders.options import in_force
from greencrawl.worker.orders.rate import Rate
from greencrawl.worker.session.held import Sessions


class OrderedProcess:
    """The process that orders change; see :class:`greencrawl.worker.orders.following.Follower`."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        sessions: Sessions,
        writer: Writer,
        crawls: Crawls,
        rate: Rate,
        figures: Figures,
        sender: Sender,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._sessions = sessions
        self._writer = writer
        self._crawls = crawls
        self._rate = rate
        self._figures = figures
        self._sender = sender

    def keep(self, options: NodeOptions) -> None:
        """Apply the orders in force. The supervisor follows the ordered number of processes."""
        set_level(options.log_level or self._settings.log_level)
        self._rate.set(options.requests_per_second or 0.0)
        self._engine.keep(
            greenlets=options.greenlets or self._settings.greenlets,
            paused=bool(options.paused),
            drain=bool(options.drain),
        )

    def change(self, crawls: Collection[int]) -> None:
        """End sessions that keep another pace, after options of these crawls were changed.

        Raises Unavailable: then call it again.
        """
        for crawl in crawls:
            context = self._crawls.renew(crawl)
            if context is None:
                continue
            for held in self._sessions.holding():
                if held.session.crawl == crawl and held.session.revision < context.paced_since:
                    held.end_soon()

    def tell(self, loggers: Iterable[str]) -> None:
        """Set the loggers: the process sends its lines to one of them."""
        self._sender.tell(loggers)

    def facts(self, options: NodeOptions) -> Facts:
        """Return the report of the process while it follows ``options``."""
        figures = self._figures
        return replace(
            own_process.facts(self._settings.folders),
            greenlets=self._engine.greenlets,
            sessions=self._sessions.fetching,
            held=len(self._sessions),
            requests=self._rate.requests,
            pages=figures.pages,
            bytes=figures.bytes,
            backlog_bytes=self._writer.backlog_bytes,
            failures=dict(figures.failures.most_common(FAILURES)),
            options=in_force(self._settings, options),
            log_queued=self._sender.queued,
            log_dropped=self._sender.dropped,
        )
