"""The parent of a worker's processes: it starts them, watches them, and never crawls itself.

Life of a child: started → ready (it has reconciled with a broker) → gone. If the page that it was
reading is known from its crash record, it is started again at once, and charges that page alone;
else after a back-off. A child whose hub stood still for ``stall_seconds`` is killed and treated
likewise. Time for which the supervisor itself stood still does not count: the cause (a signal to
all, a container's freezer) may have frozen all of them. Children that die again and again before
they are ready are given up, with the reason on the last line of the log. A child cannot outlive its
parent: the kernel kills it.

There are no greenlets here: one thread sleeps in ``sigtimedwait``.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from greencrawl.schema.errors import NO_ROOM, GreencrawlError
from greencrawl.schema.log import Trouble, logger, set_level
from greencrawl.schema.process.child import end, end_of, spawn, stop
from greencrawl.schema.records import FailureKind
from greencrawl.schema.settings import Settings
from greencrawl.worker.metrics import table, tallies
from greencrawl.worker.metrics.exporter import Exporter
from greencrawl.worker.orders.kept import OrdersFile
from greencrawl.worker.orders.options import processes
from greencrawl.worker.process.crash_record import CrashRecord

EX_CONFIG = 78
"""Exit status of a child that must not be started again: its settings or hooks are wrong."""
EX_NO_ROOM = 74
"""Exit status of a child that found its disk full: it is started again until there is room."""

MAX_FALSE_STARTS = 5
"""After this many deaths in a row before ready, the supervisor gives up."""

_BACKOFF_SECONDS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)
_LOCK_SECONDS = 3.0
_DISK_CHECK_SECONDS = 1.0
_START_SECONDS = 120.0
_KEPT_PIECES = "glibc.malloc.tcache_count=1000"
_WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_STARTS, _PROCESS_ID = table.SLOT["process_starts"], table.SLOT["process_id"]
_DEATHS = table.by_label("process_deaths")

log = logger("supervisor")


class IdInUse(GreencrawlError):
    """Raised at start when another supervisor on this data folder has the same worker id."""


def folder(settings: Settings) -> Path:
    """Return where a worker keeps locks, incarnations and shared pages."""
    return settings.data / "worker"


def lock_id(settings: Settings, patience_seconds: float = _LOCK_SECONDS) -> int:
    """Take the lock on this worker's id; return the descriptor that holds it.

    Children inherit it, so that the id is free only when the last of them is gone. Some seconds of
    patience let the children of a killed supervisor die. Raises IdInUse.
    """
    path = folder(settings) / f"{settings.worker_id}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() < until:
                signal.sigtimedwait([], 0.05)
                continue
            os.close(descriptor)
            raise IdInUse(
                f"another worker with id {settings.worker_id!r} uses {settings.data};"
                " set GREENCRAWL_WORKER_ID or GREENCRAWL_DATA"
                " (honcho takes them from .env, if it has them, not from the environment)"
            ) from None
        return descriptor


@dataclass
class Child:
    """One worker process, over all its lives. Times are ``time.monotonic()`` seconds."""

    number: int
    crash_record: CrashRecord
    tallies: tallies.Tallies = field(default_factory=tallies.Tallies)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    beats: int = 0
    last_beat: float = 0.0
    false_starts: int = 0
    deaths: int = 0
    died: float = 0.0
    """When the last process was found dead; 0: there was none yet."""
    start_at: float = 0.0
    leaving_since: float | None = None
    """When it was told to end, since fewer processes are wanted."""
    cause: FailureKind = field(default=FailureKind.PROCESS_DEATH)


class Supervisor:
    """Runs ``processes`` children until it is told to stop. See the module's docstring."""

    def __init__(
        self,
        settings: Settings,
        *,
        command: Sequence[str] = (sys.executable, "-P", "-m", "greencrawl.worker", "--child"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._clock = clock
        self._grace = settings.request_seconds + 15.0
        self._look = min(1.0, settings.stall_seconds / 4)
        self._looked_at = clock()
        self._lock = -1
        self._orders = OrdersFile(folder(settings) / f"{settings.worker_id}.orders")
        self._wanted = 0
        self._children: list[Child] = []
        self._exporter: Exporter | None = None
        self._disk = Trouble(log, "disk_space_exhausted", "disk_space_regained", clock=clock)
        self._disk_check_at = 0.0
        self._stopping_since: float | None = None
        self._status = 0

    def run(self) -> int:
        """Supervise until SIGTERM or SIGINT; return the exit status.

        The first signal lets children finish the pages in flight, for at most the longest request
        and some seconds. A second one, or the end of that grace, kills them. Raises IdInUse,
        InvalidConfig.
        """
        self._lock = lock_id(self._settings)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            self._serve_metrics()
            self._follow()
            while any(child.process for child in self._children) or self._stopping_since is None:
                self._wait()
                self._look_after()
        finally:
            self._kill_all()
            if self._exporter is not None:
                self._exporter.close()
            os.close(self._lock)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        if self._status:
            log.error("children_not_started", advice="the lines above say why")
        return self._status

    def _serve_metrics(self) -> None:
        """Serve metrics from now on, if wanted. Counts of earlier supervisors are deleted."""
        place = folder(self._settings)
        for path in tallies.files_of(place, self._settings.worker_id).values():
            path.unlink()
        if self._settings.metrics_bind is not None:
            self._exporter = Exporter(self._settings, self._lock, self._clock)
            self._exporter.look()

    def _child(self, number: int) -> Child:
        """Return a child that is about to be started; its counters continue from an earlier one."""
        place, worker = folder(self._settings), self._settings.worker_id
        child = Child(number, CrashRecord(place / f"{worker}-{number}.crash"))
        if self._settings.metrics_bind is not None:
            file = tallies.file_of(place, worker, number)
            child.tallies = tallies.attach(file) or tallies.create(file)
        return child

    def _child_if_room(self, number: int) -> Child | None:
        """Return a child that is about to be started; None while the disk is full: the other
        children go on, and a later look tries again."""
        if self._clock() < self._disk_check_at:
            return None
        try:
            child = self._child(number)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._disk_check_at = self._clock() + _DISK_CHECK_SECONDS
            self._disk.failed(
                child=number,
                data=str(self._settings.data),
                reason=str(error),
                advice="make room there; the worker tries again every second",
            )
            return None
        self._disk.done(child=number)
        return child

    # -- signals

    def _wait(self) -> None:
        absent = [child.start_at for child in self._children if child.process is None]
        until_start = min(absent, default=inf) - self._clock()
        received = signal.sigtimedwait(_WATCHED, max(0.0, min(self._look, until_start)))
        # After a freeze that is longer than the wait, CPython returns a record without values.
        if received is None or received.si_signo not in (signal.SIGTERM, signal.SIGINT):
            return
        if self._stopping_since is None:
            log.info("stop_started", grace_seconds=self._grace)
            self._stop(0)
        elif self._clock() - self._stopping_since > 0.5:  # Ctrl-C reaches a terminal's group twice
            log.warning("children_killed", reason="a second signal came")
            self._kill_all()

    def _stop(self, status: int) -> None:
        self._stopping_since = self._clock()
        self._status = status
        for child in self._children:
            child.start_at = inf
            stop(child.process)

    def _kill_all(self) -> None:
        for child in self._children:
            end(child.process)
            child.process = None

    # -- children

    def _follow(self) -> None:
        """Have as many children as are ordered; those of the highest numbers are ended."""
        options = self._orders.read().options
        set_level(options.log_level or self._settings.log_level)
        self._wanted = processes(self._settings, options)
        for child in self._children:
            if child.number >= self._wanted and child.leaving_since is None:
                log.info("child_stop_started", child=child.number, wanted=self._wanted)
                child.leaving_since, child.start_at = self._clock(), inf
                stop(child.process)
        self._children = [
            child
            for child in self._children
            if child.process is not None or child.number < self._wanted
        ]
        for number in sorted(set(range(self._wanted)) - {one.number for one in self._children}):
            added = self._child_if_room(number)
            if added is None:
                break
            self._children.append(added)
            self._start(added)

    def _look_after(self) -> None:
        now = self._clock()
        if self._stopping_since is None:
            self._follow()
        self._allow_for_delay(now - self._looked_at - self._look)
        self._looked_at = now
        for child in self._children:
            if child.process is None:
                if now >= child.start_at and self._stopping_since is None:
                    self._start(child)
            elif child.process.poll() is not None:
                self._after_death(child)
            else:
                self._check_beats(child, now)
                self._check_leaving(child, now)
        if self._exporter is not None:
            self._exporter.look()
        if self._stopping_since is not None and now - self._stopping_since > self._grace:
            log.warning("children_killed", grace_seconds=self._grace)
            self._kill_all()

    def _allow_for_delay(self, late_seconds: float) -> None:
        """Give the children more time: the supervisor is late, and they may be as well."""
        if late_seconds <= self._look:
            return
        for child in self._children:
            child.last_beat += late_seconds
            if child.leaving_since is not None:
                child.leaving_since += late_seconds
        if self._stopping_since is not None:
            self._stopping_since += late_seconds

    def _start(self, child: Child) -> None:
        child.crash_record.rearm(child.died)
        command = (*self._command, str(child.number))
        child.process = spawn(command, environ=_environment(), keep=(self._lock,))
        child.cause = FailureKind.PROCESS_DEATH
        child.started = child.last_beat = self._clock()
        child.beats = 0
        child.tallies.add(_STARTS)
        child.tallies.set(_PROCESS_ID, child.process.pid)
        log.info("child_started", child=child.number, pid=child.process.pid)

    def _check_beats(self, child: Child, now: float) -> None:
        """Kill a child whose hub hangs; one that is still importing has more time."""
        assert child.process
        beats = child.crash_record.beats
        if beats != child.beats:
            child.beats, child.last_beat = beats, now
            return
        allowed = self._settings.stall_seconds if beats else _START_SECONDS
        if now - child.last_beat <= allowed:
            return
        suspect = child.crash_record.suspect()
        log.error(
            "child_stalled",
            child=child.number,
            pid=child.process.pid,
            seconds=round(now - child.last_beat, 1),
            url=suspect.url if suspect else "",
        )
        child.cause = FailureKind.STALLED
        child.last_beat = now
        child.process.kill()

    def _check_leaving(self, child: Child, now: float) -> None:
        """Kill a child that does not end in the time that a stop may take."""
        if child.leaving_since is not None and now - child.leaving_since > self._grace:
            log.warning("child_killed", child=child.number)
            child.leaving_since = now
            if child.process:
                child.process.kill()

    def _after_death(self, child: Child) -> None:
        """Note how a child ended, and when its successor starts."""
        assert child.process
        status, child.process = child.process.returncode, None
        child.died = self._clock()
        child.tallies.clear_gauges()
        if self._stopping_since is not None or child.leaving_since is not None:
            if status:
                log.warning("child_stop_failed", child=child.number, status=status)
            # it is wanted again
            if child.leaving_since is not None and child.number < self._wanted:
                child.leaving_since, child.start_at = None, child.died
            return
        suspect = None
        if status != EX_NO_ROOM:  # that one ended in order: no page is charged
            child.tallies.add(_DEATHS[str(child.cause)])
            suspect = child.crash_record.note_death(child.cause)
        # A suspect is read alone next time, so its page will not kill the process again.
        explained = suspect is not None
        long_ago = self._clock() - child.started > 60
        child.deaths = 0 if long_ago or explained else child.deaths + 1
        waits = child.crash_record.ready or status == EX_NO_ROOM
        child.false_starts = 0 if waits else child.false_starts + 1
        log.error(
            "child_died",
            child=child.number,
            status=end_of(status).removeprefix("status "),
            cause=str(child.cause),
            charged=suspect.url if suspect else "",
        )
        if status == EX_CONFIG or child.false_starts >= MAX_FALSE_STARTS:
            log.error("child_given_up", child=child.number, starts=child.false_starts)
            self._stop(1)
            return
        wait = _BACKOFF_SECONDS[min(max(child.deaths, 1), len(_BACKOFF_SECONDS)) - 1]
        child.start_at = self._clock() + (0.0 if explained else wait)


def _environment() -> dict[str, str]:
    """Return a child's environment: ours, plus the setting that lets glibc keep more free pieces.

    A page's tree is thousands of small pieces, which are allocated and freed together. glibc reads
    this when a process starts; other libraries do not. If the user has set a value, it stays.
    """
    given = os.environ.get("GLIBC_TUNABLES", "")
    if _KEPT_PIECES.partition("=")[0] not in given:
        given = f"{given}:{_KEPT_PIECES}".removeprefix(":")
    return {**os.environ, "GLIBC_TUNABLES": given}
