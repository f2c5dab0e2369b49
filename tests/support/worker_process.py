"""A worker's supervisor as a process of its own, with any program as its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from tests.support.checkout import ROOT
from tests.support.system import wait_until

_RUN = """
import sys
from greencrawl.schema import log
from greencrawl.schema.settings import load
from greencrawl.worker.process.supervisor import IdInUse, Supervisor
log.configure("worker", "info")
try:
    sys.exit(Supervisor(load(), command=sys.argv[1:]).run())
except IdInUse as error:
    sys.exit(str(error))
"""

CHILD = """
import os, signal, sys, time
from pathlib import Path
from greencrawl.schema.records import FailureKind
from greencrawl.schema.settings import load
from greencrawl.worker.process.crash_record import CrashRecord, Suspect
settings = load()
number = sys.argv[-1]
folder = settings.data / "worker"
record = CrashRecord(folder / f"{settings.worker_id}-{number}.crash")
page = Suspect("1/h", "00000000000000aa", 1, 1, "http://h/bad", 0, 0, 0)
with (settings.data / f"starts-{number}").open("a") as log:
    verdict = record.verdict()
    log.write(f"{os.getpid()} {verdict[0] if verdict else '-'}\\n")
first = len((settings.data / f"starts-{number}").read_text().splitlines()) == 1
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
record.clear()
"""
"""The beginning of a child's program: it logs its start with the verdict that it finds."""

BEAT = """
record.set_ready()
while True:
    record.beat()
    time.sleep(0.01)
"""


class SupervisorProcess:
    """A supervisor that is started on entering and stopped by its process id on leaving. Its
    children run ``program``."""

    def __init__(self, folder: Path, program: str, *, processes: int = 1, **settings: str) -> None:
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self._log = folder / "supervisor.log"
        script = folder / "child.py"
        script.write_text(CHILD + program)
        self._command = [sys.executable, str(script)]
        self._settings = {
            "DATA": str(self.data),
            "PROCESSES": str(processes),
            "WORKER_ID": "w",
            "REQUEST_SECONDS": "1",
            **{name.upper(): value for name, value in settings.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> SupervisorProcess:
        self.process = self.spawn()
        return self

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start a supervisor, perhaps a second one."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        environment |= {f"GREENCRAWL_{k}": v for k, v in self._settings.items()}
        environment["PYTHONPATH"] = str(ROOT / "src")
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *self._command],
            cwd=ROOT,
            env=environment,
            stderr=self._log.open("ab"),
        )

    def __enter__(self) -> SupervisorProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def starts(self, child: int = 0) -> list[tuple[int, str]]:
        """Return (pid, found verdict) of each start of a child."""
        path = self.data / f"starts-{child}"
        if not path.exists():
            return []
        lines = [line.split(" ", 1) for line in path.read_text().splitlines()]
        return [(int(pid), verdict) for pid, verdict in lines]

    def wait_starts(self, count: int, child: int = 0, seconds: float = 10.0) -> None:
        wait_until(lambda: len(self.starts(child)) >= count, seconds, f"{count} starts of a child")

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def wait(self, seconds: float = 10.0) -> int:
        """Return the supervisor's exit status."""
        assert self.process
        return self.process.wait(seconds)


def alive(pids: Sequence[int]) -> list[int]:
    """Return the running ones of these processes."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
