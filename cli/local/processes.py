"""Broker and worker as child processes of a command: started, restarted when they die, stopped.

A child has a session of its own, so Ctrl-C reaches only this process. So it can stop them in order:
workers first, while the broker still takes back what they hold.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
from gevent.event import Event

from greencrawl.schema import file_lock
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.process.child import end_of, spawn

START_SECONDS = 60.0
"""How long the broker may take to be ready; an embedded Redis may replay its log first."""

SAID_SECONDS = 3.0
"""If it takes longer, the last line of its log is shown."""

RESTARTS = 5
RESTARTS_WITHIN = 60.0
"""A child that dies more often than ``RESTARTS`` times in this many seconds ends the command."""

LOGGED = 800
"""At most this many characters of a log's last line are shown."""

BROKER_STOP_SECONDS = 20.0

REDIS = "embedded Redis"


class ProcessFailed(GreencrawlError):
    """Raised when a child ends at its start, or again and again; the message names its log."""


@contextmanager
def kept_port() -> Iterator[int]:
    """Keep a free port of loopback for our broker.

    On Linux no other process gets the port while the block runs, even if no broker listens yet, or
    if a broker is being restarted.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":  # elsewhere a broker cannot listen at a port that we hold
            holder.close()
        yield port


class Child:
    """A child process, ``python -m greencrawl.NAME``. ``log`` is its file; None: our own output."""

    def __init__(
        self,
        name: str,
        environ: Mapping[str, str],
        log: Path | None,
        orphaned: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = log
        self._orphaned = orphaned
        self._environ = dict(environ)
        self._deaths: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id of the last start, 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs or before it was
        started."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start the process. If our process dies first, the child gets the signal ``orphaned``."""
        if self.log is not None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
        with nullcontext() if self.log is None else self.log.open("ab") as output:
            self._process = spawn(
                (sys.executable, "-P", "-m", f"greencrawl.{self.name}"),
                environ=self._environ,
                output=output,
                orphaned=self._orphaned,
            )

    def restart_dead(self, clock: Clock = monotonic) -> str:
        """Start the process again if it has died; return how it ended, or "" if it lives.

        Raises :class:`ProcessFailed` when that happened too often.
        """
        if self.code is None:
            return ""
        now = clock()
        self._deaths = [then for then in self._deaths if now - then < RESTARTS_WITHIN] + [now]
        if len(self._deaths) > RESTARTS:
            raise ProcessFailed(self.end_text())
        death = self.end_text()
        self.start()
        return death

    def end_text(self) -> str:
        """Return how the process ended, and the last line of its log, in one line."""
        code = self.code
        if code is not None and code < 0:  # killed: its log says nothing about that
            return f"the {self.name} was ended by {end_of(code)}"
        text = f"the {self.name} ended with exit code {code}"
        return f"{text}{self.log_text()}"

    def log_text(self) -> str:
        """Return a colon, the last line of the log, and the name of its file; "" without a log."""
        return "" if self.log is None else f": {_last_line(self.log)} (log: {self.log})"

    def stop(self, seconds: float, impatient: Event) -> None:
        """Send SIGTERM, and SIGKILL to its whole session after ``seconds`` or once impatient."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        deadline = monotonic() + seconds
        while self.code is None and not impatient.is_set() and monotonic() < deadline:
            impatient.wait(0.05)
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def thaw(self) -> None:
        """Continue the process, and all that it has started, if they were stopped by SIGSTOP."""
        if self._process is not None and self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self.code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class Processes:
    """One broker and one worker.

    ``logs`` is the folder of their log files; with None they write to our own output.
    ``request_seconds`` is how long a worker may need to let its last requests end. ``redis`` is the
    file that an embedded Redis holds.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        logs: Path | None,
        request_seconds: float,
        redis: Path | None = None,
    ) -> None:
        self._redis = redis
        self.broker = Child("broker", environ, logs and logs / "broker.log")
        # When we are killed, the broker ends at once, but properly. Workers could not hand back to
        # it what they hold, and would keep the next command waiting while they tried.
        self.worker = Child("worker", environ, logs and logs / "worker.log", signal.SIGKILL)
        self._worker_stop_seconds = request_seconds + 10

    def start(
        self, ready: Callable[[], bool], stopping: Event, say: Callable[[str], object] = str
    ) -> None:
        """Start the broker, wait until it is ready (or ``stopping``), start the worker.

        If that takes long, ``say`` gets the last line of the broker's log. Raises
        :class:`ProcessFailed` when the broker ends or is not ready in time.
        """
        self.broker.start()
        began, said = monotonic(), False
        while not ready():
            if self.broker.code is not None:
                raise ProcessFailed(self.broker.end_text())
            waited = monotonic() - began
            if waited > START_SECONDS:
                log = self.broker.log_text()
                raise ProcessFailed(f"the broker was not ready in {START_SECONDS:g} s{log}")
            if waited > SAID_SECONDS and not said:
                said = True
                say(f"the broker is not ready yet{self.broker.log_text()}")
            if stopping.wait(0.05):
                return
        self.worker.start()

    def restart_dead(self) -> list[str]:
        """Restart dead processes; return a line for each. Raises :class:`ProcessFailed`."""
        return [death for child in (self.broker, self.worker) if (death := child.restart_dead())]

    def frozen(self) -> list[tuple[str, int]]:
        """Return names and ids of those of our processes that were stopped by SIGSTOP."""
        known = [(self.broker.name, self.broker.pid), (self.worker.name, self.worker.pid)]
        note = None if self._redis is None else file_lock.holder(self._redis)
        if note and note.isdigit():
            known.append((REDIS, int(note)))
        return [(name, pid) for name, pid in known if pid and _is_stopped(pid)]

    def stop(self, impatient: Event, between: Callable[[], None] = lambda: None) -> None:
        """Stop the workers, then the broker; at once when ``impatient`` is or becomes set.

        ``between`` is called when the workers have ended and the broker still answers. Frozen
        processes are continued first: they cannot end, and the others may wait for them.
        """
        for name, pid in self.frozen():
            if name == REDIS:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)
        self.broker.thaw()
        self.worker.thaw()
        self.worker.stop(self._worker_stop_seconds, impatient)
        try:
            if self.broker.code is None and self.broker.pid and not impatient.is_set():
                between()
        finally:
            self.broker.stop(BROKER_STOP_SECONDS, impatient)


def environment(base: Mapping[str, str], **settings: str) -> dict[str, str]:
    """Return ``base`` with settings (named like the variables, lower case, without prefix)
    added."""
    return {
        **base,
        **{f"GREENCRAWL_{name.upper()}": value for name, value in settings.items()},
        "PYTHONUNBUFFERED": "1",
    }


def frozen_text(frozen: Sequence[tuple[str, int]]) -> str:
    """Return the text about frozen processes; "" if there are none."""
    return "; ".join(
        f"the {name}, process {pid}, was stopped by somebody: `kill -CONT {pid}` continues it"
        for name, pid in frozen
    )


def _is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP holds a process; False if the system does not say (proc(5))."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    said = [line.strip() for line in lines if line.strip()]
    return _told(said[-1])[:LOGGED] if said else "it logged nothing"


def _told(line: str) -> str:
    """Return the message of a log line: for a JSON object its event, with the error or the reason
    if it has one."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return line
    error = entry.get("error") or entry.get("reason")
    return f"{entry.get('event', line)}: {error}" if error else str(entry.get("event", line))
