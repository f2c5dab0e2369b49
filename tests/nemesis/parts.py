"""The parts that can be harmed: each is a process that is killed, frozen and started by its id.

Several threads may call all methods: faults overlap. A part that was frozen twice goes on after two
thaws, or after a kill.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import redis

from tests.support.checkout import ROOT
from tests.support.faketime import library
from tests.support.mariadb import MariaDb
from tests.support.redis_server import binaries, free_port

HERE = ROOT
"""The project that contains the nemesis itself."""
START_SECONDS = 40.0
STOP_SECONDS = 15.0


class Part:
    """A process with its children; schedules and findings use ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.starts = 0
        self.ended: list[float] = []
        """The time at which it was found to have ended by itself, by ``time.monotonic()``."""
        self._process: subprocess.Popen[bytes] | None = None
        self._sink: subprocess.Popen[bytes] | None = None
        self._frozen = 0
        self._wanted = False

    # -- properties of a kind of part

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}

    def _folder(self) -> Path:
        raise NotImplementedError

    def _log(self) -> Path:
        raise NotImplementedError

    # -- life

    @property
    def pid(self) -> int | None:
        """Return the id of its process, None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the program unless it runs. Another process writes its log: so a full disk, or a
        limit of the program, harms its data but not its log."""
        with self.lock:
            self._wanted = True
            if self.pid is not None:
                return
            self._reap()
            self._frozen = 0
            with self._log().open("ab") as log:
                self._sink = subprocess.Popen(
                    ["cat"], stdin=subprocess.PIPE, stdout=log, start_new_session=True
                )
            assert self._sink.stdin is not None
            self._process = subprocess.Popen(
                list(self._command()),
                cwd=self._folder(),
                env=dict(self._environment()),
                stdin=subprocess.DEVNULL,
                stdout=self._sink.stdin,
                stderr=self._sink.stdin,
                start_new_session=True,
            )
            self._sink.stdin.close()
            self.starts += 1

    def revive(self) -> None:
        """Start the part again if it ended though nothing harmed it, as an init system would."""
        with self.lock:
            if self._wanted and self._process is not None and self._process.poll() is not None:
                self.ended.append(time.monotonic())
                self.start()

    def family(self) -> list[psutil.Process]:
        """Return the part's process and all descendants."""
        pid = self.pid
        if pid is None:
            return []
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(pid)
            return [top, *top.children(recursive=True)]
        return []

    def kill(self) -> None:
        """Send SIGKILL to all of it, as in a power cut."""
        with self.lock:
            self._wanted = False
            family = self.family()
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(family[1:], timeout=5)
            self._reap()
            self._frozen = 0

    def kill_child(self) -> None:
        """Send SIGKILL to one child, which its parent starts again."""
        with self.lock:
            for child in self.family()[1:2]:
                with suppress(psutil.NoSuchProcess):
                    child.kill()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to the rest."""
        with self.lock:
            self._wanted = False
            while self._frozen:
                self.thaw()
            if (pid := self.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                assert self._process is not None
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_SECONDS)
            self.kill()

    def freeze(self) -> None:
        """Send SIGSTOP to all of it."""
        self._signal_all(signal.SIGSTOP, +1)

    def thaw(self) -> None:
        """Take one freeze back."""
        self._signal_all(signal.SIGCONT, -1)

    def _signal_all(self, number: signal.Signals, change: int) -> None:
        with self.lock:
            if change < 0 and not self._frozen:
                return  # it was killed meanwhile
            self._frozen += change
            if change < 0 and self._frozen:
                return
            for one in self.family():
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(number)

    def resident_bytes(self) -> int:
        """Return the memory of its largest process."""
        sizes = [0]
        for one in self.family():
            with suppress(psutil.NoSuchProcess):
                sizes.append(one.memory_info().rss)
        return max(sizes)

    def _reap(self) -> None:
        for process in (self._process, self._sink):
            if process is not None:
                process.wait(STOP_SECONDS)


def started(root: Path, module: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a module of the project in ``root``, of any version."""
    name = f"greencrawl.{module}" if (root / "src" / "greencrawl").exists() else module
    return [sys.executable, "-m", name], {"PYTHONPATH": str(root / "src")}


class Product(Part):
    """A broker or a worker of the project in ``root``."""

    def __init__(
        self, name: str, module: str, root: Path, folder: Path, settings: Mapping[str, str]
    ) -> None:
        super().__init__(name)
        self.module, self.root, self.folder = module, root, folder
        self.settings = dict(settings)
        folder.mkdir(parents=True, exist_ok=True)

    def _command(self) -> Sequence[str]:
        return started(self.root, self.module)[0]

    def _environment(self) -> Mapping[str, str]:
        given = {f"GREENCRAWL_{name.upper()}": value for name, value in self.settings.items()}
        return {**super()._environment(), **started(self.root, self.module)[1], **given}

    def _folder(self) -> Path:
        return self.root

    def _log(self) -> Path:
        return self.folder / "log"


class RedisPart(Part):
    """A redis-server, with a clock that can be set if ``clocked``.

    libfaketime works only with the bundled server: with jemalloc, which Debian's uses, it hangs.
    """

    def __init__(self, name: str, folder: Path, binary: str, *, clocked: bool) -> None:
        super().__init__(name)
        self.folder, self.binary, self.clocked = folder, binary, clocked
        self.port = free_port()
        self.master_port = 0
        """The port of the proxy to its master; 0: it is a master itself."""
        self._appends = True
        self._written = True
        self._offset = folder.with_name(folder.name + ".clock")
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=2, decode_responses=True)

    def _command(self) -> Sequence[str]:
        given = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        given += ["--appendonly", "yes" if self._appends else "no", "--appendfsync", "everysec"]
        given += ["--save", "", "--repl-diskless-sync-delay", "0", "--repl-timeout", "10"]
        if self.master_port:
            given += ["--replicaof", "127.0.0.1", str(self.master_port)]
        return [self.binary, *given]

    def _environment(self) -> Mapping[str, str]:
        if not self.clocked:
            return super()._environment()
        if not self._offset.exists():
            self.set_clock(0)
        return {
            **super()._environment(),
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def _folder(self) -> Path:
        return self.folder

    def _log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    def set_clock(self, offset_seconds: float) -> None:
        """Let the server's wall clock be wrong by this much, within a second."""
        draft = self._offset.with_suffix(".draft")
        draft.write_text(f"{offset_seconds:+g}\n")
        draft.replace(self._offset)

    def until_up(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers. Raises redis.RedisError."""
        limit = time.monotonic() + seconds
        while True:
            try:
                self.client.ping()
            except redis.RedisError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)
            else:
                return

    def last_words(self) -> str:
        """Return the last line of its log, without its time."""
        lines = self._log().read_text("utf-8", "replace").splitlines() or [""]
        return lines[-1].partition(" # ")[2] or lines[-1]

    def lag_seconds(self) -> float:
        """Return for how long a replica has heard nothing from its master; for ever if it never
        caught up. Raises redis.RedisError."""
        told = self.client.info("replication")
        if told.get("master_link_status") != "up" and not self.client.dbsize():
            return math.inf
        names = ("master_last_io_seconds_ago", "master_link_down_since_seconds")
        return max((float(told.get(name, 0)) for name in names), default=0.0) + 1

    def copy(self, place: Path) -> bool:
        """Write a copy of its data as an RDB to ``place``; return False if it cannot do so now."""
        client = self.client
        try:
            before = client.lastsave()
            client.bgsave()
            for _ in range(100):
                time.sleep(0.1)
                told = client.info("persistence")
                if client.lastsave() != before or not told["rdb_bgsave_in_progress"]:
                    break
            else:
                return False
            if told["rdb_last_bgsave_status"] != "ok":  # its disk is full: the file is older
                return False
            shutil.copyfile(self.folder / "dump.rdb", place)
        except (redis.RedisError, OSError):
            return False
        return True

    def wipe(self) -> None:
        """Remove the server's data; it must not run."""
        for path in self.folder.iterdir():
            if path.name != "ballast":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def restore(self, place: Path) -> None:
        """Start the server, which must not run, with only the copy at ``place``."""
        with self.lock:
            self.wipe()
            shutil.copyfile(place, self.folder / "dump.rdb")
            self.start()

    def start(self) -> None:
        """Start the server unless it runs. If it has only a dump, start it without an append-only
        file: otherwise it would read an empty file instead of the dump. Then let it make such a
        file, and wait until the file is complete."""
        with self.lock:
            alone = (
                not list(self.folder.glob("appendonly*")) and (self.folder / "dump.rdb").exists()
            )
            self._appends = not alone
            super().start()
            limit = time.monotonic() + START_SECONDS
            while not self._appends and self.pid is not None and time.monotonic() < limit:
                try:
                    self.client.config_set("appendonly", "yes")
                except redis.RedisError:  # it is being loaded
                    time.sleep(0.05)
                else:
                    self._appends = True
            self._written = not alone
            while not self.written() and self.pid is not None and time.monotonic() < limit:
                time.sleep(0.05)

    def written(self) -> bool:
        """Return whether the server's append-only file has all of its data: if not, it would come
        back without them."""
        if not self._written:
            with suppress(redis.RedisError):
                told = self.client.info("persistence")
                busy = told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"]
                self._written = not busy and told["aof_last_bgrewrite_status"] == "ok"
        return self._written


class MariaPart(Part):
    """The MariaDB server of the store."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.server = MariaDb(folder)

    @property
    def pid(self) -> int | None:
        return self.server.pid

    def start(self) -> None:
        with self.lock:
            self._wanted = True
            self._frozen = 0
            self.server.start()
            self.starts += 1

    def revive(self) -> None:
        with self.lock:
            if self._wanted and self.pid is None:
                self.ended.append(time.monotonic())
                self.start()

    def _reap(self) -> None:
        self.server.kill()


def redis_binaries() -> tuple[str, str]:
    """Return the bundled server for node A, whose clock can be set; for node B the system's if
    there is one."""
    found = binaries()
    return found[0], found[-1]
