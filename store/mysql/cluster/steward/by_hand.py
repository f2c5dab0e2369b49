"""Commands of a person to a steward: to form a store, to hand over, to enrol a server again."""

from __future__ import annotations

import random
from collections.abc import Callable

import gevent

from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.observe import together
from greencrawl.store.mysql.cluster.register import NoMajority, Vote, WriterTerm
from greencrawl.store.mysql.cluster.steward.masters import DRAIN_SECONDS, JOIN_SECONDS
from greencrawl.store.mysql.cluster.steward.replication import MAX_MISSING, copies, takes_writes
from greencrawl.store.mysql.cluster.steward.servers import Report
from greencrawl.store.mysql.cluster.steward.steward import Steward


def form(steward: Steward) -> Report:
    """Make one store of empty servers: give all a vote, open the first master. Idempotent.

    Raises Unavailable if a server is away or does not follow in time: all must take part. Raises
    InvalidConfig if only some have a vote: :func:`enrol` is for a new server.
    """
    admins = list(steward.servers.admins.values())
    for admin in admins:
        admin.probe()
        admin.prepare()
    votes = together([admin.vote for admin in admins])
    new = [admin for admin, vote in zip(admins, votes, strict=True) if isinstance(vote, Exception)]
    if new and any(isinstance(vote, Vote) and vote.term for vote in votes):
        names = ", ".join(str(admin.server) for admin in new)
        raise InvalidConfig(
            [("GREENCRAWL_STORE", f"has been formed, without {names}: greencrawl store rejoin")]
        )
    for admin in new:
        admin.enrol(Vote())
    first = WriterTerm(1, str(steward.topology.masters[0]))
    register = steward.servers.register
    _until_decided(steward, lambda: register.change(lambda now: first if now is None else None))
    end = steward.clock() + DRAIN_SECONDS
    while True:
        report = steward.run_once()
        term, seen = report.term, report.servers
        if term and term.partner and all(
            one.up and (one.name == term.writer or (one.following and one.following.running))
            for one in seen
        ):  # fmt: skip
            return report
        if steward.clock() > end:
            raise Unavailable("; ".join(report.findings) or "the servers do not follow yet")
        gevent.sleep(0.2)


def hand_over(steward: Steward, to: str = "", *, lose: bool = False) -> WriterTerm:
    """Let the other master take writes from now on, without a loss.

    With ``lose`` the other master may lack transactions: these stay on the old writer only. Raises
    Unavailable, InvalidConfig.
    """
    report = steward.look()
    if report.term is None:
        raise Unavailable("; ".join(report.findings))
    term, seen = report.term, {one.name: one for one in report.servers}
    to = to or steward.topology.other(term.writer)
    if to not in map(str, steward.topology.masters):
        raise InvalidConfig([("server", f"{to} is no master of GREENCRAWL_STORE")])
    if to == term.writer:
        return term
    if term.partner != to and not lose:
        raise Unavailable(f"{to} does not acknowledge {term.writer}: it may lack transactions")
    if not seen[to].up:
        raise Unavailable(seen[to].error)
    if seen[term.writer].up:
        _end(steward, term, to, lose=lose)
    elif not lose and not copies(seen[to], seen[term.writer]):
        raise Unavailable(f"{to} was started anew: it may lack transactions")
    return _until_joined(steward, _succeed(steward, term, to))


def _succeed(steward: Steward, term: WriterTerm, to: str) -> WriterTerm:
    """Begin the term of ``to``; a steward that saw the old term end may do it first.

    Raises Unavailable.
    """
    wanted = WriterTerm(term.epoch + 1, to)

    def decide() -> WriterTerm | None:
        changed = steward.servers.change(term, wanted)
        return wanted if changed else steward.servers.register.read()

    now = _until_decided(steward, decide)
    if now is None or now.writer != to or now.epoch <= term.epoch:
        raise Unavailable("somebody else changed who takes writes: look again")
    return WriterTerm(now.epoch, to)


def _until_decided(steward: Steward, decide: Callable[[], WriterTerm | None]) -> WriterTerm | None:
    """Return the result of ``decide``. Raises NoMajority.

    If two propose at the same time, neither may get its majority: they try again at different
    times.
    """
    end = steward.clock() + JOIN_SECONDS
    while True:
        try:
            return decide()
        except NoMajority:
            if steward.clock() > end:
                raise
        gevent.sleep(random.uniform(0.02, 0.2))


def _until_joined(steward: Steward, wanted: WriterTerm) -> WriterTerm:
    """Make passes until the new writer is open, and has a partner if the other master is up.

    Other stewards may do the same meanwhile, or begin another term of the same writer; then this
    term is returned. Raises Unavailable if the writer is not open in time, or if another server
    takes writes.
    """
    end = steward.clock() + DRAIN_SECONDS
    while True:
        report = steward.run_once()
        seen = {one.name: one for one in report.servers}
        term, other = report.term, seen[steward.topology.other(wanted.writer)]
        if term is not None and term.epoch > wanted.epoch:
            if term.writer != wanted.writer:
                raise Unavailable(f"{term.writer} has taken over since: look again")
            wanted = WriterTerm(term.epoch, term.writer)
        opened = takes_writes(seen[wanted.writer], wanted)
        if opened and (term is None or term != wanted or not other.up):
            return wanted
        late = steward.clock() - end
        if late > 0 or (opened and late > 5 * JOIN_SECONDS - DRAIN_SECONDS):
            if opened:
                return wanted
            raise Unavailable(f"{wanted.writer} is not open yet: {'; '.join(report.findings)}")
        gevent.sleep(0.1)


def _end(steward: Steward, term: WriterTerm, to: str, *, lose: bool) -> None:
    """End a term without loss: close the old writer, and wait until ``to`` has its transactions."""
    old, new = steward.servers.admins[term.writer], steward.servers.admins[to]
    end = steward.clock() + (JOIN_SECONDS if lose else DRAIN_SECONDS)
    while gtid.missing(new.applied(), old.written()) > MAX_MISSING and steward.clock() < end:
        gevent.sleep(0.2)
    old.set_fence(term.epoch + 1, open_=False)
    target = old.written()
    while not gtid.covers(new.fetched(), target):
        if steward.clock() > end:
            if lose:
                return
            raise Unavailable(
                f"{to} does not catch up with {term.writer}: brokers will open either again"
            )
        gevent.sleep(0.02)


def enrol(steward: Steward, name: str) -> None:
    """Give a vote to a server that was set up again (empty, or a copy of another).

    First a majority of the other servers confirms the value. Its ballot is higher than any ballot
    that the server may have promised before it was lost. Raises NoMajority, InvalidConfig.
    """
    admin = steward.servers.admins.get(name)
    if admin is None:
        raise InvalidConfig([("server", f"{name} is no server of GREENCRAWL_STORE")])
    admin.probe()
    admin.prepare()
    admin.expel()
    _until_decided(steward, lambda: steward.servers.register.change(lambda _: None))
    others = [one.vote for one in steward.servers.admins.values() if one is not admin]
    votes = [vote for vote in together(others) if isinstance(vote, Vote)]
    admin.enrol(max(votes, key=lambda vote: vote.accepted))
