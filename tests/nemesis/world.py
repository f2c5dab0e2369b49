"""The whole system under the nemesis: processes, links between them, disks, targets.

Brokers ``b1``, ``b2``; workers ``w1`` … ``w3``; Redis nodes ``A`` and ``B``, each with two servers,
``A1`` and ``A2``, one a replica of the other; SQL, either a SQLite file or the part ``sql``. A link
is named by its ends, the client first: ``b1-A``, ``w2-b1``, ``w3-sql``, and ``replica-A`` from a
node's replica to its master.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import redis

from tests.nemesis import targets
from tests.nemesis.api import Api
from tests.nemesis.links import Links
from tests.nemesis.parts import HERE, MariaPart, Part, Product, RedisPart, redis_binaries, started
from tests.nemesis.reading import PARTITIONS, Sql
from tests.nemesis.site import SHARED_HOSTS, has_login
from tests.support.faketime import library
from tests.support.redis_server import free_port

BROKERS, WORKERS, NODES = ("b1", "b2"), ("w1", "w2", "w3"), ("A", "B")
REQUEST_SECONDS = 2.0
DISK_BYTES = 1 << 30
"""Size of each small disk, which is in memory and takes only what is used."""
REDIS_FREE_BYTES = 96 * 1024
"""The memory that a server has left at its limit."""

Store = Literal["sqlite", "mysql"]


class CannotRun(Exception):
    """Raised when the world cannot be started."""


class World:
    """``root`` is the project whose brokers and workers run. A context manager; ``start()``."""

    def __init__(self, folder: Path, root: Path, store: Store, lease_seconds: float) -> None:
        self.folder, self.root, self.store = folder, root, store
        self.lease_seconds = lease_seconds
        self.disks: list[Path] = []
        self.parts: dict[str, Part] = {}
        self.masters: dict[str, str] = {}
        self.replicas: dict[str, str] = {}
        self.notes: list[str] = []
        self.target_port = 0
        self.copies: dict[str, tuple[Path, float]] = {}
        """The last copy of each node, and when it was begun."""
        self._promoting: set[str] = set()
        self._twins: dict[str, Product] = {}
        self._ports: dict[str, int] = {}
        self._targets: subprocess.Popen[bytes] | None = None
        self._held: list[sqlite3.Connection] = []
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)
        self.links = Links()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for part in (*self._twins.values(), *reversed(list(self.parts.values()))):
            part.kill()
        self.links.stop()
        if self._targets is not None:
            self._targets.kill()
            self._targets.wait()
        for disk in self.disks:
            subprocess.run(["umount", "-l", str(disk)], check=False)

    # -- making it

    def start(self) -> None:
        """Raises CannotRun."""
        try:
            self._start_targets()
            self._start_redis()
            url = self._start_sql()
            self._start_product(url)
        except (OSError, redis.RedisError, subprocess.SubprocessError) as error:
            raise CannotRun(f"{error}\n{self.tails()}") from error

    def tails(self, lines: int = 8) -> str:
        """Return the ends of the product's logs."""
        said = []
        for name in (*BROKERS, *WORKERS):
            with suppress(OSError):
                text = (self.folder / name / "log").read_text(errors="replace")
                said.append(f"--- {name}\n" + "\n".join(text.splitlines()[-lines:]))
        return "\n".join(said)

    @property
    def target_log(self) -> Path:
        return self.folder / "targets.log"

    def _disk(self, name: str) -> Path:
        """Return a folder on a small disk of its own, if this machine lets us mount one."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        option = f"size={DISK_BYTES}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)],
            check=False,
            capture_output=True,
        )
        if done.returncode == 0:
            self.disks.append(place)
        elif not self.notes:
            self.notes.append("no disk can be mounted here: full disks are left out")
        return place

    def _start_targets(self) -> None:
        self._targets = subprocess.Popen(
            [sys.executable, "-m", "tests.nemesis.targets", str(self.target_log)],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._targets.stdout is not None
        self.target_port = int(self._targets.stdout.readline())

    def _start_redis(self) -> None:
        for node, binary in zip(NODES, redis_binaries(), strict=True):
            clocked = node == "A" and library() is not None
            if node == "A" and not clocked:
                self.notes.append("libfaketime is not installed: clock jumps are left out")
            for name in (f"{node}1", f"{node}2"):
                part = RedisPart(name, self._disk(name), binary, clocked=clocked)
                self.parts[name] = part
            self.masters[node], self.replicas[node] = f"{node}1", f"{node}2"
            master, replica = self.master(node), self.replica(node)
            self._ports[f"replica-{node}"] = self.links.open(f"replica-{node}", master.port)
            replica.master_port = self._ports[f"replica-{node}"]
            master.start()
            replica.start()
            master.until_up()
            replica.until_up()
            for client in (*BROKERS, *WORKERS):
                name = f"{client}-{node}"
                self._ports[name] = self.links.open(name, master.port)

    def _start_sql(self) -> str:
        """Start the store's server; return the URL of the store, without the link."""
        if self.store == "sqlite":
            return f"sqlite:///{self._disk('store') / 'content.sqlite'}"
        sql = MariaPart("sql", self.folder / "sql")
        self.parts["sql"] = sql
        sql.start()
        for client in (*BROKERS, *WORKERS):
            name = f"{client}-sql"
            self._ports[name] = self.links.open(name, sql.server.port)
        command, environment = started(self.root, "cli")
        done = subprocess.run(
            [*command, "migrate"],
            cwd=self.root,
            env={**os.environ, **environment, "GREENCRAWL_STORE": sql.server.url},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CannotRun(f"migrate: {done.stdout}{done.stderr}")
        return sql.server.url

    def store_url(self) -> str:
        """Return the URL of the store for the checker, which no cut concerns."""
        sql = self.parts.get("sql")
        if isinstance(sql, MariaPart):
            return sql.server.url
        return f"sqlite:///{self.folder / 'store' / 'content.sqlite'}"

    def sql(self) -> Sql:
        """Return a reader of the store."""
        return Sql(self.store_url())

    def _start_product(self, url: str) -> None:
        key = base64.b64encode(os.urandom(32)).decode()
        bound = {name: free_port() for name in BROKERS}
        common = {
            "allow_networks": "127.0.0.0/8",
            "lease_seconds": f"{self.lease_seconds:g}",
            "request_seconds": f"{REQUEST_SECONDS:g}",
            "stall_seconds": "20",
            "partitions": str(PARTITIONS),
            "log_level": "info",
        }
        for name in (*BROKERS, *WORKERS):
            reached = url
            if self.store == "mysql":
                port = str(self.parts["sql"].server.port)  # type: ignore[attr-defined]
                reached = url.replace(f":{port}/", f":{self._ports[name + '-sql']}/")
            nodes = ",".join(f"redis://127.0.0.1:{self._ports[f'{name}-{n}']}" for n in NODES)
            settings = {**common, "data": str(self.folder / name), "redis": nodes, "store": reached}
            if name in BROKERS:
                settings["bind"] = f"127.0.0.1:{bound[name]}"
            else:
                for broker in BROKERS:
                    link = f"{name}-{broker}"
                    self._ports[link] = self.links.open(link, bound[broker])
                mine = WORKERS.index(name)
                order = [BROKERS[(mine + i) % len(BROKERS)] for i in range(len(BROKERS))]
                settings |= {
                    "broker": ",".join(
                        f"http://127.0.0.1:{self._ports[f'{name}-{broker}']}" for broker in order
                    ),
                    "worker_id": name,
                    "processes": "1",
                    "greenlets": "16",
                    "session_key": key,
                }
                for host in filter(has_login, range(SHARED_HOSTS)):
                    settings[f"auth_site{host}_username"] = targets.NAME
                    settings[f"auth_site{host}_password"] = targets.PASSWORD
            for host in filter(has_login, range(SHARED_HOSTS)):
                settings[f"auth_site{host}_hosts"] = "*"
            module = "broker" if name in BROKERS else "worker"
            self.parts[name] = Product(name, module, self.root, self.folder / name, settings)
        self.api = Api({name: f"http://127.0.0.1:{port}" for name, port in bound.items()})
        for name in BROKERS:
            self.parts[name].start()
            if not self.api.until_ready(name, 60):
                raise CannotRun(f"broker {name} does not get ready\n{self.tails(20)}")
        for name in WORKERS:
            self.parts[name].start()

    # -- parts of faults

    def master(self, node: str) -> RedisPart:
        part = self.parts[self.masters[node]]
        assert isinstance(part, RedisPart)
        return part

    def replica(self, node: str) -> RedisPart:
        part = self.parts[self.replicas[node]]
        assert isinstance(part, RedisPart)
        return part

    def full(self, node: str) -> None:
        """Bring the node's server to its memory limit."""
        client = self.master(node).client
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used + REDIS_FREE_BYTES)

    def roomy(self, node: str) -> None:
        """Remove the memory limit."""
        for part in (self.master(node), self.replica(node)):
            with suppress(redis.RedisError):
                part.client.config_set("maxmemory", 0)

    def fill_disk(self, place: Path) -> None:
        """Leave no free byte on a small disk."""
        try:
            with (place / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(b"\0" * (1 << 20))
        except OSError:
            pass  # full
        with suppress(OSError), (place / "ballast2").open("wb", buffering=0) as ballast:
            while ballast.write(b"\0" * 4096):
                pass

    @staticmethod
    def clear_disk(place: Path) -> None:
        """Remove the ballast."""
        for name in ("ballast", "ballast2"):
            (place / name).unlink(missing_ok=True)

    @property
    def sqlite(self) -> Path:
        """Return the file of the store, if that is SQLite."""
        return self.folder / "store" / "content.sqlite"

    @contextmanager
    def sql_locked(self) -> Iterator[None]:
        """Let nobody write to SQLite meanwhile."""
        with closing(sqlite3.connect(self.sqlite, timeout=10, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                db.execute("ROLLBACK")

    @contextmanager
    def twin(self, name: str) -> Iterator[None]:
        """Start a worker again, and at the same moment one from a copy of its folder. Afterwards
        the copy is stopped, and the original is started again, since the copy may have its name."""
        part = self.parts[name]
        assert isinstance(part, Product)
        folder = self.folder / f"{name}-twin"
        settings = {**part.settings, "data": str(folder)}
        copy = Product(f"{name}-twin", part.module, self.root, folder, settings)
        if self._twins.setdefault(name, copy) is not copy:
            raise OSError("it has a twin")
        try:
            part.kill()
            shutil.rmtree(folder)
            shutil.copytree(part.folder, folder)
            part.start()
            copy.start()
            yield
        finally:
            copy.stop()
            part.kill()
            part.start()
            del self._twins[name]

    def promote(self, node: str, minority: list[str]) -> tuple[RedisPart, float]:
        """Make the node's replica its master for all but ``minority``; return the old master, and
        when the replica heard from it last.

        Raises OSError while an earlier promotion has not ended.
        """
        with self._lock:
            if node in self._promoting:
                raise OSError("the old master of an earlier promotion has not joined yet")
            self._promoting.add(node)
            old, new = self.master(node), self.replica(node)
            try:
                new.start()
                new.until_up(10)
                heard = now() - new.lag_seconds()
                new.client.execute_command("REPLICAOF", "NO", "ONE")
            except redis.RedisError:
                self._promoting.discard(node)
                raise
            new.master_port = 0
            self.masters[node], self.replicas[node] = new.name, old.name
            for client in (*BROKERS, *WORKERS):
                if client not in minority:
                    self.links.point(f"{client}-{node}", new.port)
            return old, heard

    def rejoin(self, node: str, old: RedisPart) -> None:
        """Make the old master the replica of the present one, and lead everybody there."""
        with self._lock:
            old.kill()
            master = self.master(node)
            self.links.point(f"replica-{node}", master.port)
            for client in (*BROKERS, *WORKERS):
                self.links.point(f"{client}-{node}", master.port)
            old.wipe()
            old.master_port = self._ports[f"replica-{node}"]
            old.start()
            self._promoting.discard(node)

    def heal(self) -> None:
        """Heal everything that is harmed; this may be done twice."""
        self.links.mend_all()
        for disk in self.disks:
            self.clear_disk(disk)
        for part in self.parts.values():
            while part._frozen:
                part.thaw()
            part.start()
        for node in NODES:
            self.roomy(node)

    def revive(self) -> None:
        """Start parts that ended by themselves."""
        for part in list(self.parts.values()):
            if isinstance(part, Product):
                part.revive()


def raise_at_signals() -> None:
    """Raise KeyboardInterrupt in the main thread at SIGTERM and SIGINT, once; later signals are
    ignored while processes are stopped."""

    def handler(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)


def now() -> float:
    """Return seconds by the clock of the targets' log."""
    return time.monotonic()
