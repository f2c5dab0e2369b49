"""The steward's connection to one server: a connection of its own, with short time-outs.

Statements are MariaDB's (10.6 and later): GTID positions and semi-synchronous replication differ in
MySQL. A store on MySQL has one endpoint of a managed service, and needs no steward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pymysql
from gevent.lock import RLock
from pymysql.connections import Connection
from pymysql.cursors import Cursor, DictCursor

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.store.mysql.cluster import gtid, register
from greencrawl.store.mysql.cluster.register import Vote, WriterTerm
from greencrawl.store.mysql.cluster.topology import Server, Topology
from greencrawl.store.mysql.connection import Db, connect, is_gone, translate

T = TypeVar("T")

ANSWER_SECONDS = 2.0
"""A server that is silent for longer is away."""
AWAY_SECONDS = 5.0
"""How long a server that was away is not asked again, except by :meth:`Admin.probe`."""
ACT_SECONDS = 20.0
"""How long an action on a server may take under the lock: stopping a fetch from a dead server takes
seconds."""
SILENT_SECONDS = 4
"""A server gives up the connection to its leader if it hears nothing for this long.

The leader sends something every second. This time decides a takeover, so it must be short.
"""
APPLIERS = 8
"""Threads that apply what was fetched; one thread alone falls behind a writer with group
commits."""
ENDLESS_MS = 4_294_967_295
"""Time-out of semi-synchronous replication: a commit always waits for its acknowledgement."""

FENCE = """CREATE TABLE IF NOT EXISTS fence (
    only_row TINYINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    open TINYINT NOT NULL
) ENGINE=InnoDB"""

_POSITIONS = "gtid_binlog_pos", "gtid_slave_pos"
_CHANNEL_SAFE = re.compile(r"[^\x20-\x7e]|['\\]")


class Admin:
    """Calls on one server; each raises Unavailable if it is away, InvalidConfig if not allowed.

    Nothing that these calls write is replicated.
    """

    def __init__(
        self, topology: Topology, server: Server, *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._answer_seconds = answer_seconds
        self.topology = topology
        self.server = server
        self._connection: Connection[Cursor] | None = None
        self._one = RLock()
        self._away_until = 0.0
        self._away = ""
        self._bound = False
        """True if a series of calls on this connection must not continue on another connection."""

    def probe(self) -> None:
        """Ask the server again, though it was away a moment ago. Raises Unavailable if it still is.

        Otherwise several calls in a row would each wait for a silent server.
        """
        self._away_until = 0.0
        kept = self._connection is not None
        try:
            self.row("SELECT 1")
        except Unavailable as error:
            if not kept or "timed out" in str(error):
                raise
            self._away_until = 0.0  # the server was restarted: this connection was from before
            self.row("SELECT 1")

    def run(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` with a cursor in autocommit mode, one at a time."""
        if monotonic() < self._away_until:
            raise Unavailable(self._away)
        with self._one, self._translated():
            if self._connection is None:
                if self._bound:
                    raise Unavailable(f"{self.server}: the connection was lost")
                self._connection = connect(
                    self.topology, self.server, database=False, answer_seconds=self._answer_seconds
                )
                with self._connection.cursor() as db:
                    db.execute("SET SESSION sql_log_bin = 0, innodb_lock_wait_timeout = 1")
                    db.execute("SET SESSION lock_wait_timeout = 1")
            with self._connection.cursor() as db:
                return work(db)

    def execute(self, sql: str, *values: Any) -> None:
        """Run one statement without a result."""
        self.run(lambda db: db.execute(sql, values or None))

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query."""

        def ask(db: Db) -> tuple[Any, ...] | None:
            db.execute(sql, values or None)
            return db.fetchone()

        return self.run(ask)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            self.close()  # the server rolls back what was begun on this connection
            ours = translate(error, self.server)
            if ours is None:
                raise
            if is_gone(error):
                self._note(ours)
            raise ours from error
        except GreencrawlError as error:
            if self._connection is None:
                self._note(error)
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _note(self, error: GreencrawlError) -> None:
        if isinstance(error, Unavailable):
            self._away, self._away_until = str(error), monotonic() + AWAY_SECONDS

    @contextmanager
    def exclusively(self) -> Iterator[Admin]:
        """Keep the calls of other stewards out of a series of calls.

        The calls use a connection of their own, which holds the lock: when the connection is lost,
        the rest of the series raises. Raises Unavailable if another steward acts on the server now.
        """
        held = Admin(self.topology, self.server, answer_seconds=ACT_SECONDS)
        try:
            row = held.row("SELECT GET_LOCK(%s, 0)", f"steward of {self.topology.database}"[:64])
            if not row or row[0] != 1:
                raise Unavailable(f"another steward acts on {self.server}")
            held._bound = True
            yield held
        finally:
            held.close()

    def close(self) -> None:
        """Close the connection; a query that is under way raises Unavailable."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection._force_close()  # type: ignore[attr-defined]
        except RuntimeError:  # a greenlet reads from it and sees that its socket is closed
            connection._sock.close()  # type: ignore[attr-defined]

    def _table(self, name: str) -> str:
        return f"`{self.topology.database}`.{name}"

    # -- the vote, and the fence

    def prepare(self) -> None:
        """Make the database and the two tables that are not replicated."""
        name = self.topology.database
        self.execute(f"CREATE DATABASE IF NOT EXISTS `{name}` COLLATE utf8mb4_bin")
        self.execute(f"USE `{name}`")
        self.execute(register.TABLE)
        self.execute(FENCE)

    def enrol(self, vote: Vote) -> None:
        """Give a vote to a server that has none, or that has a copy of another server's vote."""
        text = register.term_text(vote.term) if vote.term else ""
        self.execute(
            f"INSERT IGNORE INTO {self._table('votes')} (server, promised, accepted, value) "
            "VALUES (@@server_id, %s, %s, %s)",
            vote.promised, vote.accepted, text,
        )  # fmt: skip

    def expel(self) -> None:
        """Delete the server's vote, or its copy of another server's vote."""
        self.execute(f"DELETE FROM {self._table('votes')}")

    def vote(self) -> Vote:
        """Return the server's vote.

        Raises Unavailable if the server has no vote: such a server must not be asked.
        """
        try:
            row = self.row(
                f"SELECT promised, accepted, value FROM {self._table('votes')} "
                "WHERE server = @@server_id"
            )
        except InvalidConfig as error:
            raise Unavailable(f"{self.server} has no vote: {error}") from error
        if row is None:
            raise Unavailable(f"{self.server} has no vote")
        return Vote(row[0], row[1], register.term_of(row[2]))

    def promise(self, ballot: int) -> Vote | None:
        """See :class:`greencrawl.store.mysql.cluster.register.Voter`."""

        def work(db: Db) -> Vote | None:
            db.execute("BEGIN")
            db.execute(
                f"SELECT promised, accepted, value FROM {self._table('votes')} "
                "WHERE server = @@server_id FOR UPDATE"
            )
            row = db.fetchone()
            if row is None or row[0] >= ballot:
                db.execute("ROLLBACK")
                return None
            db.execute(
                f"UPDATE {self._table('votes')} SET promised = %s WHERE server = @@server_id",
                (ballot,),
            )
            db.execute("COMMIT")
            return Vote(ballot, row[1], register.term_of(row[2]))

        return self.run(work)

    def accept(self, ballot: int, term: WriterTerm) -> bool:
        """See :class:`greencrawl.store.mysql.cluster.register.Voter`."""

        def work(db: Db) -> bool:
            changed = db.execute(
                f"UPDATE {self._table('votes')} SET promised = %s, accepted = %s, value = %s "
                "WHERE server = @@server_id AND promised <= %s",
                (ballot, ballot, register.term_text(term), ballot),
            )
            return bool(changed)

        return self.run(work)

    def set_fence(self, epoch: int, *, open_: bool) -> None:
        """Let this server take writes of ``epoch``, or no writes from now on.

        Nothing changes if a higher epoch is set there: a steward may have slept meanwhile. Waits
        for the transactions that run, and raises Unavailable if they do not end.
        """
        self.execute(
            f"INSERT INTO {self._table('fence')} (only_row, epoch, open) VALUES (1, %s, %s) "
            "ON DUPLICATE KEY UPDATE open = IF(VALUES(epoch) >= epoch, VALUES(open), open), "
            "epoch = GREATEST(epoch, VALUES(epoch))",
            epoch, open_,
        )  # fmt: skip

    def fence(self) -> tuple[int, bool]:
        """Return (epoch, open); (0, False) if there is no fence."""
        try:
            row = self.row(f"SELECT epoch, open FROM {self._table('fence')}")
        except InvalidConfig:
            return 0, False
        return (row[0], bool(row[1])) if row else (0, False)

    # -- replication

    def set_global(self, **values: int | str) -> None:
        """Run SET GLOBAL name = value for each."""
        for name, value in values.items():
            self.execute(f"SET GLOBAL {name} = %s", value)

    def variables(self, *names: str) -> dict[str, Any]:
        """Return global variables; a GTID position that is not set is ""."""
        row = self.row("SELECT " + ", ".join(f"@@global.{name}" for name in names))
        return dict(zip(names, row or (), strict=True))

    def status(self, like: str) -> dict[str, str]:
        """Return status variables whose names match a pattern."""

        def ask(db: Db) -> dict[str, str]:
            db.execute("SHOW GLOBAL STATUS LIKE %s", (like,))
            return {name.lower(): value for name, value in db.fetchall()}

        return self.run(ask)

    def slave(self) -> Mapping[str, Any]:
        """Return the row of SHOW SLAVE STATUS; empty for a server that follows nobody."""

        def ask(_: Db) -> Mapping[str, Any]:
            assert self._connection is not None
            with self._connection.cursor(DictCursor) as db:
                db.execute("SHOW SLAVE STATUS")
                row: Mapping[str, Any] | None = db.fetchone()
                return row or {}

        return self.run(ask)

    def fetched(self) -> dict[int, int]:
        """Return what this server has fetched, applied or not: domain → sequence number."""
        return gtid.parse(self.slave().get("Gtid_IO_Pos", ""))

    def applied(self) -> dict[int, int]:
        """Return what the server has applied or written itself: domain → sequence number."""
        return gtid.later(*map(gtid.parse, self.variables(*_POSITIONS).values()))

    def written(self) -> dict[int, int]:
        """Return the end of its binary log: domain → sequence number."""
        return gtid.parse(self.variables("gtid_binlog_pos")["gtid_binlog_pos"])

    def follow(self, leader: Server, *, until: str = "") -> None:
        """Fetch from ``leader`` from now on, beginning where this server is.

        With ``until``, a GTID position, it stops there.
        """
        account = self.topology.user, self.topology.password
        self.execute("STOP SLAVE")
        tls = f", MASTER_SSL_CA = '{_quoted(self.topology.ca)}'" if self.topology.ca else ""
        self.execute(
            f"CHANGE MASTER TO MASTER_HOST = '{_quoted(leader.host)}', "
            f"MASTER_PORT = {leader.port}, MASTER_USER = %s, MASTER_PASSWORD = %s, "
            "MASTER_USE_GTID = current_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1, "
            f"MASTER_SSL = {int(bool(tls))}{tls}",
            *account,
        )
        self.start_following(until)

    def start_following(self, until: str = "") -> None:
        """Continue where the server stopped."""
        if self.slave().get("Slave_SQL_Running") != "Yes":
            self.set_global(slave_parallel_threads=APPLIERS, slave_net_timeout=SILENT_SECONDS)
        self.execute(
            f"START SLAVE UNTIL master_gtid_pos = '{_quoted(until)}'" if until else "START SLAVE"
        )

    def stop_fetching(self) -> None:
        """Acknowledge nothing more; fetched transactions are still applied."""
        self.execute("STOP SLAVE IO_THREAD")

    def applies(self) -> bool:
        """Return whether any thread applies what was fetched."""
        row = self.row(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Slave_worker' "
            "AND state <> 'Waiting for work from SQL thread'"
        )
        return row is None or row[0] > 0

    def stop_following(self) -> None:
        """Forget the leader; call this when all is applied."""
        self.execute("STOP SLAVE")
        self.execute("RESET SLAVE ALL")


def _quoted(text: str) -> str:
    if _CHANNEL_SAFE.search(text):
        raise InvalidConfig([("GREENCRAWL_STORE", f"cannot be used by a server: {text!r}")])
    return text
