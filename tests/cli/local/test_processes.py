"""Child processes: started, restarted, stopped, and the messages when they do not survive."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import psutil
import pytest
from gevent.event import Event

from greencrawl.broker.api.app import listener
from greencrawl.cli.local import processes
from greencrawl.cli.local.processes import (
    REDIS,
    Child,
    Processes,
    ProcessFailed,
    environment,
    frozen_text,
    kept_port,
)
from greencrawl.cli.local.stopping import Stop, on_signals
from greencrawl.schema import file_lock
from greencrawl.schema.clock import monotonic
from tests.support.checkout import ROOT

NEVER = Event()

OBEDIENT = """
import signal, sys, pathlib
def stop(*_):
    with open("stops", "a") as file:
        file.write({name!r} + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path({name!r} + ".up").touch()
while True:
    signal.pause()
"""
STUBBORN = OBEDIENT.replace("sys.exit(0)", "pass")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, in which a test puts a broker and a worker of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "greencrawl").mkdir()
    (tmp_path / "greencrawl" / "__init__.py").touch()  # otherwise the installed one counts
    yield tmp_path
    for child in psutil.Process().children():
        if str(tmp_path) in child.environ().get("PYTHONPATH", ""):
            child.kill()
            pytest.fail("a child was left running")


def module(folder: Path, name: str, text: str) -> None:
    (folder / "greencrawl" / f"{name}.py").write_text(text.replace("{name!r}", repr(name)))


def until(holds: object, seconds: float = 20.0) -> None:
    deadline = monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert monotonic() < deadline, "not in time"
        gevent.sleep(0.01)


def both(folder: Path) -> Processes:
    return Processes(environment(os.environ), folder / "logs", request_seconds=1.0)


def start(pair: Processes, folder: Path) -> None:
    pair.start((folder / "broker.up").exists, NEVER)
    until((folder / "worker.up").exists)


def test_workers_are_stopped_before_the_broker(folder: Path) -> None:
    for name in ("broker", "worker"):
        module(folder, name, OBEDIENT)
    pair = both(folder)
    start(pair, folder)
    pair.stop(NEVER)
    assert (folder / "stops").read_text() == "worker\nbroker\n"
    assert (pair.broker.code, pair.worker.code) == (0, 0)


def test_worker_starts_only_when_the_broker_is_ready(folder: Path) -> None:
    for name in ("broker", "worker"):
        module(folder, name, OBEDIENT)
    pair = both(folder)
    asked = Event()
    asked.set()
    pair.start(lambda: False, asked)
    assert pair.worker.pid == 0
    pair.stop(NEVER)


def test_a_broker_that_ends_at_its_start_is_reported_with_its_last_output(folder: Path) -> None:
    module(folder, "broker", "import sys; sys.exit('no room left')")
    pair = both(folder)
    with pytest.raises(ProcessFailed, match=r"broker ended with exit code 1: no room left \(log: "):
        pair.start(lambda: False, NEVER)
    pair.stop(NEVER)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            '{"event": "start_failed", "error": "no disk", "level": "error"}',
            "start_failed: no disk",
        ),
        ('{"event": "wait_started", "reason": "disk full"}', "wait_started: disk full"),
        ('{"event": "start_failed"}', "start_failed \\(log"),
        ("{not json}", "{not json}"),
        ("", "it logged nothing"),
    ],
)
def test_a_structured_log_line_is_reported_as_a_sentence(
    folder: Path, said: str, told: str
) -> None:
    module(folder, "broker", f"import sys; print({said!r}, file=sys.stderr); sys.exit(1)")
    pair = both(folder)
    with pytest.raises(ProcessFailed, match=told):
        pair.start(lambda: False, NEVER)


def test_broker_that_never_gets_ready_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.2)
    module(folder, "broker", OBEDIENT)
    pair = both(folder)
    with pytest.raises(ProcessFailed, match=r"not ready in 0\.2 s: it logged nothing \(log: "):
        pair.start(lambda: False, NEVER)
    pair.stop(NEVER)


def test_the_reason_why_a_broker_is_not_ready_yet_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SAID_SECONDS", 0.1)
    log = folder / "logs" / "broker.log"
    log.parent.mkdir()
    log.write_text('{"event": "wait_started", "reason": "the disk is full"}\n')
    module(folder, "broker", OBEDIENT)
    module(folder, "worker", OBEDIENT)
    pair, said, looks = both(folder), list[str](), list[int]()

    def ready() -> bool:
        looks.extend([1] if said else [])
        return len(looks) > 3

    pair.start(ready, NEVER, said.append)
    pair.stop(NEVER)
    assert said == [f"the broker is not ready yet: wait_started: the disk is full (log: {log})"]


def test_a_child_that_was_killed_is_started_again(folder: Path) -> None:
    for name in ("broker", "worker"):
        module(folder, name, OBEDIENT)
    pair = both(folder)
    start(pair, folder)
    assert pair.restart_dead() == []
    before = pair.worker.pid
    os.kill(before, signal.SIGKILL)
    until(lambda: pair.worker.code is not None)
    assert pair.restart_dead() == ["the worker was ended by SIGKILL"]
    assert pair.worker.pid != before
    pair.stop(NEVER)


def test_child_that_keeps_dying_ends_the_command(folder: Path) -> None:
    module(folder, "worker", "raise SystemExit('broken for good')")
    child = Child("worker", environment(os.environ), folder / "worker.log")
    child.start()
    for _ in range(processes.RESTARTS):
        until(lambda: child.code is not None)
        assert child.restart_dead()
    until(lambda: child.code is not None)
    with pytest.raises(ProcessFailed, match="broken for good"):
        child.restart_dead()


def test_a_child_that_dies_seldom_is_always_restarted(folder: Path) -> None:
    module(folder, "worker", "raise SystemExit(1)")
    child = Child("worker", environment(os.environ), folder / "worker.log")
    child.start()
    for number in range(processes.RESTARTS * 2):
        until(lambda: child.code is not None)
        assert child.restart_dead(lambda now=number * processes.RESTARTS_WITHIN: now)  # type: ignore[misc]
    until(lambda: child.code is not None)


def test_a_child_that_does_not_stop_is_killed_after_its_time(folder: Path) -> None:
    module(folder, "worker", STUBBORN)
    child = Child("worker", environment(os.environ), folder / "worker.log")
    child.start()
    until((folder / "worker.up").exists)
    child.stop(0.2, NEVER)
    assert child.code == -signal.SIGKILL


def test_second_ctrl_c_kills_at_once(folder: Path) -> None:
    module(folder, "worker", STUBBORN)
    child = Child("worker", environment(os.environ), folder / "worker.log")
    child.start()
    until((folder / "worker.up").exists)
    impatient = Event()
    gevent.spawn_later(0.1, impatient.set)
    began = monotonic()
    child.stop(30.0, impatient)
    assert child.code == -signal.SIGKILL
    assert monotonic() - began < 5


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_child_is_stopped_when_its_parent_is_killed(folder: Path) -> None:
    module(folder, "worker", OBEDIENT)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-P",  # the fake package lies in the current folder
            "-c",
            "import os, signal; from pathlib import Path\n"
            "from greencrawl.cli.local.processes import Child, environment\n"
            "c = Child('worker', environment(os.environ, data='x') | "
            f"{{'PYTHONPATH': {str(folder)!r}}}, Path('w.log')); c.start()\n"
            "signal.pause()",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    until((folder / "worker.up").exists)
    parent.kill()
    parent.wait()
    until((folder / "stops").exists)
    assert (folder / "stops").read_text() == "worker\n"


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_workers_of_a_killed_command_end_soon(folder: Path) -> None:
    """They have no broker left to give leases back to, and would block the next command."""
    module(folder, "broker", OBEDIENT)
    module(folder, "worker", STUBBORN)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-P",  # the fake package lies in the current folder
            "-c",
            "import os, signal; from pathlib import Path\n"
            "from gevent.event import Event\n"
            "from greencrawl.cli.local.processes import Processes, environment\n"
            f"environ = environment(os.environ) | {{'PYTHONPATH': {str(folder)!r}}}\n"
            "pair = Processes(environ, Path('logs'), 60.0)\n"
            "pair.start(Path('broker.up').exists, Event())\n"
            "Path('worker.pid').write_text(str(pair.worker.pid))\n"
            "signal.pause()",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    until((folder / "worker.up").exists)
    until(lambda: (folder / "worker.pid").exists() and (folder / "worker.pid").read_text())
    worker = psutil.Process(int((folder / "worker.pid").read_text()))
    parent.kill()
    parent.wait()
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    stops = folder / "stops"
    until(lambda: stops.exists() and stops.read_text())
    assert stops.read_text() == "broker\n"


def test_frozen_processes_are_named_and_continued_so_that_they_stop_in_order(folder: Path) -> None:
    for name in ("broker", "worker"):
        module(folder, name, OBEDIENT)
    lock = folder / "server.lock"
    stays = "import sys, time; sys.stdin.read(0); time.sleep(60)"
    redis = subprocess.Popen([sys.executable, "-c", stays])
    held = file_lock.take(lock, str(redis.pid).encode())
    pair = Processes(environment(os.environ), folder / "logs", 1.0, lock)
    try:
        start(pair, folder)
        assert pair.frozen() == []
        three = {"broker": pair.broker.pid, "worker": pair.worker.pid, REDIS: redis.pid}
        for pid in three.values():
            os.kill(pid, signal.SIGSTOP)
        until(lambda: len(pair.frozen()) == 3)
        assert dict(pair.frozen()) == three
        said = frozen_text(pair.frozen())
        for name, pid in three.items():
            assert f"the {name}, process {pid}, was stopped by somebody: `kill -CONT {pid}`" in said
        began = monotonic()
        pair.stop(NEVER)
        assert monotonic() - began < 10
        assert (folder / "stops").read_text() == "worker\nbroker\n"
        until(lambda: psutil.Process(redis.pid).status() != psutil.STATUS_STOPPED)
    finally:
        redis.kill()
        redis.wait()
        os.close(held)


def test_a_waiting_call_is_abandoned_some_time_after_a_request_to_stop() -> None:
    stop = Stop()
    assert stop.within(lambda: 3) == 3
    gevent.spawn_later(0.05, stop.signal, signal.SIGINT)
    began = monotonic()
    assert stop.within(lambda: gevent.sleep(10), grace_seconds=0.05) is None
    assert monotonic() - began < 5
    assert stop.within(lambda: gevent.sleep(0.01) or 4, grace_seconds=5.0) == 4, "it may end"
    gevent.sleep(0.1)  # no exception comes later


def test_the_first_signal_asks_to_stop_and_the_second_demands_it_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked.wait(2)
        assert not stop.impatient.is_set()
        assert stop.exit_code == 130
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.impatient.wait(2)
        assert stop.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform != "linux", reason="kept on Linux alone")
def test_a_reserved_port_is_refused_to_other_programs_and_free_for_our_broker() -> None:
    with kept_port() as port:
        for _ in range(2):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("0.0.0.0", port))
            listening = listener(("127.0.0.1", port))
            with socket.create_connection(("127.0.0.1", port)):
                listening.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
