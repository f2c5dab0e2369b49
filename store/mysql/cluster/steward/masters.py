"""Puts a term into force on the two masters: one is opened, the other follows and acknowledges.

A change that another steward could undo is made under a lock of the server, after a majority has
confirmed the term. The next steward can repeat every step.
"""

from __future__ import annotations

import gevent

from greencrawl.schema.clock import Clock
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.log import logger
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.admin import ENDLESS_MS, Admin
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm
from greencrawl.store.mysql.cluster.steward.replication import (
    JOINED,
    nearly_caught_up,
    stray,
    takes_writes,
)
from greencrawl.store.mysql.cluster.steward.servers import Servers

log = logger("store")

DRAIN_SECONDS = 60.0
"""How long a pass waits for a server to apply what it has fetched."""
QUIET_SECONDS = 0.5
"""A server that has read all that it fetched, and applies nothing for this long, is finished."""
JOIN_SECONDS = 2.0
"""How long a new partner may take to acknowledge: commits wait for this long."""
FLUSHED = 3
"""Value of ``innodb_flush_log_at_trx_commit``: the engine syncs before the client gets an answer.

A server that restarts rolls back what only its binary log has (``init-rpl-role=SLAVE``).
"""


class Masters:
    """The two masters of ``servers``; time-outs are measured by ``clock``."""

    def __init__(self, servers: Servers, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock

    def settle(self, term: WriterTerm, writer: Observation, other: Observation) -> None:
        """Do one pass's work on the masters; ``writer`` is up. Raises NoMajority, Unavailable."""
        if not takes_writes(writer, term):
            # A restarted server takes writes under a new epoch. A hand-over has raised the epoch of
            # the server that it closed: such a server stays closed in this term.
            if not term.partner and writer.epoch <= term.epoch:
                self._open(term)
            return
        self._acknowledgement(term, writer)
        if other.up:
            self._other(term, writer, other)

    def _open(self, term: WriterTerm) -> None:
        """Let the writer of ``term`` take writes, as soon as it has applied what it fetched."""
        with self._servers.admins[term.writer].exclusively() as admin:
            if not self._servers.confirmed(term):
                return
            self._drain(admin)
            self._make_durable(admin)
            admin.set_global(gtid_domain_id=term.epoch)
            admin.execute(
                f"SET GLOBAL rpl_semi_sync_master_enabled = {'ON' if term.partner else 'OFF'}"
            )
            admin.set_fence(term.epoch, open_=True)
            if admin.fence() != (term.epoch, True):
                raise Unavailable(f"{admin.server} was closed since by another steward")
            admin.execute("SET GLOBAL read_only = OFF")
        log.warning("master_opened", server=term.writer, epoch=term.epoch)

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
                break  # it was restarted: nothing fetched is left to apply
            applied = admin.applied()
            if applied != last:
                last, since = applied, self._clock()
            if gtid.covers(applied, gtid.parse(row["Gtid_IO_Pos"])):
                break
            # The last transaction may be incomplete: no server has acknowledged it or ever will.
            idle = (row["Slave_SQL_Running_State"] or "").startswith("Slave has read all relay log")
            if idle and self._clock() - since >= QUIET_SECONDS and not admin.applies():
                break
            if self._clock() > end:
                raise Unavailable(f"{admin.server} still applies what it fetched")
            gevent.sleep(0.02)
        admin.stop_following()

    def _acknowledgement(self, term: WriterTerm, writer: Observation) -> None:
        """Let commits wait for the partner if there is one, and for nobody otherwise."""
        admin = self._servers.admins[term.writer]
        if term.partner and (not writer.asks_ack or writer.ack_timeout_ms != ENDLESS_MS):
            admin.set_global(rpl_semi_sync_master_timeout=ENDLESS_MS)
            admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        elif not term.partner and writer.asks_ack:
            with admin.exclusively() as held:
                if self._servers.confirmed(term):
                    held.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                    log.warning("commits_unacknowledged", server=term.writer)

    def _other(self, term: WriterTerm, writer: Observation, other: Observation) -> None:
        """Keep the other master closed and following; make it the partner when it acknowledges all
        commits.

        While it is the partner, its replication is never restarted. If it stops, transactions that
        it had fetched but not applied are lost, so it must become a partner again.
        """
        following = other.following
        closed = other.read_only and not other.open and other.epoch == term.epoch
        follows = following is not None and following.leader == writer.name
        if closed and (term.partner or (follows and following and not following.stopped)):
            ready = nearly_caught_up(writer, other) and not stray(term, writer, other)
            if ready and not term.partner:
                self._join(term, other)
            return
        with self._servers.admins[other.name].exclusively() as admin:
            if not self._servers.confirmed(term):  # it may have taken over since we looked
                return
            if other.open or other.epoch != term.epoch:
                # without effect while a commit hangs there
                admin.set_fence(term.epoch, open_=False)
            if not other.read_only:
                admin.execute("SET GLOBAL read_only = ON")
            if term.partner:
                return
            if follows:
                if following and following.stopped:
                    admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                    admin.execute("SET GLOBAL rpl_semi_sync_slave_enabled = ON")
                    admin.start_following()
            elif not self._surplus(term, other):
                admin.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                admin.execute("SET GLOBAL rpl_semi_sync_slave_enabled = ON")
                self._make_durable(admin)
                admin.follow(writer.server)
                log.info("replication_started", server=other.name, leader=writer.name)

    def _surplus(self, term: WriterTerm, other: Observation) -> int:
        """Return the transactions that ``other`` has and the writer has not; the writer is asked
        last."""
        has = self._servers.admins[other.name].applied()
        return gtid.missing(self._servers.admins[term.writer].applied(), has)

    def _join(self, term: WriterTerm, other: Observation) -> None:
        """Make ``other`` the partner, if it acknowledges at once."""
        admin = self._servers.admins[other.name]
        with self._servers.admins[term.writer].exclusively() as writer:
            if not self._servers.confirmed(term):
                return
            writer.set_global(rpl_semi_sync_master_timeout=ENDLESS_MS)
            writer.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")
            try:
                self._await_acknowledgement(admin, writer)
                admin.set_global(gtid_domain_id=JOINED + term.epoch)
                self._servers.change(term, WriterTerm(term.epoch, term.writer, other.name))
            except GreencrawlError:
                # The proposal may be half accepted: the confirmation finishes or ends it.
                if self._servers.confirmed(term):
                    writer.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                raise

    def _await_acknowledgement(self, admin: Admin, writer: Admin) -> None:
        """Wait until all commits so far are on the partner, and all later ones are acknowledged."""
        end = self._clock() + JOIN_SECONDS
        target: dict[int, int] | None = None
        while target is None or not gtid.covers(admin.fetched(), target):
            if self._clock() > end:
                raise Unavailable(f"{admin.server} does not acknowledge {writer.server} yet")
            [clients] = writer.status("Rpl_semi_sync_master_clients").values()
            if target is None and int(clients):
                target = writer.written()
            gevent.sleep(0.02)
