"""Two masters and three replicas on loopback, for ``make cluster`` and tests.

This module chooses their ports, passwords and accounts. It does not decide who takes writes: see
:mod:`greencrawl.store.mysql.cluster.steward.steward`.
"""

from __future__ import annotations

import random
import secrets
import signal
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import gevent
import pymysql
from msgspec import Struct
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from greencrawl.schema import wire
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.local.options import MASTER, PLAIN, REPLICA, Options
from greencrawl.store.mysql.cluster.local.server import STOP_SECONDS, LocalServer

PORTS = range(20_000, 32_000)
"""Ports below those of outgoing connections, so that a free port stays free."""

MASTERS, REPLICAS = ("m1", "m2"), ("r1", "r2", "r3")
NAMES = (*MASTERS, *REPLICAS)
DATABASE = "greencrawl"

STEWARD_PRIVILEGES = (
    "REPLICATION SLAVE, REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, SLAVE MONITOR, "
    "BINLOG MONITOR, BINLOG ADMIN, READ_ONLY ADMIN, CONNECTION ADMIN, RELOAD"
)
"""Privileges on ``*.*``, in addition to ALL on the database.

A steward needs them to let servers copy each other, to read the state, to set what commits wait
for, to keep its own rows out of the log, to open a server, and to end connections of others.
"""


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, all different."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise Unavailable("no free ports on loopback")


class Account(NamedTuple):
    """A user of the servers, from any address."""

    user: str
    password: str
    privileges: tuple[tuple[str, str], ...]
    """(privileges, what they are on)."""


class _Kept(Struct, frozen=True):
    ports: dict[str, int]
    passwords: dict[str, str]


class LocalCluster:
    """Five servers below ``folder``: m1 and m2 in a ring, r1 to r3.

    Ports and passwords are chosen when it is made, and kept in ``cluster.json``. ``options`` are
    additional options of all servers.
    """

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder.absolute()
        kept = self._kept()
        self.ports = kept.ports
        self._passwords = kept.passwords
        self.servers = {
            name: LocalServer(
                self.folder / name,
                self.ports[name],
                {
                    **PLAIN,
                    **(MASTER if name in MASTERS else REPLICA),
                    "server-id": str(number),
                    "gtid-domain-id": str(1_000_000 + number),
                    "report-host": name,
                    **(options or {}),
                },
            )
            for number, name in enumerate(NAMES, 1)
        }

    def _kept(self) -> _Kept:
        path = self.folder / "cluster.json"
        if path.exists():
            return wire.from_json(path.read_text(), _Kept)
        self.folder.mkdir(parents=True, exist_ok=True)
        made = _Kept(
            dict(zip(NAMES, free_ports(len(NAMES)), strict=True)),
            {who: secrets.token_hex(12) for who in ("root", DATABASE, "steward")},
        )
        path.touch(0o600)
        path.write_bytes(wire.to_json(made))
        return made

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Return the account of the application, and that of the steward, which may do all that the
        application may."""
        rights = ("ALL", f"`{DATABASE}`.*")
        return (
            Account(DATABASE, self._passwords[DATABASE], (rights,)),
            Account("steward", self._passwords["steward"], (rights, (STEWARD_PRIVILEGES, "*.*"))),
        )

    def url(self, addresses: Mapping[str, str] | None = None) -> str:
        """Return ``GREENCRAWL_STORE``; ``addresses`` replace those of some servers, for proxies."""
        at = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()} | {
            **(addresses or {})
        }
        masters = ",".join(at[name] for name in MASTERS)
        replicas = ",".join(at[name] for name in REPLICAS)
        password = self._passwords[DATABASE]
        return f"mysql://{DATABASE}:{password}@{masters}/{DATABASE}?replicas={replicas}"

    @property
    def steward(self) -> str:
        """Return ``GREENCRAWL_STORE_STEWARD``."""
        return f"steward:{self._passwords['steward']}"

    @property
    def root_password(self) -> str:
        """Return the password of root over the sockets."""
        return self._passwords["root"]

    def name_of(self, address: str) -> str:
        """Return the name, m1 … r3, of ``127.0.0.1:port``. Raises KeyError."""
        return {f"127.0.0.1:{port}": name for name, port in self.ports.items()}[address]

    def start(self, names: Iterable[str] = NAMES) -> None:
        """Start the servers that do not run; new servers get their accounts. Raises Unavailable."""
        for name in names:
            if self.servers[name].start() or not (self.folder / name / "ready").exists():
                self._make_accounts(name)

    def _make_accounts(self, name: str) -> None:
        """Make the accounts without logging them, so that each server has them by itself."""
        server = self.servers[name]
        try:
            connection = server.root()
        except pymysql.err.OperationalError:  # made before, but not recorded
            connection = server.root(self._passwords["root"])
        with connection, connection.cursor() as db:
            db.execute("SET SESSION sql_log_bin = 0")
            db.execute(
                "DELETE FROM mysql.global_priv "
                "WHERE User = '' OR (User = 'root' AND Host <> 'localhost')"
            )
            db.execute("FLUSH PRIVILEGES")
            for account in self.accounts:
                for what, where in account.privileges:
                    db.execute(
                        f"GRANT {what} ON {where} TO %s@'%%' IDENTIFIED BY %s",
                        (account.user, account.password),
                    )
            db.execute("SET PASSWORD FOR root@localhost = PASSWORD(%s)", (self.root_password,))
        (self.folder / name / "ready").touch()

    def root(self, name: str) -> Connection[Cursor]:
        """Open a connection as root to the server ``name``."""
        return self.servers[name].root(self._passwords["root"])

    def stop(self, names: Iterable[str] = NAMES) -> None:
        """Shut down the servers that run. A frozen server is thawed first."""
        servers = [self.servers[name] for name in names]
        for server in servers:
            server.thaw()
            server.send(signal.SIGTERM)
        for server in servers:
            _end(server)


def _end(server: LocalServer) -> None:
    """Shut down a server; kill a master whose commits wait for an acknowledgement, as it would not
    end.

    No client was told that such a commit succeeded; it is rolled back at the next start.
    """
    end = monotonic() + STOP_SECONDS / 4
    while server.pid is not None and monotonic() < end:
        gevent.sleep(0.02)
    server.kill()
