"""A task that one broker does at a time, under a duty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import gevent
from gevent import Greenlet

from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.duty_timeout import DutyTimeout
from greencrawl.schema.errors import DutyLost, Unavailable, UnknownCrawl
from greencrawl.schema.log import logger

CUT_SECONDS = 3.0
"""Work that fails here is left to other brokers for this long."""


class DutyTask(ABC):
    """The task's greenlet, one in each broker. ``start()`` it, ``stop()`` it.

    After a while other brokers are to try what fails here: they may reach more nodes.
    """

    def __init__(self, service: Service, duty: str, what: str) -> None:
        """``what`` begins the names of events in the log."""
        self._own = self._service = service
        """The service; within a step, as the holder of the duty."""
        self._duty, self._what = duty, what
        self._log = logger(duty)
        self._timeout = DutyTimeout(service.clock)
        self._waits = ""
        """Why something could not be done, as it was last logged."""
        self._greenlet: Greenlet[[], None] | None = None

    def start(self) -> None:
        """Start the greenlet."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End after the current step; ``service.stopping`` must be set."""
        if self._greenlet is not None:
            self._greenlet.join()

    @abstractmethod
    def _run(self) -> None:
        """Run the greenlet."""

    def _tried(self, step: Callable[[], float], away_seconds: float, seconds: float) -> float:
        """Run ``step``; return the seconds until the next step, as ``step`` returns them.

        Returns ``away_seconds`` if ``step`` raised Unavailable, ``seconds`` if it raised anything
        else.
        """
        try:
            return step()
        except DutyLost:
            self._own.duties.lost(self._duty)
        except Unavailable as error:
            if str(error) != self._waits:
                self._waits = str(error)
                self._log.warning(f"{self._what}_delayed", error=self._waits)
            if self._timeout.hindered():
                self._own.duties.give_up(self._duty, CUT_SECONDS)
            return away_seconds
        except Exception:  # noqa: BLE001 - logged, and tried again
            self._log.exception(f"{self._what}_failed")
        return seconds

    def _held(self) -> bool:
        """Return whether this broker has the duty; ``_service`` is then that of its holder."""
        duty = self._own.duties.take(self._duty)
        if duty is None:
            return False
        self._timeout.hold(duty)
        self._service = self._own.holding(duty)
        return True

    def _done(self) -> None:
        """Note that all could be done."""
        self._waits = ""
        self._timeout.helped()

    def _in_each(self, work: Iterable[tuple[int, Callable[[], int]]]) -> int:
        """Do ``work`` in partitions and return the sum; nodes that are away are left out.

        Raises Unavailable if a node is away and nothing was done, and DutyLost.
        """
        count = 0
        away: dict[str, Unavailable] = {}
        for partition, part in work:
            node, _ = self._service.frontier.under(partition)
            if node in away:
                continue
            try:
                count += part()
            except UnknownCrawl:
                continue
            except DutyLost:
                raise
            except Unavailable as error:
                away[node] = error
        if away and not count:
            raise next(iter(away.values()))
        if not away:
            self._done()
        return count
