"""One MariaDB server on loopback, for ``make cluster`` and tests.

It lives in a folder of its own: ``my.cnf`` (an example for your own servers), ``data``, ``socket``,
``pid``, ``log``. It outlives the process that started it; it is stopped by the pid file.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import gevent
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.store.mysql.cluster.local.options import Options

START_SECONDS = 60.0
STOP_SECONDS = 60.0
SOCKET_PATH_BYTES = 107
"""The path of a Unix socket may have this many bytes."""

_NOT_FOUND = re.compile(r"^FATAL ERROR: Could not find (.*)$", re.MULTILINE)
"""The error of mariadb-install-db if a program or a file is missing."""


class Missing(GreencrawlError):
    """Raised when MariaDB, or a part of it, is not installed; the message says how to install
    it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not installed: apt-get install mariadb-server (10.6 or later), or "
            "brew install mariadb; no service of it needs to run"
        )


def program(name: str) -> str:
    """Return the path of one of MariaDB's programs. Raises Missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not found:
        raise Missing(name)
    return found


def _thread_states(pid: int | None) -> list[str]:
    """Return the state of each thread of a process, as in proc(5); none if the process is gone."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return states


def _as_root() -> Options:
    """Return the option with which the server runs as root, and needs no account of its own."""
    return {"user": "root"} if os.getuid() == 0 else {}


def template(folder: Path) -> Path:
    """Return an empty data folder to be copied, made once as ``folder/template``. Raises
    Missing."""
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
        if part := _NOT_FOUND.search(error.stdout):  # a part of another package
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

    ``stop()`` shuts it down, ``kill()`` uses SIGKILL; both keep the data. ``freeze()`` keeps the
    port open, but the server answers nothing until ``thaw()``.
    """

    def __init__(self, folder: Path, port: int, options: Options) -> None:
        self.folder = folder
        self.port = port
        self.options = dict(options)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """Return the path of the Unix socket on which it listens."""
        return self.folder / "socket"

    @property
    def pid(self) -> int | None:
        """Return the process id, None if the server does not run (or another process has that id
        now)."""
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
        """Start the server unless it runs, and wait until it answers; return whether its data
        folder is new.

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
        """Write ``my.cnf`` from ``options``; the server reads it when it starts."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        lines = {
            "datadir": str(self.folder / "data"),
            # in a shared folder, a server that starts deletes the files of other servers
            "tmpdir": str(scratch),
            "socket": str(self.socket),
            "pid-file": str(self.folder / "pid"),
            "port": str(self.port),
            **self.options,
            **_as_root(),
        }
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.folder / "my.cnf").write_text("[mariadbd]\n" + text)

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers. Raises Unavailable with the end of its log."""
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
        """Open a connection as root, over the socket, in autocommit mode."""
        return pymysql.connect(
            unix_socket=str(self.socket), user="root", password=password,
            autocommit=True, read_timeout=60, ssl_disabled=True,
        )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
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
        """Shut the server down: what runs is rolled back, and connections are closed."""
        self.kill(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop all the server's threads: it accepts connections and answers nothing.

        On Linux only. The kernel stops one thread after the other: on a busy machine some threads
        run on for milliseconds. Raises Unavailable if a thread still runs after
        :data:`STOP_SECONDS`.
        """
        self.send(signal.SIGSTOP)
        end = monotonic() + STOP_SECONDS
        while any(state != "T" for state in _thread_states(self.pid)):
            if monotonic() > end:
                raise Unavailable(f"MariaDB in {self.folder} does not stand still")
            gevent.sleep(0.005)

    def thaw(self) -> None:
        """Continue after :meth:`freeze`."""
        self.send(signal.SIGCONT)
