"""One server as the steward sees and handles it: a connection of its own, short time-outs.

Statements are MariaDB's (10.6 and later): GTID positions and semi-synchronous replication differ in
MySQL, where one endpoint of a managed service needs no steward.
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
"""A server that is silent for longer counts as away."""
AWAY_SECONDS = 5.0
"""For so long a server that was away is not asked again, but by who looks at it."""
ACT_SECONDS = 20.0
"""What is done on a server under the lock may take longer: to stop fetching takes seconds where the
one that is fetched from is dead."""
SILENT_SECONDS = 4
"""A server that hears nothing from its leader, which says something every second, for so long takes
the connection for lost. It decides a takeover, so it must be short."""
APPLIERS = 8
"""Threads that apply what was fetched; one alone falls behind a writer that commits in groups."""
ENDLESS_MS = 4_294_967_295
"""Semi-synchronous time-out: a commit waits for its acknowledgement, whatever it takes."""

FENCE = """CREATE TABLE IF NOT EXISTS fence (
    only_row TINYINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    open TINYINT NOT NULL
) ENGINE=InnoDB"""

_POSITIONS = "gtid_binlog_pos", "gtid_slave_pos"
_CHANNEL_SAFE = re.compile(r"[^\x20-\x7e]|['\\]")


class Admin:
    """Calls on one server; each raises Unavailable if it is away, InvalidConfig if not allowed.

    Nothing that is written here is replicated.
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
        """Whether what was begun on this connection must not go on over another."""

    def probe(self) -> None:
        """Ask the server again, though it was away a moment ago. Raises Unavailable if it still is.

        Several calls in a row would else wait for a silent server one after the other.
        """
        self._away_until = 0.0
        kept = self._connection is not None
        try:
            self.row("SELECT 1")
        except Unavailable as error:
            if not kept or "timed out" in str(error):
                raise
            self._away_until = 0.0  # it was started anew: the connection was of its life before
            self.row("SELECT 1")

    def run(self, work: Callable[[Db], T]) -> T:
        """``work`` with a cursor in autocommit mode, one at a time."""
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
        """One statement without a result."""
        self.run(lambda db: db.execute(sql, values or None))

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a question."""

        def ask(db: Db) -> tuple[Any, ...] | None:
            db.execute(sql, values or None)
            return db.fetchone()

        return self.run(ask)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            self.close()  # whatever was begun on it is rolled back
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
        """Calls that no other steward's come between. Raises Unavailable if one acts there now.

        They go over a connection of their own, which the lock goes with: when it is lost, the rest
        of what was to be done raises.
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
        """Close the connection; a question that is under way raises Unavailable."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection._force_close()  # type: ignore[attr-defined]
        except RuntimeError:  # a greenlet reads from it, and is told by its socket
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
        """Give a server that has no vote, or a copy of another's, its own."""
        text = register.term_text(vote.term) if vote.term else ""
        self.execute(
            f"INSERT IGNORE INTO {self._table('votes')} (server, promised, accepted, value) "
            "VALUES (@@server_id, %s, %s, %s)",
            vote.promised, vote.accepted, text,
        )  # fmt: skip

    def expel(self) -> None:
        """Take its vote away, or the copy of another's."""
        self.execute(f"DELETE FROM {self._table('votes')}")

    def vote(self) -> Vote:
        """Raises Unavailable for a server that has none: it must not be asked."""
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
        """Let this server take writes of ``epoch``, or none from now on.

        Changes nothing once a higher epoch stands there: a steward may have slept meanwhile. Waits
        for the transactions that run, and raises Unavailable if they do not end.
        """
        self.execute(
            f"INSERT INTO {self._table('fence')} (only_row, epoch, open) VALUES (1, %s, %s) "
            "ON DUPLICATE KEY UPDATE open = IF(VALUES(epoch) >= epoch, VALUES(open), open), "
            "epoch = GREATEST(epoch, VALUES(epoch))",
            epoch, open_,
        )  # fmt: skip

    def fence(self) -> tuple[int, bool]:
        """(epoch, open); (0, False) for none."""
        try:
            row = self.row(f"SELECT epoch, open FROM {self._table('fence')}")
        except InvalidConfig:
            return 0, False
        return (row[0], bool(row[1])) if row else (0, False)

    # -- replication

    def set_global(self, **values: int | str) -> None:
        """SET GLOBAL name = value, for each."""
        for name, value in values.items():
            self.execute(f"SET GLOBAL {name} = %s", value)

    def variables(self, *names: str) -> dict[str, Any]:
        """Global variables; a position without a name of its own is ""."""
        row = self.row("SELECT " + ", ".join(f"@@global.{name}" for name in names))
        return dict(zip(names, row or (), strict=True))

    def status(self, like: str) -> dict[str, str]:
        """Status variables by the names' pattern."""

        def ask(db: Db) -> dict[str, str]:
            db.execute("SHOW GLOBAL STATUS LIKE %s", (like,))
            return {name.lower(): value for name, value in db.fetchall()}

        return self.run(ask)

    def slave(self) -> Mapping[str, Any]:
        """The row of SHOW SLAVE STATUS; empty for a server that follows nobody."""

        def ask(_: Db) -> Mapping[str, Any]:
            assert self._connection is not None
            with self._connection.cursor(DictCursor) as db:
                db.execute("SHOW SLAVE STATUS")
                row: Mapping[str, Any] | None = db.fetchone()
                return row or {}

        return self.run(ask)

    def fetched(self) -> dict[int, int]:
        """As far as this server has fetched, applied or not: domain → sequence number."""
        return gtid.parse(self.slave().get("Gtid_IO_Pos", ""))

    def applied(self) -> dict[int, int]:
        """As far as it has applied or written itself: domain → sequence number."""
        return gtid.later(*map(gtid.parse, self.variables(*_POSITIONS).values()))

    def written(self) -> dict[int, int]:
        """As far as its binary log goes: domain → sequence number."""
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
        """Go on where it stopped."""
        if self.slave().get("Slave_SQL_Running") != "Yes":
            self.set_global(slave_parallel_threads=APPLIERS, slave_net_timeout=SILENT_SECONDS)
        self.execute(
            f"START SLAVE UNTIL master_gtid_pos = '{_quoted(until)}'" if until else "START SLAVE"
        )

    def stop_fetching(self) -> None:
        """Acknowledge nothing more; what was fetched is applied all the same."""
        self.execute("STOP SLAVE IO_THREAD")

    def applies(self) -> bool:
        """Whether any thread is busy with what was fetched."""
        row = self.row(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Slave_worker' "
            "AND state <> 'Waiting for work from SQL thread'"
        )
        return row is None or row[0] > 0

    def stop_following(self) -> None:
        """Forget whom it followed; to be called when all is applied."""
        self.execute("STOP SLAVE")
        self.execute("RESET SLAVE ALL")


def _quoted(text: str) -> str:
    if _CHANNEL_SAFE.search(text):
        raise InvalidConfig([("GREENCRAWL_STORE", f"cannot be used by a server: {text!r}")])
    return text
