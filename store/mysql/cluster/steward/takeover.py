"""Decides the next term from what a steward observes, and for how long it has observed it.

* **Partner lost, or restarted**: (epoch, writer, alone).
* **Writer lost, or restarted**: (epoch + 1, partner, alone); or the writer itself in a new term if
  nobody may succeed it.

This module asks no server, and changes nothing.
"""

from __future__ import annotations

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm
from greencrawl.store.mysql.cluster.steward.replication import copies, stray, takes_writes
from greencrawl.store.mysql.cluster.topology import Topology

DOWN_SECONDS = 5.0
"""A server that was away for this long is lost."""
PATIENCE_SECONDS = 20.0
"""A restarted writer is opened again without its partner only after this long."""
HANDING_SECONDS = 5.0
"""A writer that a hand-over has closed is opened again after this long: the process that closed it
may be dead."""


class Takeovers:
    """The observations of one steward in its passes so far; times are seconds of ``clock``."""

    def __init__(
        self,
        topology: Topology,
        *,
        clock: Clock = monotonic,
        down_seconds: float = DOWN_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Set the times.

        A server that was away for ``down_seconds`` is lost. A restarted writer is opened without
        its partner after ``patience_seconds``.
        """
        self._topology = topology
        self._clock = clock
        self.down_seconds = down_seconds
        self.patience_seconds = patience_seconds
        self._since: dict[str, float] = {}
        self._acks: tuple[str, int] = ("", -1)
        self._arrived: dict[int, int] = {}

    def due(self, term: WriterTerm, seen: dict[str, Observation]) -> WriterTerm:
        """Return the term that follows from the observation; the current term if no other
        follows."""
        writer, other = seen[term.writer], seen[self._topology.other(term.writer)]
        lost = self._lasts(f"{writer.name} lost", not writer.up and not self._serves(writer, other))
        gone = not other.up and other.refusal != "account"
        other_lost = self._lasts(f"{other.name} lost", gone)
        stuck = self._lasts(f"{writer.name} stuck", self._stuck(term, writer))
        # A hand-over first closes the writer under the next epoch, and then names the next writer.
        handed = writer.up and writer.epoch > term.epoch
        handed_for = self._lasts(f"{writer.name} handed", handed)
        handing = handed and handed_for < HANDING_SECONDS
        if not term.partner:
            # another steward opens it just now
            opening = writer.open and writer.domain == term.epoch
            ended = writer.epoch >= term.epoch and not takes_writes(writer, term)
            again = writer.up and ended and not opening and not handing
            return WriterTerm(writer.epoch + 1, writer.name) if again else term
        taken_over = WriterTerm(term.epoch + 1, other.name)
        if not writer.up:
            # The partner may still acknowledge what the writer sends: then only we are cut off.
            silent = other.following is not None and not other.following.fetching
            ready = other.up and copies(other, writer) and (silent or writer.refusal == "busy")
            return taken_over if ready and lost >= self.down_seconds else term
        if not takes_writes(writer, term):
            if other.up:
                fetched = other.following.fetched if other.following else {}
                if gtid.covers(other.position, writer.position) or (
                    copies(other, writer) and gtid.covers(fetched, writer.position)
                ):
                    return taken_over
                if handing:  # our look at the other may be older than the look at the writer
                    return term
            elif other_lost < self.patience_seconds:
                return term
            return WriterTerm(term.epoch + 1, writer.name)
        if (
            max(other_lost, stuck) >= self.down_seconds
            or (other.up and (not copies(other, writer) or stray(term, writer, other)))
        ):  # fmt: skip
            return WriterTerm(term.epoch, writer.name)
        return term

    def _stuck(self, term: WriterTerm, writer: Observation) -> bool:
        """Return whether commits get no acknowledgement, though the partner may be up."""
        before, self._acks = self._acks, (writer.name, writer.acks)
        if not writer.up or not term.partner or not writer.asks_ack:
            return False
        if writer.clients == 0 or not writer.acknowledged:
            return True
        return writer.hanging > 0 and before == self._acks

    def _serves(self, writer: Observation, other: Observation) -> bool:
        """Return whether a writer that refuses us still works: its writes arrive at the other
        master.

        Such a writer may have no connection left for us, because there are too many workers, or
        because its disk is full and all workers wait.
        """
        following = other.following
        fetched = following.fetched if following and following.leader == writer.name else {}
        before, self._arrived = self._arrived, fetched
        return writer.refusal == "account" or (writer.refusal == "busy" and fetched != before)

    def _lasts(self, what: str, holds: bool) -> float:
        """Return the seconds for which ``what`` has held in every pass."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return self._clock() - self._since.setdefault(what, self._clock())
