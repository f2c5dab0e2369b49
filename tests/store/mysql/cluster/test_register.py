"""The register of who takes writes: many proposers, lost messages, never two winners."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import gevent
import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.register import NoMajority, Register, Vote, WriterTerm
from greencrawl.store.mysql.cluster.topology import Server


class Memory:
    """A voter without a server: the rules of ``cluster.admin.Admin`` on a variable."""

    def __init__(self, number: int) -> None:
        self.server = Server(f"s{number}", 1)
        self.kept = Vote()
        self.up = True

    def _alive(self) -> None:
        if not self.up:
            raise Unavailable(f"{self.server} is away")

    def vote(self) -> Vote:
        self._alive()
        return self.kept

    def promise(self, ballot: int) -> Vote | None:
        self._alive()
        if self.kept.promised >= ballot:
            return None
        self.kept = Vote(ballot, self.kept.accepted, self.kept.term)
        return self.kept

    def accept(self, ballot: int, term: WriterTerm) -> bool:
        self._alive()
        if self.kept.promised > ballot:
            return False
        self.kept = Vote(ballot, ballot, term)
        return True


def plain(calls: Sequence[Callable[[], object]]) -> list[object]:
    found: list[object] = []
    for call in calls:
        try:
            found.append(call())
        except Unavailable as error:
            found.append(error)
    return found


def next_epoch(writer: str) -> Callable[[WriterTerm | None], WriterTerm]:
    return lambda now: WriterTerm((now.epoch if now else 0) + 1, writer)


def test_a_change_of_the_register_sees_the_last_one_and_an_empty_change_confirms_it() -> None:
    voters = [Memory(n) for n in range(5)]
    register = Register(voters, together=plain)
    assert register.read() is None
    assert register.change(lambda now: None) is None
    assert register.change(next_epoch("a")) == WriterTerm(1, "a")
    assert register.change(next_epoch("b")) == WriterTerm(2, "b")
    assert register.change(lambda now: None) == register.read() == WriterTerm(2, "b")


@pytest.mark.parametrize(("up", "enough"), [(3, True), (2, False)])
def test_a_majority_of_voters_decides_and_a_minority_does_not(up: int, enough: bool) -> None:
    voters = [Memory(n) for n in range(5)]
    register = Register(voters, together=plain)
    register.change(next_epoch("a"))
    for voter in voters[up:]:
        voter.up = False
    if enough:
        assert register.change(next_epoch("b")) == WriterTerm(2, "b")
    else:
        with pytest.raises(NoMajority):
            register.change(next_epoch("b"))
        with pytest.raises(NoMajority):
            register.read()


def test_a_chosen_value_is_kept_if_only_one_voter_of_the_next_majority_has_it() -> None:
    voters = [Memory(n) for n in range(5)]
    register = Register(voters, together=plain)
    register.change(next_epoch("a"))
    for voter in voters[3:]:
        voter.up = False
    register.change(next_epoch("b"))  # on the first three only
    for voter in voters:
        voter.up = not voter.up
    voters[2].up = True  # the one server that is in both majorities
    assert register.change(lambda now: None) == WriterTerm(2, "b")
    assert voters[4].kept.term == WriterTerm(2, "b")


@pytest.mark.parametrize("seed", range(60))
def test_an_epoch_has_one_winner_at_most_whatever_messages_are_lost(seed: int) -> None:
    chance = random.Random(seed)
    voters = [Memory(n) for n in range(5)]
    won: list[int] = []

    def lossy(calls: Sequence[Callable[[], object]]) -> list[object]:
        """Each message, and each answer, may be lost; others run in between."""
        found: list[object] = []
        for call in chance.sample(list(calls), len(calls)):
            gevent.sleep(0)
            if chance.random() < 0.15:
                found.append(Unavailable("the question was lost"))
                continue
            try:
                answer = call()
            except Unavailable as error:
                answer = error
            gevent.sleep(0)
            found.append(Unavailable("lost") if chance.random() < 0.15 else answer)
        return found

    def propose(name: str) -> None:
        register = Register(voters, together=lossy)
        for _ in range(15):
            try:
                known = register.read()
                wanted = next_epoch(name)(known)
                if (
                    register.change(lambda now, k=known, w=wanted: w if now == k else None)
                    == wanted
                ):
                    won.append(wanted.epoch)
            except NoMajority:
                gevent.sleep(0)

    gevent.joinall([gevent.spawn(propose, name) for name in "abc"], raise_error=True)
    assert len(set(won)) == len(won)
    final = Register(voters, together=plain).change(lambda now: None)
    if won:
        assert final is not None
        assert final.epoch >= max(won)
