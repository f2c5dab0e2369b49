"""One connection to a server, and the translation of its errors."""

from __future__ import annotations

import ssl
from typing import Any, ClassVar

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.store.mysql.cluster.topology import Server, Topology

Db = Cursor
"""The argument of work: a cursor of a connection, in or outside a transaction."""

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""Longer than a takeover: a commit that waits for an acknowledgement gets it after the takeover."""
LONG_SECONDS = 600.0
"""For statements over whole tables: changes of the schema, counts."""
LOCK_SECONDS = 5
"""How long a statement waits for a row that another transaction has locked."""

SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    f"innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}, "
    "foreign_key_checks = 0"
)
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""No gap locks: writers of neighbouring keys do not wait for each other."""

AGAIN = frozenset({1062, 1213})
"""A duplicate key after a race, or a deadlock: the same transaction succeeds at the next run."""

_CONFIG = {
    1044: "may not use the database",
    1045: "is refused: check user and password",
    1698: "is refused: check user and password",
    1049: "names a database that does not exist: CREATE DATABASE it",
    1130: "lets nobody in from this machine: check the account's host",
    1142: "lacks a privilege",
    1143: "lacks a privilege",
    1146: "has no tables of this version: run `greencrawl migrate`",
    1227: "lacks a privilege",
    4151: "has locked the account",
}
_DEFECT = frozenset({1054, 1060, 1061, 1064, 1091, 1136})
"""No server accepts the statement: this is our bug, and waiting does not help."""
_BAD_RECORD = frozenset({1153, 1264, 1366, 1367, 1406, 1292})


class _Connection(Connection):
    """A connection that shares one TLS context.

    pymysql makes a TLS context for each connection, even if no certificate is checked. For each it
    reads all of the machine's authorities: 20 ms of CPU, during which no greenlet runs.
    """

    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[misc,no-any-return]
        if _Connection._unverified is None:
            _Connection._unverified = super()._create_ssl_ctx({})  # type: ignore[misc]
        return _Connection._unverified


def connect(
    topology: Topology,
    server: Server,
    *,
    database: bool = True,
    answer_seconds: float = ANSWER_SECONDS,
) -> Connection[Cursor]:
    """Connect in autocommit mode. Raises Unavailable or InvalidConfig.

    A server that accepts and stays silent is away after ``answer_seconds``.
    """
    tls: dict[str, Any] = {}
    if topology.ca:
        tls = {
            "ssl_ca": topology.ca, "ssl_cert": topology.cert or None,
            "ssl_key": topology.key or None, "ssl_verify_cert": True, "ssl_verify_identity": True,
        }  # fmt: skip
    try:
        connection: Connection[Cursor] = _Connection(
            host=server.host,
            port=server.port,
            user=topology.user,
            password=topology.password,
            database=topology.database if database else None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=min(CONNECT_SECONDS, answer_seconds),
            read_timeout=answer_seconds,
            write_timeout=answer_seconds,
            max_allowed_packet=2**30,
            **tls,
        )
        with connection.cursor() as db:
            db.execute(SESSION)
            db.execute(ISOLATION)
    except (pymysql.MySQLError, OSError) as error:
        if topology.ca:
            _check_files(topology)
        raise (translate(error, server) or error) from error
    except RuntimeError as error:  # the login method needs a package that is missing
        what = f"{server}: cannot log in: {error}; or use TLS (?ca=FILE), which does without"
        raise InvalidConfig([("GREENCRAWL_STORE", what)]) from error
    return connection


def _check_files(topology: Topology) -> None:
    """Raise InvalidConfig if our own files are wrong: then no server would ever answer."""
    try:
        context = ssl.create_default_context(cafile=topology.ca)
        if topology.cert:
            context.load_cert_chain(topology.cert, topology.key)
    except OSError as error:  # ssl.SSLError is an OSError
        files = ", ".join(filter(None, (topology.ca, topology.cert, topology.key)))
        what = f"cannot use {files}: {error.strerror or error}"
        raise InvalidConfig([("GREENCRAWL_STORE", what)]) from error


def code_of(error: BaseException) -> int:
    """Return MySQL's number of an error, 0 for another kind."""
    number = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else 0
    return number if isinstance(number, int) else 0


def is_gone(error: BaseException) -> bool:
    """Return whether the server did not answer at all, rather than refusing something."""
    return isinstance(error, OSError) or (
        isinstance(error, pymysql.MySQLError) and (code_of(error) == 0 or code_of(error) >= 2000)
    )


def translate(error: Exception, server: Server) -> GreencrawlError | None:
    """Return what ``error`` means to a caller: Unavailable, InvalidConfig, or None (a bad record, a
    bug).

    An unknown error means that the server is away: a full disk, a lock held for too long, a
    shutdown, a lost connection.
    """
    code = code_of(error)
    if code in _CONFIG:
        return InvalidConfig([("GREENCRAWL_STORE", f"{server}: {_CONFIG[code]} ({_said(error)})")])
    if code in _BAD_RECORD | _DEFECT or isinstance(error, pymysql.ProgrammingError):
        return None
    if isinstance(error, pymysql.MySQLError | OSError):
        return Unavailable(f"{server}: {_said(error)}")
    return None


def _said(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__
