"""Notes once a second the values that no code counts as they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import process_time

import gevent

from greencrawl.worker.metrics.table import SLOT
from greencrawl.worker.metrics.tallies import Tallies

EVERY_SECONDS = 1.0


class Meter:
    """``gauges``: name → its present value; ``counters``: name → its sum over this process's life.

    Counters keep their values from earlier processes: the new sums are added to them.
    """

    def __init__(
        self,
        tallies: Tallies,
        gauges: Mapping[str, Callable[[], float]],
        counters: Mapping[str, Callable[[], float]],
    ) -> None:
        self._tallies = tallies
        self._gauges = [(SLOT[name], read) for name, read in gauges.items()]
        of_process = {"cpu_seconds": process_time, **counters}
        self._counters = [
            (SLOT[name], tallies.get(SLOT[name]), read) for name, read in of_process.items()
        ]

    def note(self) -> None:
        """Note the present values."""
        for slot, read in self._gauges:
            self._tallies.set(slot, read())
        for slot, before, read in self._counters:
            self._tallies.set(slot, before + read())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note them once a second while the block runs, and at its end."""
        writing = gevent.spawn(self._run)
        try:
            yield
        finally:
            writing.kill()
            self.note()

    def _run(self) -> None:
        while True:
            self.note()
            gevent.sleep(EVERY_SECONDS)
