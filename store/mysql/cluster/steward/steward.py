"""The steward makes sure that exactly one master takes writes, and that the other acknowledges.

It runs in every broker and makes one pass a second; any number of them may run side by side.

The register has what is in force (:mod:`greencrawl.store.mysql.cluster.register`): the writer, its
epoch and its partner. A majority of all servers accepts each change of the register before anything
is done. What follows from the change can be repeated by any steward:

* **Partner lost, or restarted** → (epoch, writer, alone) → commits stop waiting for it. From the
  accepted change on nobody takes the partner for complete.
* **Writer lost, or restarted** → (epoch + 1, partner, alone) → the partner fetches no more. So
  the old writer, if it lives, gets no acknowledgement, and its commits hang. The partner applies
  all that it has fetched, and is opened. A writer that stood alone has no successor; it is opened
  again when it is back, under the next epoch.
* **A master comes back** → it is closed, must hold no transaction that the writer lacks, catches
  up, acknowledges, and only then is it (epoch, writer, partner).

A server is closed when it starts (``read_only``) and opened by the steward, under a ``fence`` row
that every transaction reads. The GTID domain of a writer is its epoch, so that transactions of one
term are never confused with those of another.
"""

from __future__ import annotations

from functools import partial

import gevent

from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.log import logger
from greencrawl.store.mysql.cluster.observe import together
from greencrawl.store.mysql.cluster.steward import replicas
from greencrawl.store.mysql.cluster.steward.masters import Masters
from greencrawl.store.mysql.cluster.steward.servers import Report, Servers
from greencrawl.store.mysql.cluster.steward.takeover import (
    DOWN_SECONDS,
    PATIENCE_SECONDS,
    Takeovers,
)
from greencrawl.store.mysql.cluster.topology import Topology

log = logger("store")

PASS_SECONDS = 1.0


class Steward:
    """The steward; see the module's docstring. ``topology`` carries an account with its
    privileges."""

    def __init__(
        self,
        topology: Topology,
        *,
        clock: Clock = monotonic,
        down_seconds: float = DOWN_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Open no connection yet; the seconds are as in :class:`Takeovers`. Raises
        InvalidConfig."""
        self.topology = topology
        self.clock = clock
        self.servers = Servers(topology)
        self.takeovers = Takeovers(
            topology, clock=clock, down_seconds=down_seconds, patience_seconds=patience_seconds
        )
        self._masters = Masters(self.servers, clock)
        self._said: dict[str, float] = {}
        self.seen: tuple[Report, int] | None = None
        """The observations of the last pass, and their time (Unix ms)."""

    def run(self) -> None:
        """Make passes for ever; a greenlet runs this."""
        while True:
            try:
                self.run_once()
            except GreencrawlError as error:
                self._say("steward_failed", error)
            except Exception:
                log.exception("steward_failed")
            gevent.sleep(PASS_SECONDS)

    def look(self) -> Report:
        """Return the state now; change nothing."""
        return self.servers.look()

    def run_once(self) -> Report:
        """Observe, and do what is due. Raises NoMajority, InvalidConfig."""
        report = self.look()
        self.seen = report, epoch_ms()
        if report.term is None:
            return report
        if report.term.writer not in map(str, self.topology.masters):
            raise InvalidConfig([("GREENCRAWL_STORE", report.findings[0])])
        seen = {one.name: one for one in report.servers}
        term = self.takeovers.due(report.term, seen)
        if term != report.term and not self.servers.change(report.term, term):
            return report
        steps = [
            partial(replicas.settle, self.servers.admins, term, seen[str(one)])
            for one in self.topology.replicas
        ]
        if seen[term.writer].up:
            other = seen[self.topology.other(term.writer)]
            steps.append(partial(self._masters.settle, term, seen[term.writer], other))
        for failure in together(steps):
            if isinstance(failure, GreencrawlError):
                self._say("steward_step_repeated", failure)
            elif isinstance(failure, BaseException):
                raise failure
        return report

    def close(self) -> None:
        """Close all connections."""
        self.servers.close()

    def _say(self, event: str, error: BaseException) -> None:
        """Log a repeated event once a minute."""
        key = f"{event} {error}"
        if self.clock() - self._said.get(key, -60.0) >= 60.0:
            self._said = {key: self.clock()} if len(self._said) > 100 else self._said
            self._said[key] = self.clock()
            log.warning(event, error=str(error))
