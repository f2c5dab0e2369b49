"""A pytest plugin for the processes that share the tests (:mod:`tests.support.lanes`).

One process collects all tests, forks the processes that run them (the *lanes*), and ends. Each lane
claims one file after the other, the longest first, and runs those that it got. Each lane reports to
the runner by a line of JSON for each event.

This module imports nothing large, because tests/conftest.py lets gevent patch only later.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER, EVENTS, TURNS = "TESTS_FOLDER", "TESTS_EVENTS", "TESTS_TURNS"
"""Names of variables: the folder of claims and logs; for each lane a descriptor to which it writes
events; and for each lane one from which a byte comes when the awaited event has happened."""
SHARED = "TESTS_SHARED"
"""A variable that stays: the folder of things that all processes make once."""
WEIGHTS = Path("tests/weights.json")
"""Seconds of each file, in the checkout."""
SHOW = signal.SIGUSR2
"""At this signal a lane writes the state of its greenlets to its log: a thread's stack shows only
one of them."""
SHOWN = "== what runs in this process"
"""The first line of that state."""
QUIET = "quiet"
"""The marker of tests that run after all others, with the reason."""
QUIET_PROCESSES = 2
"""Number of processes that share the quiet tests."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quiet(reason): runs after all others, beside one")
    if FOLDER in os.environ:
        config.pluginmanager.register(Lane(config))


def group_of(item: pytest.Item) -> str:
    """Return the name of the group that a lane claims with a test: its file, or the test alone if
    it is quiet."""
    if item.get_closest_marker(QUIET):
        return f"{item.nodeid} ({QUIET})"
    return item.nodeid.partition("::")[0]


def by_weight(groups: list[str], weights: dict[str, float]) -> list[str]:
    """Sort groups, the longest first, so that all processes end at about the same time.

    Groups without a weight come in the middle: after those above the mean.
    """
    mean = sum(weights.values()) / max(len(weights), 1)
    return sorted(groups, key=lambda group: -weights.get(group, mean))


class Lane:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # Only for this process: processes that tests start must not claim files or send events.
        self._folder = Path(os.environ.pop(FOLDER))
        self._events = _numbers(os.environ.pop(EVENTS))
        self._turns = _numbers(os.environ.pop(TURNS))
        self._number = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        self._tell(collected=[item.nodeid for item in session.items])
        if session.testsfailed:
            return None  # pytest says so, and stops
        self._fork()
        groups: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            groups.setdefault(group_of(item), []).append(item)
        for group in self._claimed(list(groups)):
            self._tell(file=group)
            items = groups[group]
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._tell(done=group)
        return True

    def _fork(self) -> None:
        """Fork the lanes, and return in each of them. The present process ends, so that the runner
        becomes the parent of the lanes."""
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # the collected tests stay, and need no scan
        for number in range(len(self._events)):
            if os.fork() == 0:
                self._become(number)
                return
        os._exit(0)

    def _become(self, number: int) -> None:
        os.setpgid(0, 0)  # Ctrl-C comes to it once, from the runner
        for other, descriptors in enumerate(zip(self._events, self._turns, strict=True)):
            for descriptor in descriptors if other != number else ():
                os.close(descriptor)
        self._number = number
        self._tell(pid=os.getpid())  # the first event: the runner will ask how the process ended
        random.seed()
        self._log_to(self._folder / f"{number}.log")
        self._keep_folders_in(self._folder / f"t{number}")

    def _keep_folders_in(self, folder: Path) -> None:
        """Keep the folders of tests in ``folder``. Those that pytest would choose, by the user's
        name and a number, make paths too long for Unix sockets; its option was read when the
        collection began."""
        self._config.option.basetemp = str(folder)
        factory = pytest.TempPathFactory.from_config(self._config, _ispytest=True)
        setattr(self._config, "_tmp_path_factory", factory)  # noqa: B010

    def _log_to(self, path: Path) -> None:
        """Write the process's output there, and the output of its tests to files of their own."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable(log)
        signal.signal(SHOW, lambda *_: _show_greenlets(log))
        if capture is not None:
            capture.start_global_capturing()
            capture.suspend_global_capture()

    def _claimed(self, groups: list[str]) -> Iterator[str]:
        weights = self._config.rootpath / WEIGHTS
        known = json.loads(weights.read_text()) if weights.exists() else {}
        ordered = by_weight(groups, known)
        quiet = [group for group in ordered if group.endswith(f" ({QUIET})")]
        yield from (group for group in ordered if group not in quiet and self._claim(group))
        if self._number < QUIET_PROCESSES and quiet:
            self._wait()
            yield from (group for group in quiet if self._claim(group))

    def _wait(self) -> None:
        self._tell(waits=True)
        os.read(self._turns[self._number], 1)

    def _claim(self, group: str) -> bool:
        try:
            (self._folder / "claims" / group.replace("/", "%")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        category = self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]
        self._tell(test=report.nodeid, when=report.when, seconds=report.duration, category=category)
        if report.failed:
            self._tell_failure(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tell(ended=nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell_failure(report)

    def _tell_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        output = [f"-- {name}\n{text.rstrip()}" for name, text in report.sections if text]
        self._tell(
            failed=report.nodeid,
            when=getattr(report, "when", "collect"),
            message=crash.message if crash else "",
            text="\n".join([report.longreprtext, *output]),
        )

    def _tell(self, **event: object) -> None:
        """Raise pytest.exit's exception if the runner has ended."""
        content = json.dumps(event).encode() + b"\n"
        try:
            while content:
                content = content[os.write(self._events[self._number], content) :]
        except BrokenPipeError:
            pytest.exit("the runner has gone", 2)


def _show_greenlets(log: int) -> None:
    if (util := sys.modules.get("gevent.util")) is not None:
        os.write(log, "\n".join([SHOWN, *util.format_run_info()]).encode())


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
