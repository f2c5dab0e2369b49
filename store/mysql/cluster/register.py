"""A register of who takes writes; a majority of the servers decides its small value.

It is a register with compare-and-set over all masters and replicas: CASPaxos (D. Rystsov, 2018).
Each server keeps its vote in a table of its own that is not replicated. A change asks a majority to
promise a ballot, and takes the value accepted under the highest ballot among them. It changes that
value and asks a majority to accept the result. Any minority may be dead, slow or cut off. A
proposer may leave a value half accepted. The next change finds this value and begins from it, or
replaces it. So a proposer may act on a value only after its own change was accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from greencrawl.schema import wire
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.store.mysql.cluster.topology import Server

T = TypeVar("T")

TABLE = """CREATE TABLE IF NOT EXISTS votes (
    server INT UNSIGNED PRIMARY KEY,
    promised BIGINT NOT NULL,
    accepted BIGINT NOT NULL,
    value VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL
) ENGINE=InnoDB"""

_RANDOM_BITS = 20
"""Random bits of a ballot; a counter is above them."""


class WriterTerm(Struct, frozen=True, forbid_unknown_fields=True):
    """A term: its epoch, the server that takes writes, and the server that acknowledges each
    commit.

    ``epoch`` rises with each takeover. ``partner`` is "" while the writer stands alone: then no
    other server counts as complete.
    """

    epoch: int
    writer: str
    partner: str = ""


class Vote(Struct, frozen=True):
    """The data of one server: the ballot that it promised, the value that it accepted, and that
    value's ballot."""

    promised: int = 0
    accepted: int = 0
    term: WriterTerm | None = None


class Voter(Protocol):
    """The vote of one server; each call is atomic on the server, and raises Unavailable."""

    server: Server

    def vote(self) -> Vote:
        """Return what the server keeps now."""

    def promise(self, ballot: int) -> Vote | None:
        """Promise to accept nothing below ``ballot``; return what the server keeps now, or None if
        it has promised as much before."""

    def accept(self, ballot: int, term: WriterTerm) -> bool:
        """Accept unless a higher ballot was promised."""


class NoMajority(Unavailable):
    """Raised when too few servers answer: nobody may decide who takes writes."""


class Register:
    """The value over ``voters``: all servers, of which a minority may be away."""

    def __init__(
        self,
        voters: Iterable[Voter],
        *,
        together: Callable[[Sequence[Callable[[], object]]], list[object]],
    ) -> None:
        """Build the object; ``together`` runs calls at the same time, and an exception comes back
        as a value."""
        self._voters = list(voters)
        self._together = together

    @property
    def majority(self) -> int:
        """Return how many votes decide: more than half of all servers."""
        return len(self._voters) // 2 + 1

    def read(self) -> WriterTerm | None:
        """Return the value that a majority knows, perhaps one that is just being replaced.

        Show this value, but do not act on it. Raises NoMajority.
        """
        votes = self._answers([voter.vote for voter in self._voters])
        self._enough(votes, "answer")
        return max(votes, key=lambda vote: vote.accepted).term

    def change(self, change: Callable[[WriterTerm | None], WriterTerm | None]) -> WriterTerm | None:
        """Replace the value by ``change`` of it, and return what is accepted now.

        If ``change`` returns None, the value stays, and a majority confirms that it holds this
        value. Raises NoMajority, also when another proposer was faster: try again.
        """
        votes = self._answers([voter.vote for voter in self._voters])
        self._enough(votes, "answer")
        ballot = _above(max(vote.promised for vote in votes))
        promises = self._answers([partial(voter.promise, ballot) for voter in self._voters])
        given = [promise for promise in promises if promise is not None]
        self._enough(given, "promise")
        present = max(given, key=lambda vote: vote.accepted).term
        wanted = change(present)
        if wanted is None:
            wanted = present
        if wanted is None:
            return None
        accepted = self._answers([partial(voter.accept, ballot, wanted) for voter in self._voters])
        self._enough([one for one in accepted if one], "accept")
        return wanted

    def _answers(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        found = self._together(calls)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, GreencrawlError):
                raise one
        return [cast(T, one) for one in found if not isinstance(one, BaseException)]

    def _enough(self, answers: Sequence[object], what: str) -> None:
        if len(answers) < self.majority:
            raise NoMajority(
                f"{len(answers)} of {len(self._voters)} servers {what}; {self.majority} must"
            )


def _above(ballot: int) -> int:
    """Return a higher ballot that nobody else draws: a counter, and random bits below it."""
    return ((ballot >> _RANDOM_BITS) + 1 << _RANDOM_BITS) | random.getrandbits(_RANDOM_BITS)


def term_text(term: WriterTerm) -> str:
    """Return a term as JSON."""
    return wire.to_json(term).decode()


def term_of(text: str) -> WriterTerm | None:
    """Return the term that :func:`term_text` wrote; None if there is no value yet."""
    return wire.from_json(text, WriterTerm) if text else None
