"""The steward: sees to it that exactly one master takes writes, and that the other acknowledges.

It runs in every broker and does one round a second; any number of them may run side by side.

What is in force stands in the register (:mod:`store.mysql.cluster.register`): the writer, its epoch
and its partner. Each change is accepted there by a majority of all servers before anything is done,
and what follows from it can be done again by whoever comes next:

* **Partner lost, or started anew** → (epoch, writer, alone) → commits stop waiting for it. From the
  first moment on nobody takes the partner for complete.
* **Writer lost, or started anew** → (epoch + 1, partner, alone) → the partner fetches no more, so
  that the old writer, should it live, gets no acknowledgement and its commits hang; the partner
  applies all that it has fetched, and is opened. A writer that stood alone has no successor; it is
  opened again when it is back, under the next epoch.
* **A master comes back** → it is closed, must hold no transaction that the writer lacks, catches
  up, acknowledges, and only then is it (epoch, writer, partner).

A server is closed when it starts (``read_only``) and opened by the steward, under a ``fence`` row
that every transaction reads. The GTID domain of a writer is its epoch, so that transactions of one
reign are never taken for those of another.
"""

from __future__ import annotations

import random
from functools import partial

import gevent
from msgspec import Struct

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.schema.log import logger
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.admin import ENDLESS_MS, Admin
from greencrawl.store.mysql.cluster.findings import notes
from greencrawl.store.mysql.cluster.observe import Observation, observe, together
from greencrawl.store.mysql.cluster.register import NoMajority, Register, Reign, Vote
from greencrawl.store.mysql.cluster.replication import (
    JOINED,
    NEAR,
    copies,
    near,
    stray,
    takes_writes,
)
from greencrawl.store.mysql.cluster.topology import Topology

log = logger("store")

ROUND_SECONDS = 1.0
DOWN_SECONDS = 5.0
"""A server that was away for so long counts as lost."""
PATIENCE_SECONDS = 20.0
"""A writer that was started anew is opened again without its partner only after so long."""
DRAIN_SECONDS = 60.0
"""How long a round waits for a server to apply what it has fetched."""
QUIET_SECONDS = 0.5
"""A server that has read all that it fetched, and applies nothing for so long, is through."""
JOIN_SECONDS = 2.0
"""How long a new partner may take to acknowledge: commits wait as long."""
HANDING_SECONDS = 5.0
"""A writer that a hand-over has closed is opened again after so long: who closed it may be dead."""
FLUSHED = 3
"""``innodb_flush_log_at_trx_commit``: durable in the engine too before the client hears of it. A
server that starts again rolls back what only its binary log has (``init-rpl-role=SLAVE``)."""


class Report(Struct, frozen=True):
    """What is so. ``notes`` are for people: what is wrong, and what to do."""

    reign: Reign | None
    servers: tuple[Observation, ...]
    notes: tuple[str, ...] = ()


class Steward:
    """See the module's text. ``topology`` carries an account that may do all this."""

    def __init__(
        self,
        topology: Topology,
        *,
        clock: Clock = monotonic,
        down_seconds: float = DOWN_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        if not topology.ring:
            raise InvalidConfig([("GREENCRAWL_STORE", "only two masters have a steward")])
        self.topology = topology
        self._admins = {str(server): Admin(topology, server) for server in topology.servers}
        self.register = Register(list(self._admins.values()), together=together)
        self._clock = clock
        self._down_seconds = down_seconds
        self._patience = patience_seconds
        self._since: dict[str, float] = {}
        self._acks: tuple[str, int] = ("", -1)
        self._arrived: dict[int, int] = {}
        self._said: dict[str, float] = {}

    # -- rounds

    def run(self) -> None:
        """Rounds for ever; a greenlet's body."""
        while True:
            try:
                self.round()
            except GreencrawlError as error:
                self._say("the cluster was not looked after", error)
            except Exception:
                log.exception("the cluster was not looked after")
            gevent.sleep(ROUND_SECONDS)

    def look(self) -> Report:
        """What is so now; changes nothing."""
        seen = {one.name: one for one in observe(list(self._admins.values()))}
        try:
            reign = self.register.read()
        except NoMajority as error:
            return Report(None, tuple(seen.values()), (f"nobody may decide: {error}",))
        return Report(reign, tuple(seen.values()), tuple(notes(self.topology, reign, seen)))

    def round(self) -> Report:
        """Look, and do what is due. Raises NoMajority, InvalidConfig."""
        report = self.look()
        if report.reign is None:
            return report
        if report.reign.writer not in map(str, self.topology.masters):
            raise InvalidConfig([("GREENCRAWL_STORE", report.notes[0])])
        seen = {one.name: one for one in report.servers}
        reign = self._due(report.reign, seen)
        if reign != report.reign and not self._change(report.reign, reign):
            return report
        steps = [partial(self._replica, reign, seen[str(one)]) for one in self.topology.replicas]
        if seen[reign.writer].up:
            other = seen[self._other_name(reign.writer)]
            steps.append(partial(self._masters, reign, seen[reign.writer], other))
        for failure in together(steps):
            if isinstance(failure, GreencrawlError):
                self._say("a step is to be done again", failure)
            elif isinstance(failure, BaseException):
                raise failure
        return report

    def _other_name(self, name: str) -> str:
        [other] = [str(one) for one in self.topology.masters if str(one) != name]
        return other

    # -- who reigns

    def _due(self, reign: Reign, seen: dict[str, Observation]) -> Reign:
        """The reign that follows from what was seen; the one in force if nothing does."""
        writer, other = seen[reign.writer], seen[self._other_name(reign.writer)]
        lost = self._lasts(f"{writer.name} lost", not writer.up and not self._serves(writer, other))
        gone = not other.up and other.refusal != "account"
        other_lost = self._lasts(f"{other.name} lost", gone)
        stuck = self._lasts(f"{writer.name} stuck", self._stuck(reign, writer))
        # A hand-over closes it under the next epoch, and names the next writer only then.
        handed = writer.up and writer.epoch > reign.epoch
        handed_for = self._lasts(f"{writer.name} handed", handed)
        handing = handed and handed_for < HANDING_SECONDS
        if not reign.partner:
            opening = writer.open and writer.domain == reign.epoch  # by another steward, just now
            ended = writer.epoch >= reign.epoch and not takes_writes(writer, reign)
            again = writer.up and ended and not opening and not handing
            return Reign(writer.epoch + 1, writer.name) if again else reign
        taken_over = Reign(reign.epoch + 1, other.name)
        if not writer.up:
            # What it still sends to its partner it may still acknowledge: only we are cut off then.
            silent = other.following is not None and not other.following.fetching
            ready = other.up and copies(other, writer) and (silent or writer.refusal == "busy")
            return taken_over if ready and lost >= self._down_seconds else reign
        if not takes_writes(writer, reign):
            if other.up:
                fetched = other.following.fetched if other.following else {}
                if gtid.covers(other.position, writer.position) or (
                    copies(other, writer) and gtid.covers(fetched, writer.position)
                ):
                    return taken_over
                if handing:  # our look at the other may be older than the one at the writer
                    return reign
            elif other_lost < self._patience:
                return reign
            return Reign(reign.epoch + 1, writer.name)
        if (
            max(other_lost, stuck) >= self._down_seconds
            or (other.up and (not copies(other, writer) or stray(reign, writer, other)))
        ):  # fmt: skip
            return Reign(reign.epoch, writer.name)
        return reign

    def _stuck(self, reign: Reign, writer: Observation) -> bool:
        """Whether commits get no acknowledgement, though the partner may be up."""
        before, self._acks = self._acks, (writer.name, writer.acks)
        if not writer.up or not reign.partner or not writer.asks_ack:
            return False
        if writer.clients == 0 or not writer.acknowledged:
            return True
        return writer.hanging > 0 and before == self._acks

    def _serves(self, writer: Observation, other: Observation) -> bool:
        """Whether a writer that refuses us is at work: what it writes goes on arriving.

        One that has no connection left for us may have too many workers, or a full disk on which
        all of them wait.
        """
        following = other.following
        fetched = following.fetched if following and following.leader == writer.name else {}
        before, self._arrived = self._arrived, fetched
        return writer.refusal == "account" or (writer.refusal == "busy" and fetched != before)

    def _lasts(self, what: str, holds: bool) -> float:
        """Seconds for which ``what`` has held in every round."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return self._clock() - self._since.setdefault(what, self._clock())

    def _change(self, known: Reign, wanted: Reign) -> bool:
        """Replace the reign if it still is ``known``. Raises NoMajority."""
        changed = self.register.change(lambda now: wanted if now == known else None) == wanted
        if changed:
            log.warning(
                "who takes writes",
                epoch=wanted.epoch,
                writer=wanted.writer,
                acknowledged_by=wanted.partner or "nobody",
            )
        return changed

    def _confirmed(self, reign: Reign) -> bool:
        """Whether a majority holds ``reign``: only that is acted on."""
        return self.register.change(lambda _: None) == reign

    # -- the masters

    def _masters(self, reign: Reign, writer: Observation, other: Observation) -> None:
        if not takes_writes(writer, reign):
            # What was started anew rules under an epoch of its own; a hand-over ends its reign.
            if not reign.partner and writer.epoch <= reign.epoch:
                self._open(reign)
            return
        self._acknowledgement(reign, writer)
        if other.up:
            self._other(reign, writer, other)

    def _open(self, reign: Reign) -> None:
        """Let the writer of ``reign`` take writes, as soon as it has applied what it fetched."""
        with self._admins[reign.writer].alone() as admin:
            if not self._confirmed(reign):
                return
            self._drain(admin)
            self._make_durable(admin)
            admin.set_global(gtid_domain_id=reign.epoch)
            admin.execute(
                f"SET GLOBAL rpl_semi_sync_master_enabled = {'ON' if reign.partner else 'OFF'}"
            )
            admin.set_fence(reign.epoch, open_=True)
            if admin.fence() != (reign.epoch, True):
                raise Unavailable(f"{admin.server} was closed since by another steward")
            admin.execute("SET GLOBAL read_only = OFF")
        log.warning("opened for writing", server=reign.writer, epoch=reign.epoch)

    def _make_durable(self, admin: Admin) -> None:
        wanted = {
            "innodb_flush_log_at_trx_commit": FLUSHED,  # needs SUPER, unless my.cnf says so
            "sync_binlog": 1,
            "rpl_semi_sync_master_timeout": ENDLESS_MS,
        }
        has = admin.variables(*wanted)
        admin.set_global(**{name: to for name, to in wanted.items() if has[name] != to})

    def _drain(self, admin: Admin) -> None:
        """Fetch no more, apply what was fetched, follow nobody."""
        if not admin.slave():
            return
        admin.stop_fetching()
        end = self._clock() + DRAIN_SECONDS
        last: dict[int, int] = {}
        since = self._clock()
        while True:
            row = admin.slave()
            if row["Slave_SQL_Running"] != "Yes":
                if row["Last_SQL_Errno"]:
                    raise Unavailable(f"{admin.server} cannot apply: {row['Last_SQL_Error']}")
                break  # it was started anew: there is nothing fetched that is not applied
            applied = _applied(admin)
            if applied != last:
                last, since = applied, self._clock()
            if gtid.covers(applied, gtid.parse(row["Gtid_IO_Pos"])):
                break
            # The last transaction may have come in part: nobody acknowledged it, nor ever will.
            idle = (row["Slave_SQL_Running_State"] or "").startswith("Slave has read all relay log")
            if idle and self._clock() - since >= QUIET_SECONDS and not admin.applies():
                break
            if self._clock() > end:
                raise Unavailable(f"{admin.server} still applies what it fetched")
            gevent.sleep(0.02)
        admin.stop_following()

    def _acknowledgement(self, reign: Reign, writer: Observation) -> None:
        """Commits wait for the partner if there is one, and for nobody otherwise."""
        admin = self._admins[reign.writer]
        if reign.partner and (not writer.asks_ack or writer.ack_timeout_ms != ENDLESS_MS):
            admin.set_global(rpl_semi_sync_master_timeout=ENDLESS_MS)
            admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        elif not reign.partner and writer.asks_ack:
            with admin.alone() as held:
                if self._confirmed(reign):
                    held.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                    log.warning("commits are not acknowledged any more", server=reign.writer)

    def _other(self, reign: Reign, writer: Observation, other: Observation) -> None:
        """Keep it closed, let it follow; take it as partner when it acknowledges all there is.

        While it is the partner it is never started again: what it fetched but had not applied when
        it stopped is gone, so it must become a partner anew.
        """
        following = other.following
        closed = other.read_only and not other.open and other.epoch == reign.epoch
        follows = following is not None and following.leader == writer.name
        if closed and (reign.partner or (follows and following and not following.stopped)):
            if not reign.partner and near(writer, other) and not stray(reign, writer, other):
                self._join(reign, other)
            return
        with self._admins[other.name].alone() as admin:
            if not self._confirmed(reign):  # it may have taken over since we looked
                return
            if other.open or other.epoch != reign.epoch:
                admin.set_fence(reign.epoch, open_=False)  # in vain while a commit hangs there
            if not other.read_only:
                admin.execute("SET GLOBAL read_only = ON")
            if reign.partner:
                return
            if follows:
                if following and following.stopped:
                    admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                    admin.execute("SET GLOBAL rpl_semi_sync_slave_enabled = ON")
                    admin.start_following()
            elif not self._surplus(reign, other):
                admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                admin.execute("SET GLOBAL rpl_semi_sync_slave_enabled = ON")
                self._make_durable(admin)
                admin.follow(writer.server)
                log.info("follows", server=other.name, leader=writer.name)

    def _surplus(self, reign: Reign, other: Observation) -> int:
        """Transactions that ``other`` has and the writer has not; the writer is asked last."""
        has = _applied(self._admins[other.name])
        return gtid.missing(_applied(self._admins[reign.writer]), has)

    def _join(self, reign: Reign, other: Observation) -> None:
        """Make ``other`` the partner, if it acknowledges at once."""
        admin = self._admins[other.name]
        with self._admins[reign.writer].alone() as writer:
            if not self._confirmed(reign):
                return
            writer.set_global(rpl_semi_sync_master_timeout=ENDLESS_MS)
            writer.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")
            try:
                self._await_acknowledgement(admin, writer)
                admin.set_global(gtid_domain_id=JOINED + reign.epoch)
                self._change(reign, Reign(reign.epoch, reign.writer, other.name))
            except GreencrawlError:
                # The proposal may stand half accepted: the confirmation finishes or ends it.
                if self._confirmed(reign):
                    writer.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                raise

    def _await_acknowledgement(self, admin: Admin, writer: Admin) -> None:
        """Until all that was committed before now is there, and all to come is acknowledged."""
        end = self._clock() + JOIN_SECONDS
        target: dict[int, int] | None = None
        while target is None or not gtid.covers(_fetched(admin), target):
            if self._clock() > end:
                raise Unavailable(f"{admin.server} does not acknowledge {writer.server} yet")
            [clients] = writer.status("Rpl_semi_sync_master_clients").values()
            if target is None and int(clients):
                target = _written(writer)
            gevent.sleep(0.02)

    # -- replicas

    def _replica(self, reign: Reign, replica: Observation) -> None:
        """Replicas copy the partner: a writer that is killed may undo what it has not answered.

        While there is no partner they stand where they are, and are not read when they lag.
        """
        leader, admin = reign.partner, self._admins[replica.name]
        if not replica.up:
            return
        if not replica.read_only:
            admin.execute("SET GLOBAL read_only = ON")
        following = replica.following
        if not leader:
            # Nor do they copy a partner that comes back: it may have what the writer has not.
            if following and not following.stopped:
                admin.stop_fetching()
        elif following and following.leader == reign.writer and following.until:
            if following.stopped:  # it is as far as the partner's log goes back
                admin.follow(self._admins[leader].server)
        elif following is None or following.leader != leader:
            admin.follow(self._admins[leader].server)
            log.info("follows", server=replica.name, leader=leader)
        elif following.lacking:
            # The partner was made anew, and its log begins later. What it has cannot be undone.
            until = self._admins[leader].variables("gtid_binlog_pos")["gtid_binlog_pos"]
            admin.follow(self._admins[reign.writer].server, until=until)
            log.info("catches up", server=replica.name, leader=reign.writer)
        elif following.stopped:
            admin.start_following()

    # -- by hand

    def form(self) -> Report:
        """Make one store of empty servers: votes on all, the first master opened. Idempotent.

        Raises Unavailable if a server is away or does not follow in time: all must take part.
        InvalidConfig if only some have a vote: a new server joins by :meth:`enrol`.
        """
        admins = list(self._admins.values())
        for admin in admins:
            admin.probe()
            admin.prepare()
        votes = together([admin.vote for admin in admins])
        new = [
            admin for admin, vote in zip(admins, votes, strict=True) if isinstance(vote, Exception)
        ]
        if new and any(isinstance(vote, Vote) and vote.reign for vote in votes):
            names = ", ".join(str(admin.server) for admin in new)
            raise InvalidConfig(
                [("GREENCRAWL_STORE", f"has been formed, without {names}: greencrawl store rejoin")]
            )
        for admin in new:
            admin.enrol(Vote())
        first = Reign(1, str(self.topology.masters[0]))
        self.register.change(lambda now: first if now is None else None)
        end = self._clock() + DRAIN_SECONDS
        while True:
            report = self.round()
            reign, seen = report.reign, report.servers
            if reign and reign.partner and all(
                one.up and (one.name == reign.writer or (one.following and one.following.running))
                for one in seen
            ):  # fmt: skip
                return report
            if self._clock() > end:
                raise Unavailable("; ".join(report.notes) or "the servers do not follow yet")
            gevent.sleep(0.2)

    def hand_over(self, to: str = "", *, lose: bool = False) -> Reign:
        """Let the other master take writes from now on, in order and without a loss.

        With ``lose`` also one that may lack transactions: those stay behind on the old writer.
        Raises Unavailable, InvalidConfig.
        """
        report = self.look()
        if report.reign is None:
            raise Unavailable("; ".join(report.notes))
        reign, seen = report.reign, {one.name: one for one in report.servers}
        to = to or self._other_name(reign.writer)
        if to not in map(str, self.topology.masters):
            raise InvalidConfig([("server", f"{to} is no master of GREENCRAWL_STORE")])
        if to == reign.writer:
            return reign
        if reign.partner != to and not lose:
            raise Unavailable(f"{to} does not acknowledge {reign.writer}: it may lack transactions")
        if not seen[to].up:
            raise Unavailable(seen[to].error)
        if seen[reign.writer].up:
            self._end(reign, to, lose=lose)
        elif not lose and not copies(seen[to], seen[reign.writer]):
            raise Unavailable(f"{to} was started anew: it may lack transactions")
        return self._until_joined(self._succeed(reign, to))

    def _succeed(self, reign: Reign, to: str) -> Reign:
        """Let ``to`` follow; a steward that saw the reign end may do the same. Raises Unavailable.

        Of two that propose at the same time none may get its majority: they try again, apart.
        """
        end = self._clock() + JOIN_SECONDS
        while True:
            try:
                if self._change(reign, Reign(reign.epoch + 1, to)):
                    return Reign(reign.epoch + 1, to)
                now = self.register.read()
            except NoMajority:
                if self._clock() > end:
                    raise
                gevent.sleep(random.uniform(0.02, 0.2))
                continue
            if now is None or now.writer != to or now.epoch <= reign.epoch:
                raise Unavailable("somebody else changed who takes writes: look again")
            return Reign(now.epoch, to)

    def _until_joined(self, wanted: Reign) -> Reign:
        """Rounds until the new writer is open, and has a partner if the other master is up.

        Other stewards may do the same meanwhile, or begin another reign of the same writer: that
        one is returned. Raises Unavailable if it is not open in time, or writes go elsewhere.
        """
        end = self._clock() + DRAIN_SECONDS
        while True:
            report = self.round()
            seen = {one.name: one for one in report.servers}
            reign, other = report.reign, seen[self._other_name(wanted.writer)]
            if reign is not None and reign.epoch > wanted.epoch:
                if reign.writer != wanted.writer:
                    raise Unavailable(f"{reign.writer} has taken over since: look again")
                wanted = Reign(reign.epoch, reign.writer)
            opened = takes_writes(seen[wanted.writer], wanted)
            if opened and (reign is None or reign != wanted or not other.up):
                return wanted
            late = self._clock() - end
            if late > 0 or (opened and late > 5 * JOIN_SECONDS - DRAIN_SECONDS):
                if opened:
                    return wanted
                raise Unavailable(f"{wanted.writer} is not open yet: {'; '.join(report.notes)}")
            gevent.sleep(0.1)

    def _end(self, reign: Reign, to: str, *, lose: bool) -> None:
        """End a reign in order: no transaction runs, and ``to`` has fetched them all."""
        old, new = self._admins[reign.writer], self._admins[to]
        end = self._clock() + (JOIN_SECONDS if lose else DRAIN_SECONDS)
        while gtid.missing(_applied(new), _written(old)) > NEAR and self._clock() < end:
            gevent.sleep(0.2)
        old.set_fence(reign.epoch + 1, open_=False)
        target = _written(old)
        while not gtid.covers(_fetched(new), target):
            if self._clock() > end:
                if lose:
                    return
                raise Unavailable(
                    f"{to} does not catch up with {reign.writer}: brokers will open either again"
                )
            gevent.sleep(0.02)

    def enrol(self, name: str) -> None:
        """Give a server that was made anew (empty, or a copy of another) its vote.

        The value is first confirmed by a majority of the others, under a ballot above all that the
        server may have promised before it was lost. Raises NoMajority, InvalidConfig.
        """
        admin = self._admins.get(name)
        if admin is None:
            raise InvalidConfig([("server", f"{name} is no server of GREENCRAWL_STORE")])
        admin.probe()
        admin.prepare()
        admin.expel()
        self.register.change(lambda _: None)
        others = [one.vote for one in self._admins.values() if one is not admin]
        votes = [vote for vote in together(others) if isinstance(vote, Vote)]
        admin.enrol(max(votes, key=lambda vote: vote.accepted))

    def close(self) -> None:
        """Close all connections."""
        for admin in self._admins.values():
            admin.close()

    def _say(self, event: str, error: BaseException) -> None:
        """Log what repeats once a minute."""
        key = f"{event} {error}"
        if self._clock() - self._said.get(key, -60.0) >= 60.0:
            self._said = {key: self._clock()} if len(self._said) > 100 else self._said
            self._said[key] = self._clock()
            log.warning(event, error=str(error))


_POSITIONS = "gtid_binlog_pos", "gtid_slave_pos"


def _fetched(admin: Admin) -> dict[int, int]:
    """As far as a server has fetched, applied or not."""
    return gtid.parse(admin.slave().get("Gtid_IO_Pos", ""))


def _applied(admin: Admin) -> dict[int, int]:
    """As far as a server has applied or written itself."""
    return gtid.later(*map(gtid.parse, admin.variables(*_POSITIONS).values()))


def _written(admin: Admin) -> dict[int, int]:
    return gtid.parse(admin.variables("gtid_binlog_pos")["gtid_binlog_pos"])
