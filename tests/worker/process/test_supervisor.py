"""The supervisor with real processes that die, hang, refuse to start and refuse to stop."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from greencrawl.schema.records import FailureKind, NodeOptions
from greencrawl.schema.settings import load
from greencrawl.worker.orders.kept import KeptOrders, OrdersFile
from greencrawl.worker.process.crash_record import CrashRecord, Suspect
from greencrawl.worker.process.supervisor import _DEATHS, EX_NO_ROOM, Child, Supervisor, lock_id
from tests.support.system import wait_until
from tests.support.worker_process import BEAT, SupervisorProcess, alive

DIES_IN_A_PAGE = """
if first:
    record.set_ready()
    with record.parsing(page):
        os.kill(os.getpid(), signal.SIGKILL)
"""
HANGS_IN_A_PAGE = """
if first:
    record.set_ready()
    record.beat()
    with record.parsing(page):
        time.sleep(60)
"""
READS_FOR_LONG = """
record.set_ready()
record.beat()
with record.parsing(page):
    (settings.data / "reading").touch()
    time.sleep(1)
(settings.data / "read").touch()
"""
DIES_BETWEEN_PAGES = """
if first:
    record.set_ready()
    os.kill(os.getpid(), signal.SIGKILL)
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(settings.data / "stubborn").touch()
"""


def test_page_that_kills_its_process_is_named_to_the_next_one(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, DIES_IN_A_PAGE + BEAT) as worker:
        worker.wait_starts(2)
        assert [verdict for _, verdict in worker.starts()] == ["-", "process_death"]
        assert "http://h/bad" in worker.log


def test_page_that_hangs_its_process_is_killed_and_named(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, HANGS_IN_A_PAGE + BEAT, stall_seconds="0.5") as worker:
        worker.wait_starts(2)
        (first, _), (_, verdict) = worker.starts()
        assert verdict == "stalled"
        assert not alive([first])


def test_death_between_pages_is_charged_to_nobody(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, DIES_BETWEEN_PAGES + BEAT) as worker:
        worker.wait_starts(2)
        assert [verdict for _, verdict in worker.starts()] == ["-", "-"]


def test_next_process_is_told_when_the_last_one_died(tmp_path: Path) -> None:
    program = """
with (settings.data / "died").open("a") as log:
    log.write(f"{record.died} {time.monotonic()}\\n")
"""
    before = time.monotonic()
    with SupervisorProcess(tmp_path, program + DIES_BETWEEN_PAGES + BEAT) as worker:
        worker.wait_starts(2)
        told = worker.data / "died"
        wait_until(lambda: len(told.read_text().splitlines()) == 2, 5, "it says so")
    (first, _), (died, began) = (map(float, line.split()) for line in told.open())
    assert first == 0.0
    assert before < died <= began


def test_child_that_beats_is_left_alone(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT, processes=2, stall_seconds="0.5") as worker:
        worker.wait_starts(1)
        worker.wait_starts(1, child=1)
        time.sleep(1.2)
        assert len(worker.starts()) == len(worker.starts(1)) == 1


def test_a_supervisor_that_was_frozen_goes_on(tmp_path: Path) -> None:
    """When it thaws, its wait for a signal ends without one."""
    with SupervisorProcess(tmp_path, BEAT, stall_seconds="0.5") as worker:
        worker.wait_starts(1)
        for _ in range(3):
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(0.4)  # longer than its wait between two looks
            worker.process.send_signal(signal.SIGCONT)
            time.sleep(0.3)
        assert worker.process.poll() is None
        assert "stop_started" not in worker.log
        assert len(worker.starts()) == 1


def test_child_that_was_frozen_with_the_supervisor_in_a_long_page_is_not_killed(
    tmp_path: Path,
) -> None:
    with SupervisorProcess(tmp_path, READS_FOR_LONG + BEAT, stall_seconds="1.5") as worker:
        wait_until((worker.data / "reading").exists, 10, "it reads")
        pid = worker.starts()[0][0]
        time.sleep(0.5)  # it saw the last beat before the page
        assert worker.process
        _signal(signal.SIGSTOP, [worker.process.pid, pid])
        time.sleep(2.0)
        _signal(signal.SIGCONT, [worker.process.pid])
        time.sleep(0.3)  # it looks first
        _signal(signal.SIGCONT, [pid])
        wait_until((worker.data / "read").exists, 10, "the page is read")
        assert len(worker.starts()) == 1
        assert "stalled" not in worker.log


def test_a_child_that_hangs_is_found_after_a_freeze_of_all(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, HANGS_IN_A_PAGE + BEAT, stall_seconds="0.6") as worker:
        worker.wait_starts(1)
        pid = worker.starts()[0][0]
        _signal(signal.SIGSTOP, [worker.process.pid, pid])
        time.sleep(0.5)
        _signal(signal.SIGCONT, [worker.process.pid, pid])
        worker.wait_starts(2)
        assert worker.starts()[1][1] == "stalled"


def test_a_child_that_was_stopped_is_resumed_when_the_worker_ends(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT, stall_seconds="60") as worker:
        worker.wait_starts(1)
        _signal(signal.SIGSTOP, [worker.starts()[0][0]])
        worker.signal(signal.SIGTERM)
        supervisor = worker.process
        assert supervisor
        wait_until(lambda: supervisor.poll() is not None, 5, "it ended within the grace")
        assert worker.wait() == 0
        assert "killed" not in worker.log
        assert "child_stop_failed" not in worker.log


def test_a_child_that_was_stopped_is_resumed_when_fewer_are_ordered(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT, processes=2, stall_seconds="60") as worker:
        worker.wait_starts(1)
        worker.wait_starts(1, child=1)
        pid = worker.starts(1)[0][0]
        _signal(signal.SIGSTOP, [pid])
        file = OrdersFile(worker.data / "worker" / "w.orders")
        file.write(KeptOrders(1, NodeOptions(processes=1)))
        wait_until(lambda: not alive([pid]), 5, "it has ended")
        assert "killed" not in worker.log
        assert "child_stop_failed" not in worker.log


def test_the_grace_of_children_does_not_run_while_the_supervisor_is_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    settings = load({"GREENCRAWL_DATA": str(tmp_path), "GREENCRAWL_REQUEST_SECONDS": "1"})
    supervisor = Supervisor(settings, clock=lambda: now)
    supervisor._stop(0)
    now += 1000.0  # it was frozen
    supervisor._look_after()
    assert "children_killed" not in capsys.readouterr().err
    for _ in range(20):
        now += 1.0
        supervisor._look_after()
    assert "children_killed" in capsys.readouterr().err


def _signal(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


def test_children_that_never_come_up_are_given_up(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "sys.exit(3)", processes=1) as worker:
        assert worker.wait(30) == 1
        assert "children_not_started" in worker.log.splitlines()[-1]
        assert len(worker.starts()) == 5


def test_a_child_that_finds_its_disk_full_is_started_until_there_is_room(tmp_path: Path) -> None:
    now = 1000.0
    supervisor = Supervisor(load({"GREENCRAWL_DATA": str(tmp_path)}), clock=lambda: now)
    child = Child(0, CrashRecord(tmp_path / "crash"))
    page = Suspect("1/h", "token", 1, 1, "http://h/", 0, 0, 0)
    child.crash_record.parsing(page).__enter__()  # this page killed the first one
    child.crash_record.note_death(FailureKind.STALLED)
    for _ in range(12):
        child.process, child.started = subprocess.Popen(["sh", "-c", f"exit {EX_NO_ROOM}"]), now
        child.process.wait()
        now += 1
        supervisor._after_death(child)
        assert supervisor._stopping_since is None
    assert child.start_at - now == pytest.approx(10.0)
    assert child.crash_record.verdict() == (FailureKind.STALLED, page), "the page's, as before"
    assert [child.tallies.get(slot) for slot in _DEATHS.values()] == [0.0] * len(_DEATHS)


def test_a_supervisor_without_disk_space_for_one_more_child_keeps_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    settings = load({"GREENCRAWL_DATA": str(tmp_path), "GREENCRAWL_WORKER_ID": "w"})
    supervisor = Supervisor(settings, clock=lambda: now, command=("sleep", "60"))
    supervisor._lock = lock_id(settings)
    file = OrdersFile(tmp_path / "worker" / "w.orders")
    file.write(KeptOrders(1, NodeOptions(processes=1)))

    def children(no_room: bool = False) -> list[int]:
        """Look after the children; return the ids of those that run."""
        with files_end_at(4096) if no_room else nullcontext():
            try:
                supervisor._look_after()
            except OSError as error:
                pytest.fail(f"it ends, and all with it: {error}")
        return [child.process.pid for child in supervisor._children if child.process]

    try:
        assert children(no_room=True) == [], "the first start"
        now += 0.9
        assert children() == [], "too soon"
        now += 0.1
        (first,) = children()
        file.write(KeptOrders(2, NodeOptions(processes=2)))
        for _ in range(50):
            now += 1.0
            assert children(no_room=True) == [first]
        said = capsys.readouterr().err
        assert (said.count("disk_space_exhausted"), said.count("make room there")) == (1, 1)
        now += 10.0
        assert children(no_room=True) == [first]
        assert capsys.readouterr().err.count("disk_space_exhausted") == 1
        now += 1.0
        assert len(children()) == 2
        assert "disk_space_regained" in capsys.readouterr().err
    finally:
        supervisor._kill_all()
        os.close(supervisor._lock)


@contextmanager
def files_end_at(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


_WRITES_ON_A_FULL_DISK = """
from pathlib import Path
from greencrawl.worker import __main__ as worker, child
child.main = lambda *_: Path("/dev/full").write_text("x")
raise SystemExit(worker._child(worker.load({}), 0))
"""


def test_a_child_says_that_its_disk_is_full() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _WRITES_ON_A_FULL_DISK], check=False, capture_output=True, timeout=60
    )
    assert found.returncode == EX_NO_ROOM
    assert b"make room" in found.stdout + found.stderr


def test_deaths_that_lie_long_apart_do_not_add_up(tmp_path: Path) -> None:
    now = 1000.0
    supervisor = Supervisor(load({"GREENCRAWL_DATA": str(tmp_path)}), clock=lambda: now)
    child = Child(0, CrashRecord(tmp_path / "crash"))
    child.crash_record.set_ready()

    def dies_after(seconds: float) -> float:
        """Let the child die after this time; return the seconds until its successor starts."""
        nonlocal now
        child.process, child.started = subprocess.Popen(["false"]), now
        child.process.wait()
        now += seconds
        supervisor._after_death(child)
        return child.start_at - now

    waits = [dies_after(seconds) for seconds in (1, 1, 1, 61, 1, 1)]
    assert waits == pytest.approx([0.1, 0.3, 1.0, 0.1, 0.1, 0.3])


def test_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "sys.exit(78)") as worker:
        assert worker.wait() == 1
        assert len(worker.starts()) == 1


def test_sigterm_stops_children_and_ends_with_0(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT, processes=2) as worker:
        worker.wait_starts(1)
        worker.wait_starts(1, child=1)
        pids = [pid for child in (0, 1) for pid, _ in worker.starts(child)]
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not alive(pids)


def test_second_signal_kills_children_that_do_not_stop(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, STUBBORN + BEAT) as worker:
        worker.wait_starts(1)
        wait_until((worker.data / "stubborn").exists, 10, "it ignores the signal from now on")
        worker.signal(signal.SIGINT)
        wait_until(lambda: "stop_started" in worker.log, 5, "the first signal is heard")
        time.sleep(0.8)
        assert alive([worker.starts()[0][0]])
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
        assert not alive([worker.starts()[0][0]])


def test_children_die_with_the_supervisor(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT) as worker:
        worker.wait_starts(1)
        worker.signal(signal.SIGKILL)
        worker.wait()
        wait_until(lambda: not alive([worker.starts()[0][0]]), 5, "the child dies too")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", "glibc.malloc.tcache_count=1000"),
        ("glibc.malloc.check=0", "glibc.malloc.check=0:glibc.malloc.tcache_count=1000"),
        ("glibc.malloc.tcache_count=7", "glibc.malloc.tcache_count=7"),
    ],
)
def test_children_keep_many_small_pieces_of_memory_at_hand_unless_the_user_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, found: str
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", given)
    tells = '(settings.data / "told").write_text(os.environ["GLIBC_TUNABLES"])\n'
    with SupervisorProcess(tmp_path, tells + BEAT) as worker:
        wait_until(lambda: (worker.data / "told").exists(), 10, "it has started")
        wait_until(lambda: (worker.data / "told").read_text() == found, 2, found)


def test_second_supervisor_of_one_id_is_refused_with_a_reason(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, BEAT) as worker:
        worker.wait_starts(1)
        second = worker.spawn()
        assert second.wait(30) == 1
        assert "another worker with id 'w'" in worker.log
        assert "honcho takes them from .env" in worker.log
        assert len(worker.starts()) == 1


def test_suspect_of_a_killed_supervisor_is_not_charged(tmp_path: Path) -> None:
    hangs = SupervisorProcess(tmp_path, HANGS_IN_A_PAGE + BEAT)
    with hangs as worker:
        worker.wait_starts(1)
        worker.signal(signal.SIGKILL)
        worker.wait()
    with hangs as worker:
        worker.wait_starts(2)
        assert [verdict for _, verdict in worker.starts()] == ["-", "-"]


def test_as_many_children_run_as_are_ordered_and_those_beyond_end_in_order(
    tmp_path: Path,
) -> None:
    with SupervisorProcess(tmp_path, BEAT, stall_seconds="1") as worker:
        worker.wait_starts(1)
        file = OrdersFile(worker.data / "worker" / "w.orders")
        file.write(KeptOrders(1, NodeOptions(processes=3)))
        worker.wait_starts(1, child=1)
        worker.wait_starts(1, child=2)
        pids = [worker.starts(number)[0][0] for number in range(3)]
        file.write(KeptOrders(2, NodeOptions(processes=1)))
        wait_until(lambda: not alive(pids[1:]), 10, "two have ended")
        file.write(KeptOrders(3))
        time.sleep(0.5)
        assert alive(pids[:1])
        assert len(worker.starts(0)) == len(worker.starts(1)) == 1
        assert "child_died" not in worker.log
        file.write(KeptOrders(4, NodeOptions(processes=2)))
        worker.wait_starts(2, child=1)


def test_a_surplus_child_that_does_not_end_is_killed_and_started_again_if_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    settings = load(
        {
            "GREENCRAWL_DATA": str(tmp_path),
            "GREENCRAWL_WORKER_ID": "w",
            "GREENCRAWL_REQUEST_SECONDS": "1",
            "GREENCRAWL_PROCESSES": "2",
        }
    )
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1); time.sleep(60)"
    supervisor = Supervisor(settings, clock=lambda: now, command=(sys.executable, "-c", stubborn))
    supervisor._lock = os.open(tmp_path, os.O_RDONLY)
    file = OrdersFile(tmp_path / "worker" / "w.orders")
    try:
        supervisor._follow()
        time.sleep(0.3)  # it ignores the signal
        file.write(KeptOrders(1, NodeOptions(processes=1)))
        supervisor._follow()
        second = supervisor._children[1].process
        assert second is not None
        file.write(KeptOrders(2))
        for _ in range(20):
            now += 1.0
            supervisor._look_after()
        assert "child_killed" in capsys.readouterr().err
        second.wait(5)
        supervisor._look_after()  # it finds the child dead
        supervisor._look_after()
        again = supervisor._children[1].process
        assert again is not None
        assert again.pid != second.pid
    finally:
        supervisor._kill_all()
        os.close(supervisor._lock)
