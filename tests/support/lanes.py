"""Run all tests in several pytest processes at once: ``python -m tests.support.lanes``.

Most tests wait – for a lease to end, a server to start – more than they compute. So more processes
than cores share the files. One process collects all tests and forks the others, the lanes; each
lane claims the next file when its last one is done (:mod:`tests.support.lane`). Tests of one file
stay together and in order. Those marked ``quiet`` are shared by two processes when all others are
done.

The exit code is 1 if a test failed, ran in no process or in two, or if a process broke down. A test
that takes longer than ``--seconds`` counts as stuck: its process shows its greenlets and threads,
and is ended.

At the end all processes that tests started have ended, also servers in sessions of their own.

A test may fail only because so much runs at once. If only one or two tests failed, each runs three
more times with nothing beside it, one of them after the other tests of its file if these are
quick. A test that passes then is reported as unstable, and does not fail the run; somebody has to
fix it. By night every failure counts.

``--weigh`` writes the seconds of each file to tests/weights.json, by which files are ordered.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.checkout import ROOT
from tests.support.effort import LONG
from tests.support.lane import EVENTS, FOLDER, QUIET_PROCESSES, SHARED, SHOW, SHOWN, TURNS, WEIGHTS
from tests.support.memory import memory_folder

SLOWEST = 15
MESSAGE_LINES, LINE_LETTERS = 8, 300
"""The end of a failure's message that is shown at the end of the run."""
FORGIVEN = 0 if LONG else 2
"""This many tests may fail, if they pass when they run alone."""
QUICK_SECONDS = 60.0
"""A file that took longer does not run once more."""
STUCK_SIGNALS = (SHOW, signal.SIGABRT, signal.SIGKILL)
"""Signals for the process of a stuck test, one after the other: its state goes to its log."""
STUCK_STEP_SECONDS = 5.0
END_LINES, STACK_LINES = 30, 200
"""The number of lines from the log of a process that failed."""
STUCK_SECONDS = 3600 if LONG else 300
"""The longest test takes a fifth of this without other work."""
GRACE_SECONDS = 60.0
"""Time for processes that are told to stop: they end the servers that they started."""
ROOM_BYTES = 4 * 2**30
"""With this much free memory the folders of tests are in memory, where no fsync waits; otherwise
they are on the disk."""
KEEP_LITTLE = ("-o", "tmp_path_retention_policy=failed")
"""A test's folder is deleted when it has passed."""
REAP_SECONDS = 0.1
"""The time between two checks for orphans that have ended: their tests may wait for that."""
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""A variable that is not passed on: otherwise each of hundreds of processes would compile all its
imports."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Process:
    """One of the lanes."""

    number: int
    events: int
    turn: int
    """A byte is written there when the awaited event has happened."""
    log: Path
    pid: int | None = None
    """None until it is forked."""
    code: int | None = None
    """Its exit code."""
    partial: bytes = b""
    group: str = ""
    test: str = ""
    """The running test."""
    began: float = 0.0
    """The start of that test."""
    stuck: int = 0
    """The number of signals that it was sent for a stuck test."""
    groups: int = 0
    seconds: float = 0.0
    waits: bool = False
    quiet: bool = False
    """True if the process runs the tests that come after all others."""
    ended: bool = False


class Lanes:
    """Runs the tests of the checkout in ``folder`` and prints the results."""

    def __init__(self, folder: Path, count: int, stuck_seconds: float = STUCK_SECONDS) -> None:
        self.folder = folder
        self.count = count
        self.stuck_seconds = stuck_seconds
        self.weights: Counter[str] = Counter()
        """Seconds of each file."""
        self._collecting: subprocess.Popen[bytes] | None = None
        """The collecting process; it ends when it has forked the others."""
        self._log = Path()
        """The log of that process."""
        self._collected: list[str] = []
        self._processes: list[Process] = []
        self._categories: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        """Seconds of each test, with its set-up and tear-down."""
        self._failures: dict[tuple[str, str], str] = {}
        """Messages of failures."""
        self._category: dict[str, str] = {}
        """The result of each test, as pytest reports it."""
        self._unstable: dict[str, str] = {}
        """Messages of tests that passed later."""

    def run(self) -> int:
        """Return the exit code: 0, 1, or 2 when interrupted."""
        began, interrupted = time.monotonic(), False
        _adopt_orphans()
        with memory_folder(ROOM_BYTES) as made:
            try:
                self._start(made)
                self._listen()
                if not self._wrong():
                    self._try_again(made)
            except KeyboardInterrupt:
                interrupted = True
                with suppress(KeyboardInterrupt):  # a second interrupt: end at once
                    self._stop()
            finally:
                self._end_all()
            wrong = ["interrupted"] if interrupted else self._wrong()
            self._conclude(wrong, time.monotonic() - began)
        return 2 if interrupted else int(bool(wrong or self._failures))

    # -- processes

    def _start(self, made: Path) -> None:
        (made / "claims").mkdir()
        events, turns = (
            [os.pipe() for _ in range(self.count)],
            [os.pipe() for _ in range(self.count)],
        )
        for number, ((ours, _), (_, turn)) in enumerate(zip(events, turns, strict=True)):
            self._processes.append(Process(number, ours, turn, made / f"{number}.log"))
        theirs, heard = [end for _, end in events], [end for end, _ in turns]
        environment = {
            FOLDER: str(made),
            EVENTS: ",".join(map(str, theirs)),
            TURNS: ",".join(map(str, heard)),
        }
        self._log = made / "collection.log"
        with self._log.open("wb") as output:
            self._collecting = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "tests.support.lane", *KEEP_LITTLE],
                cwd=self.folder,
                env=_environment(made) | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[*theirs, *heard],
                process_group=0,  # Ctrl-C comes to it once, from us
            )
        for descriptor in (*theirs, *heard):
            os.close(descriptor)

    def _listen(self, seconds: float | None = None) -> None:
        """Wait until all processes have ended, at most this long."""
        limit = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                if not process.ended:
                    selector.register(process.events, selectors.EVENT_READ, process)
            while selector.get_map():
                left = None if limit is None else limit - time.monotonic()
                if left is not None and left <= 0:
                    return
                for key, _ in selector.select(min(REAP_SECONDS, left or REAP_SECONDS)):
                    if not self._read(key.data):
                        selector.unregister(key.fd)
                        os.close(key.fd)
                for process in self._end_stuck():
                    selector.unregister(process.events)
                    os.close(process.events)
                self._give_turns()
                self._reap()

    def _read(self, process: Process) -> bool:
        """Read a process's events; return False at their end: the process has ended, or is about
        to."""
        content = os.read(process.events, 1 << 16)
        *lines, process.partial = (process.partial + content).split(b"\n")
        for line in lines:
            self._note(process, json.loads(line))
        if not content:
            self._wait_for(process)
            process.ended = True
        return bool(content)

    def _wait_for(self, process: Process) -> None:
        """Note the process's exit code; it is our child when the process that forked it has
        ended."""
        if self._collecting is not None:
            self._collecting.wait()
        if process.pid is not None and process.code is None:
            process.code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])

    def _give_turns(self) -> None:
        quiet, others = self._processes[:QUIET_PROCESSES], self._processes[QUIET_PROCESSES:]
        if all(process.ended for process in others) and all(
            process.waits or process.ended or process.quiet for process in quiet
        ):
            for process in quiet:
                if process.waits:
                    process.quiet = True
                    self._give_turn(process)

    @staticmethod
    def _give_turn(process: Process) -> None:
        process.waits = False
        with suppress(BrokenPipeError):  # it has ended
            os.write(process.turn, b"1")

    def _end_stuck(self) -> list[Process]:
        """End processes whose test is stuck; return those that have ended, though their children
        may still hold their pipe."""
        over = []
        for process in self._processes:
            if process.ended or process.pid is None or not process.test:
                continue
            late = time.monotonic() - process.began - self.stuck_seconds
            while process.stuck < len(STUCK_SIGNALS) and late > process.stuck * STUCK_STEP_SECONDS:
                if not process.stuck:
                    _say(f"== STUCK {process.test}")
                with suppress(ProcessLookupError):
                    os.kill(process.pid, STUCK_SIGNALS[process.stuck])
                process.stuck += 1
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if process.stuck and os.waitid(os.P_PID, process.pid, how) is not None:
                self._wait_for(process)
                process.ended = True
                over.append(process)
        return over

    def _stop(self) -> None:
        """Let all processes end their children; kill those that do not end."""
        if self._collecting is not None and self._collecting.poll() is None:
            _say("stopped in the collection")
            self._collecting.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._collecting.wait(GRACE_SECONDS)
        self._listen(REAP_SECONDS)  # some may have been forked just now
        for process in self._processes:
            if not process.ended and process.pid is not None:
                _say(f"stopped in {process.test or process.group or 'no test'}")
                os.kill(process.pid, signal.SIGINT)
        self._listen(GRACE_SECONDS)

    def _end_all(self) -> None:
        """Kill all remaining descendants by their process ids."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if self._collecting is not None:
            self._collecting.kill()
            self._collecting.wait()
        for process in self._processes:
            if process.pid is not None and process.code is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            self._wait_for(process)
            os.close(process.turn)
        self._kill_left()

    @staticmethod
    def _kill_left() -> None:
        """Kill processes that the lanes left behind."""
        while left := _children():
            for pid in left:  # and what they have started comes to us then
                _say(f"killed what was left: {_name_of(pid)} ({pid})")
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _reap(self, ours_too: int = 0) -> None:
        """Wait for orphans that have ended, once the processes of our own are known."""
        if any(process.pid is None and not process.ended for process in self._processes):
            return
        ours = {process.pid for process in self._processes}
        for pid in _children() - ours - {self._collecting and self._collecting.pid, ours_too}:
            os.waitpid(pid, os.WNOHANG)

    def _try_again(self, made: Path) -> None:
        """Forgive failures if they are few and pass alone."""
        failed = sorted({test for test, _ in self._failures})
        if len(failed) > FORGIVEN or any(when == "collect" for _, when in self._failures):
            return
        self._kill_left()
        for test in failed:
            file = test.partition("::")[0]
            quick = self.weights[file] <= QUICK_SECONDS
            if all(self._passes(test, run, made) for run in (file if quick else test, test, test)):
                of_it = [key for key in self._failures if key[0] == test]
                self._unstable[test] = "\n".join(self._failures.pop(key) for key in of_it)

    def _passes(self, test: str, run: str, made: Path) -> bool:
        """Return whether ``test`` passes if ``run`` (it or its file) runs alone."""
        _say(f"\n== once more, alone: {run}")
        report = made / "again.xml"
        command = [sys.executable, "-m", "pytest", run, f"--basetemp={made / 'again'}"]
        command += [f"--junit-xml={report}"]
        command += ["-o", "junit_family=xunit1", "-o", "junit_duration_report=call"]
        again = subprocess.Popen(command, cwd=self.folder, env=_environment(made))
        limit = time.monotonic() + 2 * self.stuck_seconds
        try:
            while again.poll() is None and time.monotonic() < limit:
                self._reap(again.pid)
                time.sleep(REAP_SECONDS)
        finally:
            if again.poll() is None:
                again.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    again.wait(GRACE_SECONDS)
            again.kill()
            again.wait()
        return again.returncode == 0 and _passed(test, report)

    # -- events of the lanes

    def _note(self, process: Process, event: dict[str, Any]) -> None:
        match event:
            case {"collected": tests}:
                self._collected = tests
            case {"pid": pid}:
                process.pid = pid
            case {"file": group}:
                process.group = group
                process.groups += 1
            case {"began": test}:
                process.test, process.began, process.stuck = test, time.monotonic(), 0
            case {"test": test, "seconds": seconds, "category": category}:
                self._seconds[test] += seconds
                self.weights[process.group] += seconds
                process.seconds += seconds
                if category:
                    self._categories[category] += 1
                    self._category[test] = category
            case {"failed": test, "when": when, "text": text, "message": message}:
                if (test, when) not in self._failures:
                    self._failures[test, when] = message
                    _say(f"\n== FAILED {test} ({when})\n{text}\n")
            case {"ended": test}:
                process.test = ""
                self._ran[test] += 1
            case {"done": group}:
                process.group = ""
                _say(f"{self.weights[group]:7.1f} s  {group}")
            case {"waits": _}:
                process.waits = True

    def _wrong(self) -> list[str]:
        """Return why the run does not count, even if every test passed."""
        wrong = []
        assert self._collecting is not None
        if code := self._collecting.returncode:
            wrong.append(f"the collection ended with {code}\n{_end_of(self._log)}")
        for process in self._processes:
            if process.pid is None and self._collected and not code:
                wrong.append(f"process {process.number} was never heard of")
            if process.code not in (None, 0, int(pytest.ExitCode.TESTS_FAILED)):
                at, end = process.test or process.group, _end_of(process.log)
                how = f"{process.code}{', stuck' if process.stuck else ''}"
                wrong.append(f"process {process.number} ended with {how} {at}\n{end}")
        wrong += _list("ran nowhere", [test for test in self._collected if not self._ran[test]])
        wrong += _list("ran twice", [test for test in self._ran if self._ran[test] > 1])
        return wrong

    def _conclude(self, wrong: list[str], seconds: float) -> None:
        _say("\nslowest tests, in seconds:")
        for test, took in self._seconds.most_common(SLOWEST):
            _say(f"{took:7.1f}  {test}")
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = ", ".join(f"{one.seconds:.0f} s in {one.groups} files" for one in self._processes)
        _say(f"\nprocesses: {busy}; {spent.ru_utime + spent.ru_stime:.0f} s of CPU")
        told = [(f"UNSTABLE {test}", message) for test, message in self._unstable.items()]
        told += [(f"FAILED {test} ({when})", text) for (test, when), text in self._failures.items()]
        for what, message in sorted(told):
            _say(what)
            for line in message.splitlines()[-MESSAGE_LINES:]:
                _say(f"  {line[:LINE_LETTERS]}")
        for what in wrong:
            _say(f"WRONG {what}")
        for test in self._unstable:
            self._categories["unstable"] += 1
            self._categories[self._category[test]] -= 1
        counts = ", ".join(f"{count} {name}" for name, count in sorted((+self._categories).items()))
        _say(f"{counts or 'no tests'} in {seconds:.0f} s")


def _environment(made: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    path = filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    ours = {"PYTHONPATH": os.pathsep.join(path), SHARED: str(made / "shared"), "TMPDIR": str(made)}
    return inherited | ours


def _adopt_orphans() -> None:
    """Become the parent of processes that their own parent leaves behind, in any session."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _children() -> set[int]:
    """Return the process ids of our children, also of those that have ended and were not waited
    for."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in path.read_text().split()}


def _end_of(log: Path) -> str:
    """Return its last lines, or the state of the process when it was stuck or crashed."""
    text = log.read_text(errors="replace")
    for begins in (SHOWN, "Fatal Python error"):
        if begins in text:
            return "\n".join(text[text.rindex(begins) :].splitlines()[:STACK_LINES])
    return "\n".join(text.splitlines()[-END_LINES:])


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _passed(test: str, report: Path) -> bool:
    """Return whether a report says that a test ran and passed, and was not skipped."""
    file, *names = test.split("::")
    *classes, name = names
    module = ".".join([file.removesuffix(".py").replace("/", "."), *classes])
    found = [
        case
        for case in ElementTree.parse(report).iter("testcase")
        if (case.get("classname"), case.get("name")) == (module, name)
    ]
    return len(found) == 1 and not any(
        one.tag in ("failure", "error", "skipped") for one in found[0]
    )


def _list(what: str, tests: list[str]) -> list[str]:
    return [f"{len(tests)} {what}: {' '.join(tests[:5])}"] if tests else []


def _say(text: str) -> None:
    print(text, flush=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--lanes", type=int, default=3 * cores, help="processes (%(default)d)")
    parser.add_argument(
        "--seconds", type=float, default=STUCK_SECONDS, help="for a test (%(default)d)"
    )
    parser.add_argument("--weigh", action="store_true", help=f"write {WEIGHTS}")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    lanes = Lanes(Path.cwd(), given.lanes, given.seconds)
    code = lanes.run()
    if given.weigh and code == 0:
        weights = {group: round(took, 1) for group, took in sorted(lanes.weights.items())}
        WEIGHTS.write_text(json.dumps(weights, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
