"""Which term follows from a steward's observations, case by case, without servers."""

from __future__ import annotations

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.observe import Following, Observation
from greencrawl.store.mysql.cluster.register import NoMajority, Register, Vote, WriterTerm
from greencrawl.store.mysql.cluster.steward import by_hand
from greencrawl.store.mysql.cluster.steward.findings import findings
from greencrawl.store.mysql.cluster.steward.replication import JOINED
from greencrawl.store.mysql.cluster.steward.servers import Report
from greencrawl.store.mysql.cluster.steward.steward import Steward
from greencrawl.store.mysql.cluster.steward.takeover import Takeovers
from greencrawl.store.mysql.cluster.topology import parse
from greencrawl.store.steward import ring_of, steward_of
from tests.store.mysql.cluster.test_register import Memory, plain

URL = "mysql://u:p@m1,m2/db?replicas=r1"
M1, M2, R1 = parse(URL).servers
A, B = str(M1), str(M2)
RING = WriterTerm(3, A, B)
ALONE = WriterTerm(3, A)
WRITER = Observation(
    server=M1, read_only=False, open=True, epoch=3, position={3: 100}, asks_ack=True,
    acknowledged=True, clients=1, acks=7, strict=True, wait_point="AFTER_SYNC",
)  # fmt: skip
COPY = Following(leader=A, fetching=True, applying=True, fetched={3: 100})
PARTNER = Observation(
    server=M2, epoch=3, position={3: 99}, following=COPY, strict=True, wait_point="AFTER_SYNC",
    domain=JOINED + 3,
)  # fmt: skip
BEREFT = replace(PARTNER, following=replace(COPY, fetching=False))
CLOSED = replace(WRITER, read_only=True)
STOPPED = replace(COPY, fetching=False, applying=False, stopped=True)


def gone(one: Observation) -> Observation:
    return replace(one, error="connection refused")


class Watch:
    """Takeovers that get observations, at times of a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takeovers = Takeovers(parse(URL), clock=lambda: self.now)

    def due(
        self, term: WriterTerm, writer: Observation, other: Observation, after: float = 0
    ) -> WriterTerm:
        """Return the action that is due once these were observed for ``after`` seconds."""
        seen = {one.name: one for one in (writer, other)}
        found = self.takeovers.due(term, seen)
        for _ in range(round(after)):
            self.now += 1
            found = self.takeovers.due(term, seen)
        return found


def test_the_term_stays_while_its_writer_and_partner_are_up() -> None:
    assert Watch().due(RING, WRITER, PARTNER, after=60) == RING
    assert Watch().due(ALONE, WRITER, gone(PARTNER), after=60) == ALONE


def test_the_partner_takes_over_when_the_writer_was_away_for_a_while() -> None:
    assert Watch().due(RING, gone(WRITER), BEREFT, after=4) == RING
    assert Watch().due(RING, gone(WRITER), BEREFT, after=5) == WriterTerm(4, B)


def test_a_writer_that_refuses_connections_is_lost_only_if_its_partner_receives_nothing() -> None:
    busy = replace(gone(WRITER), refusal="busy")
    watch = Watch()
    for at in range(100, 160):
        following = replace(COPY, fetched={3: at})
        assert watch.due(RING, busy, replace(PARTNER, following=following), after=1) == RING
    assert watch.due(RING, busy, PARTNER, after=8) == WriterTerm(4, B)


def test_a_server_that_refuses_the_stewards_account_is_not_lost() -> None:
    refused = replace(gone(WRITER), refusal="account")
    assert Watch().due(RING, refused, PARTNER, after=60) == RING
    assert Watch().due(RING, WRITER, replace(gone(PARTNER), refusal="account"), after=60) == RING


def test_partner_that_follows_by_itself_after_a_start_does_not_take_over() -> None:
    fresh = replace(PARTNER, domain=102)
    assert Watch().due(RING, gone(WRITER), fresh, after=60) == RING
    assert Watch().due(RING, WRITER, fresh) == ALONE


def test_the_partner_does_not_take_over_while_the_writer_reaches_it() -> None:
    """This steward itself is cut off."""
    reached = replace(PARTNER, following=replace(COPY, fetching=True))
    assert Watch().due(RING, gone(WRITER), reached, after=60) == RING


def test_a_writer_that_is_just_being_opened_keeps_its_epoch() -> None:
    half = replace(WRITER, read_only=True, domain=3)
    assert Watch().due(ALONE, half, PARTNER, after=60) == ALONE


def test_short_absences_of_a_writer_do_not_add_up() -> None:
    watch = Watch()
    for _ in range(5):
        assert watch.due(RING, gone(WRITER), BEREFT, after=3) == RING
        assert watch.due(RING, WRITER, PARTNER, after=1) == RING


def test_a_restarted_partner_does_not_take_over_and_the_writer_goes_on_alone() -> None:
    fresh = replace(PARTNER, following=STOPPED)
    assert Watch().due(RING, gone(WRITER), fresh, after=60) == RING
    assert Watch().due(RING, WRITER, fresh) == ALONE
    assert Watch().due(RING, WRITER, replace(PARTNER, following=None)) == ALONE


def test_the_writer_goes_on_alone_when_its_partner_was_away_for_a_while() -> None:
    assert Watch().due(RING, WRITER, gone(PARTNER), after=4) == RING
    assert Watch().due(RING, WRITER, gone(PARTNER), after=5) == ALONE


def test_the_writer_goes_on_alone_if_its_partner_acknowledges_nothing() -> None:
    assert Watch().due(RING, replace(WRITER, clients=0), PARTNER, after=5) == ALONE
    assert Watch().due(RING, replace(WRITER, acknowledged=False), PARTNER, after=5) == ALONE
    stuck = replace(WRITER, hanging=2)
    assert Watch().due(RING, stuck, PARTNER, after=6) == ALONE
    watch = Watch()
    for acks in range(20):  # commits wait at every look, but never the same ones
        assert watch.due(RING, replace(stuck, acks=acks), PARTNER, after=0) == RING
        watch.now += 1


def test_a_restarted_writer_hands_over_to_a_partner_that_has_all_transactions() -> None:
    assert Watch().due(RING, CLOSED, PARTNER) == WriterTerm(4, B)
    behind = replace(PARTNER, following=replace(COPY, fetched={3: 98}))
    assert Watch().due(RING, CLOSED, behind) == WriterTerm(4, A)
    both = replace(PARTNER, position={3: 101}, following=STOPPED)
    assert Watch().due(RING, CLOSED, both) == WriterTerm(4, B)
    assert Watch().due(RING, CLOSED, replace(both, position={3: 99})) == WriterTerm(4, A)


def test_a_restarted_writer_waits_for_its_partner_for_a_bounded_time() -> None:
    assert Watch().due(RING, CLOSED, gone(PARTNER), after=19) == RING
    assert Watch().due(RING, CLOSED, gone(PARTNER), after=20) == WriterTerm(4, A)


def test_a_lone_writer_has_no_successor_and_begins_an_epoch_after_a_restart() -> None:
    assert Watch().due(ALONE, gone(WRITER), PARTNER, after=600) == ALONE
    assert Watch().due(ALONE, CLOSED, PARTNER) == WriterTerm(4, A)


def test_a_writer_is_opened_again_only_if_its_hand_over_stands_still() -> None:
    ended = replace(WRITER, open=False, epoch=4)
    older = replace(PARTNER, following=replace(COPY, fetched={3: 98}))  # a look from just before
    assert Watch().due(RING, ended, older, after=4) == RING
    assert Watch().due(RING, ended, older, after=5) == WriterTerm(4, A)
    assert Watch().due(RING, ended, PARTNER) == WriterTerm(4, B)
    assert Watch().due(ALONE, ended, PARTNER, after=4) == ALONE
    assert Watch().due(ALONE, ended, PARTNER, after=5) == WriterTerm(5, A)
    watch = Watch()
    for _ in range(5):
        assert watch.due(RING, ended, older, after=3) == RING
        assert watch.due(RING, WRITER, PARTNER, after=1) == RING


class Rivalled(Memory):
    """A voter that another proposer asks between our first promise and our acceptance."""

    rival = 2**60

    def accept(self, ballot: int, term: WriterTerm) -> bool:
        if self.rival:
            self.promise(self.rival)
            self.rival = 0
        return super().accept(ballot, term)


def handing(kept: WriterTerm, kind: type[Memory] = Memory) -> Steward:
    """Return a steward over a register that has ``kept``."""
    steward = Steward(parse(URL), clock=lambda: 0.0)
    voters = [kind(number) for number in range(3)]
    for voter in voters:
        voter.kept = Vote(1, 1, kept)
    steward.servers.register = Register(voters, together=plain)
    return steward


def test_hand_over_that_meets_another_proposer_tries_again() -> None:
    steward = handing(RING, Rivalled)
    with pytest.raises(NoMajority):
        steward.servers.change(RING, WriterTerm(4, B))
    steward = handing(RING, Rivalled)
    assert by_hand._succeed(steward, RING, B) == steward.servers.register.read() == WriterTerm(4, B)


def test_a_persons_proposal_is_made_again_when_a_steward_was_faster() -> None:
    steward = handing(RING, Rivalled)
    wanted, register = WriterTerm(4, B), steward.servers.register
    decided = by_hand._until_decided(steward, lambda: register.change(lambda _: wanted))
    assert decided == register.read() == wanted


def test_a_hand_over_counts_as_done_if_a_steward_has_finished_it() -> None:
    assert by_hand._succeed(handing(WriterTerm(4, B, A)), RING, B) == WriterTerm(4, B)
    assert by_hand._succeed(handing(WriterTerm(5, B)), RING, B) == WriterTerm(5, B)
    for other in (WriterTerm(4, A), ALONE):
        with pytest.raises(Unavailable, match="look again"):
            by_hand._succeed(handing(other), RING, B)


def test_a_hand_over_is_done_when_its_writer_is_open_in_a_later_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steward = Steward(parse(URL), clock=lambda: 0.0)
    opened = replace(WRITER, server=M2, epoch=5)
    for now in (WriterTerm(5, B, A), WriterTerm(5, B)):
        report = Report(now, (gone(PARTNER), gone(WRITER), opened))
        monkeypatch.setattr(steward, "run_once", lambda report=report: report)
        with gevent.Timeout(5):
            assert by_hand._until_joined(steward, WriterTerm(4, B)).epoch == 5
    elsewhere = Report(WriterTerm(5, A), (WRITER, PARTNER))
    monkeypatch.setattr(steward, "run_once", lambda: elsewhere)
    with gevent.Timeout(5), pytest.raises(Unavailable, match=f"{A} has taken over"):
        by_hand._until_joined(steward, WriterTerm(4, B))


def test_a_new_writer_that_was_not_opened_yet_keeps_its_term() -> None:
    taken = WriterTerm(4, B)
    assert Watch().due(taken, PARTNER, gone(WRITER), after=60) == taken


def test_the_writer_goes_on_alone_if_its_partner_has_transactions_of_its_own() -> None:
    stray = replace(PARTNER, position={3: 99, 1_000_002: 1})
    assert Watch().due(RING, WRITER, stray) == ALONE
    ahead = replace(PARTNER, position={3: 140})  # seen a moment later than the writer
    assert Watch().due(RING, WRITER, ahead, after=60) == RING


def test_notes_of_a_steward_say_what_to_do() -> None:
    def said(term: WriterTerm | None, *seen: Observation) -> str:
        return "\n".join(findings(parse(URL), term, {one.name: one for one in seen}))

    assert said(RING, WRITER, PARTNER) == ""
    assert "greencrawl store form" in said(None, WRITER)
    assert "takeover --lose" in said(ALONE, gone(WRITER), PARTNER)
    assert "takeover --lose" not in said(RING, gone(WRITER), PARTNER)
    assert "still reaches it" in said(RING, gone(WRITER), PARTNER)
    assert "still reaches it" not in said(RING, gone(WRITER), BEREFT)
    assert "started anew" in said(RING, gone(WRITER), replace(PARTNER, following=STOPPED))
    assert "kill -9" in said(
        WriterTerm(4, B), replace(PARTNER, open=True, epoch=4, read_only=False),
                             replace(WRITER, hanging=3))  # fmt: skip
    stray = replace(PARTNER, position={7: 2})
    assert f"{B} has 2 transactions" in said(ALONE, WRITER, stray)
    late = replace(PARTNER, following=replace(COPY, fetched={3: 5000}))
    assert "has yet to apply 4901" in said(RING, WRITER, late)
    assert "gtid_strict_mode" in said(RING, WRITER, replace(PARTNER, strict=False))
    assert "AFTER_SYNC" in said(RING, replace(WRITER, wait_point="AFTER_COMMIT"), PARTNER)
    assert "does not name it" in said(WriterTerm(1, "elsewhere:3306"), WRITER)


def test_the_last_look_of_a_steward_is_reported_without_a_question_to_the_servers() -> None:
    steward = steward_of(URL)
    assert steward is not None
    assert ring_of(steward) is None  # no pass yet
    copy = replace(COPY, behind_seconds=2.5)
    replica = replace(PARTNER, server=R1, following=copy)
    steward.seen = Report(RING, (WRITER, PARTNER, gone(replica)), ("mend it",)), 12
    ring = ring_of(steward)
    assert ring is not None
    assert (ring.epoch, ring.writer, ring.partner) == (3, A, B)
    assert (ring.findings, ring.seen_ms) == (("mend it",), 12)
    assert [(one.role, one.up, one.follows, one.lag_seconds) for one in ring.servers] == [
        ("writer", True, "", None), ("partner", True, A, None), ("replica", False, A, 2.5),
    ]  # fmt: skip
    steward.seen = Report(None, (WRITER, PARTNER)), 13
    ring = ring_of(steward)
    assert ring is not None
    assert (ring.writer, [one.role for one in ring.servers]) == ("", ["master", "master"])
    assert ring_of(steward_of("sqlite:///x.sqlite")) is None
