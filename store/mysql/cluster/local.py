"""Real MariaDB servers on loopback for ``make cluster`` and tests: two masters, three replicas.

Each server lives in a folder of its own: ``my.cnf`` (a pattern for servers of your own), ``data``,
``socket``, ``pid``, ``log``. Servers outlive the process that started them; they are stopped by the
pid file. Nothing here decides who takes writes: see :mod:`store.mysql.cluster.failover`.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
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
from greencrawl.schema.errors import GreencrawlError, Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 60.0
SOCKET_PATH_BYTES = 107
"""A Unix socket's path may be no longer."""
PORTS = range(20_000, 32_000)
"""Below the ports that outgoing connections are given: one that is free now stays free."""

_NOT_FOUND = re.compile(r"^FATAL ERROR: Could not find (.*)$", re.MULTILINE)
"""What mariadb-install-db says without a program or a file that it needs."""

Options = Mapping[str, str]

PLAIN: Options = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "64M",
    "max-allowed-packet": "64M",
    "performance-schema": "OFF",
}
"""A small server that takes the packets of a large page."""

LOGGED: Options = {
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "sync-binlog": "1",
    "gtid-strict-mode": "ON",
    "log-slave-updates": "ON",
    "slave-parallel-threads": "8",
    "slave-net-timeout": "4",
    "read-only": "ON",
    "expire-logs-days": "3",
}
"""What every server of a ring has: it writes what it copies into a log of its own, and takes no
writes until it is told to."""

MASTER: Options = {
    **LOGGED,
    "innodb-flush-log-at-trx-commit": "3",
    "rpl-semi-sync-master-enabled": "ON",
    "rpl-semi-sync-master-wait-point": "AFTER_SYNC",
    "rpl-semi-sync-master-wait-no-slave": "ON",
    "rpl-semi-sync-master-timeout": "4294967295",
    "rpl-semi-sync-slave-enabled": "ON",
    "skip-slave-start": "ON",
    "init-rpl-role": "SLAVE",
}
"""A commit waits in the log until the other master has it, for as long as that takes. A master that
was killed meanwhile rolls back, when it starts, what it alone has in its log: for that the engine
must have on disk what was acknowledged (``flush-log…=3``)."""

REPLICA: Options = {**LOGGED, "innodb-flush-log-at-trx-commit": "1"}

STEWARD_PRIVILEGES = (
    "REPLICATION SLAVE, REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, SLAVE MONITOR, "
    "BINLOG MONITOR, BINLOG ADMIN, READ_ONLY ADMIN, CONNECTION ADMIN, RELOAD"
)
"""On ``*.*``, beside ALL on the database: to copy and be copied, to look, to set what commits wait
for, to keep its own rows out of the log, to open a server, to end others' connections."""


class Missing(GreencrawlError):
    """Raised when MariaDB, or a part of it, is not installed here; says how to install it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not installed: apt-get install mariadb-server (10.6 or later), or "
            "brew install mariadb; no service of it needs to run"
        )


def program(name: str) -> str:
    """Path of a program of MariaDB's. Raises Missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not found:
        raise Missing(name)
    return found


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, all different."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise Unavailable("no free ports on loopback")


def _as_root() -> Options:
    """What root has to say so that the server runs as root; it needs no account of its own."""
    return {"user": "root"} if os.getuid() == 0 else {}


def template(folder: Path) -> Path:
    """An empty data folder, made once as ``folder/template``; copy it. Raises Missing."""
    data = folder / "template"
    if data.exists():
        return data
    made = folder / f"template.{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f"tmp.{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    try:
        subprocess.run(
            [program("mariadb-install-db"), "--no-defaults", f"--datadir={made}", "--skip-test-db",
             f"--tmpdir={scratch}",
             "--auth-root-authentication-method=normal",
             *(f"--{name}={value}" for name, value in _as_root().items())],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        shutil.rmtree(made, ignore_errors=True)
        if part := _NOT_FOUND.search(error.stdout):  # of a package beside the server's own
            raise Missing(part[1]) from error
        raise Unavailable(f"mariadb-install-db: {(error.stderr or error.stdout)[-500:]}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    with suppress(OSError):  # another process was faster
        made.rename(data)
    shutil.rmtree(made, ignore_errors=True)
    return data


class LocalServer:
    """One server in ``folder``, which need not exist yet; ``options`` go into its ``my.cnf``.

    ``stop()`` in order, ``kill()`` by SIGKILL; both keep the data. ``freeze()`` leaves the port
    open and answers nothing until ``thaw()``.
    """

    def __init__(self, folder: Path, port: int, options: Options) -> None:
        self.folder = folder
        self.port = port
        self.options = dict(options)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def pid(self) -> int | None:
        """Of its process, None if it does not run (or another process has that id now)."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            pid = int((self.folder / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        said = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)],
            check=False,
            capture_output=True,
            text=True,
        )
        return pid if str(self.folder / "my.cnf") in said.stdout else None

    def start(self) -> bool:
        """Start it unless it runs, and wait until it answers; whether its data folder is new.

        Raises Missing, Unavailable.
        """
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES:
            raise Unavailable(f"the path of {self.folder} is too long for a socket")
        data = self.folder / "data"
        new = not data.exists()
        if new:
            self.folder.mkdir(parents=True, exist_ok=True)
            copy = self.folder / "data.new"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(template(self.folder.parent), copy)
            copy.rename(data)
        if self.pid is None:
            self.write_config()
            with (self.folder / "log").open("ab") as log:
                self._child = subprocess.Popen(
                    [program("mariadbd"), f"--defaults-file={self.folder / 'my.cnf'}"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        self.wait()
        return new

    def write_config(self) -> None:
        """Write ``my.cnf`` as ``options`` are now; the server reads it when it starts."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        lines = {
            "datadir": str(self.folder / "data"),
            "tmpdir": str(scratch),  # a server that starts removes others' files from a shared one
            "socket": str(self.socket),
            "pid-file": str(self.folder / "pid"),
            "port": str(self.port),
            **self.options,
            **_as_root(),
        }
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.folder / "my.cnf").write_text("[mariadbd]\n" + text)

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Until it answers. Raises Unavailable with the end of its log."""
        end = monotonic() + seconds
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(1.0)
                    probe.connect(str(self.socket))
                    if probe.recv(1):
                        return
            except OSError:
                pass  # not yet
            if monotonic() > end or self.pid is None:
                log = (self.folder / "log").read_text(errors="replace")[-1500:]
                raise Unavailable(f"MariaDB in {self.folder} did not start:\n{log}")
            gevent.sleep(0.05)

    def root(self, password: str = "") -> Connection[Cursor]:
        """A connection as root, over the socket, in autocommit mode."""
        return pymysql.connect(
            unix_socket=str(self.socket), user="root", password=password,
            autocommit=True, read_timeout=60,
        )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        """A signal, if it runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait until the process is gone. Raises Unavailable if it stays."""
        self.send(how)
        end = monotonic() + STOP_SECONDS
        while self.pid is not None:
            if monotonic() > end:
                raise Unavailable(f"MariaDB in {self.folder} does not end")
            gevent.sleep(0.02)
        self._child = None

    def stop(self) -> None:
        """In order: what runs is rolled back, and connections are closed."""
        self.kill(signal.SIGTERM)

    def freeze(self) -> None:
        """It accepts connections, and answers nothing."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after :meth:`freeze`."""
        self.send(signal.SIGCONT)


class Account(NamedTuple):
    """A user of the servers, from any address."""

    user: str
    password: str
    privileges: tuple[tuple[str, str], ...]
    """(privileges, on what)."""


MASTERS, REPLICAS = ("m1", "m2"), ("r1", "r2", "r3")
NAMES = (*MASTERS, *REPLICAS)
DATABASE = "greencrawl"


class _Kept(Struct, frozen=True):
    ports: dict[str, int]
    passwords: dict[str, str]


class LocalCluster:
    """Five servers below ``folder``: m1, m2 in a ring, r1 to r3. Ports and passwords are chosen
    when it is made, and kept in ``cluster.json``. ``options`` are further ones of all servers.
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
        """The application's and the steward's. The latter may do all that the former may."""
        rights = ("ALL", f"`{DATABASE}`.*")
        return (
            Account(DATABASE, self._passwords[DATABASE], (rights,)),
            Account("steward", self._passwords["steward"], (rights, (STEWARD_PRIVILEGES, "*.*"))),
        )

    def url(self, addresses: Mapping[str, str] | None = None) -> str:
        """``GREENCRAWL_STORE``; ``addresses`` replace some servers' (a proxy before it)."""
        at = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()} | {
            **(addresses or {})
        }
        masters = ",".join(at[name] for name in MASTERS)
        replicas = ",".join(at[name] for name in REPLICAS)
        password = self._passwords[DATABASE]
        return f"mysql://{DATABASE}:{password}@{masters}/{DATABASE}?replicas={replicas}"

    @property
    def steward(self) -> str:
        """``GREENCRAWL_STORE_STEWARD``."""
        return f"steward:{self._passwords['steward']}"

    @property
    def root_password(self) -> str:
        """Of root, over the sockets."""
        return self._passwords["root"]

    def name_of(self, address: str) -> str:
        """m1 … r3 of ``127.0.0.1:port``. Raises KeyError."""
        return {f"127.0.0.1:{port}": name for name, port in self.ports.items()}[address]

    def start(self, names: Iterable[str] = NAMES) -> None:
        """Start those that do not run; new ones are given their accounts. Raises Unavailable."""
        for name in names:
            if self.servers[name].start() or not (self.folder / name / "ready").exists():
                self._make_accounts(name)

    def _make_accounts(self, name: str) -> None:
        """Not logged, so that each server has them from itself."""
        server = self.servers[name]
        try:
            connection = server.root()
        except pymysql.err.OperationalError:  # made before, but not noted
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
        """A connection as root to one of them."""
        return self.servers[name].root(self._passwords["root"])

    def stop(self, names: Iterable[str] = NAMES) -> None:
        """Stop in order those that run. A frozen one is thawed."""
        running = [self.servers[name] for name in names]
        for server in running:
            server.thaw()
            server.send(signal.SIGTERM)
        for server in running:
            _end(server)


def _end(server: LocalServer) -> None:
    """A master whose commits wait for an acknowledgement does not stop in order: it is killed.

    What waits was promised to nobody, and is rolled back at the next start.
    """
    end = monotonic() + STOP_SECONDS / 4
    while server.pid is not None and monotonic() < end:
        gevent.sleep(0.02)
    server.kill()
