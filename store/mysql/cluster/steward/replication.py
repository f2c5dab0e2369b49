"""How a server relates to the writer, judged only by observations of both."""

from __future__ import annotations

from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm

MAX_MISSING = 1000
"""A server may lack at most this many transactions when it is tried as a partner."""
JOINED = 3_000_000_000
"""Since a partner joined, its GTID domain is this number plus the epoch.

The partner writes nothing under this domain. A server that was restarted has the domain of its
``my.cnf`` instead: what it had fetched but not applied is gone, though it may follow again by
itself.
"""


def takes_writes(writer: Observation, term: WriterTerm) -> bool:
    """Return whether the writer is open under the term's epoch."""
    return writer.open and writer.epoch == term.epoch and not writer.read_only


def copies(other: Observation, writer: Observation) -> bool:
    """Return whether the other server has copied the writer without a stop: its SQL thread has run
    all the time."""
    return (
        other.following is not None
        and other.following.leader == writer.name
        and other.following.applying
        and not other.following.stopped
        and other.domain >= JOINED
    )


def nearly_caught_up(writer: Observation, other: Observation) -> bool:
    """Return whether the other server copies, and lacks so little that it may soon acknowledge all
    commits."""
    running = other.following is not None and other.following.running
    return running and gtid.missing(other.position, writer.position) <= MAX_MISSING


def stray(term: WriterTerm, writer: Observation, other: Observation) -> int:
    """Return transactions of earlier terms, or of none, that ``other`` has and the writer lacks.

    Only the writer makes transactions of the present term; ``other`` may seem to have more of
    these.
    """
    past = {domain: last for domain, last in other.position.items() if domain != term.epoch}
    return gtid.missing(writer.position, past)
