"""Tallies outlive their process; the collector makes metrics of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import gevent
import pytest

from greencrawl.schema.records import FailureKind
from greencrawl.schema.settings import load
from greencrawl.worker.metrics import meter, table, tallies
from greencrawl.worker.metrics.families import WorkerCollector, exposition
from greencrawl.worker.metrics.meter import Meter
from greencrawl.worker.metrics.table import SLOT

PAGES, BUSY = SLOT["pages"], SLOT["greenlets_busy"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tallies.file_of(tmp_path / "worker", "w", 0)


def killed(path: Path) -> None:
    """Fork a process that counts seven pages and is killed during the eighth."""
    pid = os.fork()
    if pid == 0:
        counted = tallies.joined(path)
        for _ in range(7):
            counted.add(PAGES)
        counted.set(BUSY, 3)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_counters_survive_a_kill_and_the_next_process_goes_on_counting(path: Path) -> None:
    ours = tallies.create(path)
    killed(path)
    assert (ours.get(PAGES), ours.get(BUSY)) == (7, 3)
    ours.clear_gauges()
    killed(path)
    assert (ours.get(PAGES), ours.get(BUSY)) == (14, 3)
    ours.clear_gauges()
    assert (ours.get(PAGES), ours.get(BUSY)) == (14, 0)


def test_counts_of_an_earlier_supervisor_are_forgotten(path: Path) -> None:
    tallies.create(path).add(PAGES, 5)
    assert tallies.create(path).get(PAGES) == 0


def test_a_file_of_counters_of_another_version_is_left_alone(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tallies.create(path)
    head = path.read_bytes()
    with path.open("r+b") as file:
        file.write((int.from_bytes(head[:8], "little") ^ 1).to_bytes(8, "little"))
    theirs = tallies.joined(path)
    theirs.add(PAGES)
    assert (theirs.get(PAGES), ours.get(PAGES)) == (1, 0)
    assert "metrics_not_shared" in capsys.readouterr().err
    path.write_bytes(head[:-8])
    assert tallies.attach(path) is None
    path.unlink()
    assert tallies.attach(path) is None


def test_a_file_of_counters_is_readable_only_by_its_owner(path: Path) -> None:
    tallies.create(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_worker_finds_only_its_own_files_of_counters(tmp_path: Path) -> None:
    for worker, number in (("a", 0), ("a", 10), ("a-1", 0), ("b", 0)):
        tallies.create(tallies.file_of(tmp_path, worker, number))
    (tmp_path / "a-x.tallies").touch()
    assert list(tallies.files_of(tmp_path, "a")) == [0, 10]
    assert list(tallies.files_of(tmp_path, "a-1")) == [0]


def test_sums_of_a_process_are_added_to_those_of_earlier_processes(path: Path) -> None:
    counted = tallies.create(path)
    blocked, cpu = SLOT["hub_blocked_seconds"], SLOT["cpu_seconds"]
    counted.set(blocked, 10.0)
    counted.set(cpu, 1000.0)
    one = Meter(counted, {"greenlets_busy": lambda: 4}, {"hub_blocked_seconds": lambda: 0.5})
    one.note()
    one.note()
    assert counted.get(blocked) == 10.5
    assert 1000.0 < counted.get(cpu) < 2000.0
    assert counted.get(BUSY) == 4


def test_metrics_are_written_again_and_again_and_once_more_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "EVERY_SECONDS", 0.001)
    counted, values = tallies.create(path), iter(range(1, 1000))
    shown = Meter(counted, {"greenlets_busy": lambda: next(values)}, {})
    with gevent.Timeout(5), shown.running():
        while counted.get(BUSY) < 3:
            gevent.sleep(0.001)
        last = counted.get(BUSY)
    ended = counted.get(BUSY)
    assert ended > last, "once more at the end"
    gevent.sleep(0.01)
    assert counted.get(BUSY) == ended


def served(folder: Path, accept: str = "") -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    collector = WorkerCollector(load({}, worker_id="w", data=str(folder)), folder / "worker")
    return exposition(collector, accept)[0].decode().splitlines()


def test_counters_are_served_for_each_process_and_failures_as_sums_by_kind(
    tmp_path: Path, path: Path
) -> None:
    gone = table.by_label("failures")["gone"]
    for number in (0, 1):
        counted = tallies.create(tallies.file_of(path.parent, "w", number))
        counted.add(PAGES, 2 + number)
        counted.add(gone, 5)
        for value in (0.05, 0.06, 61.0):
            counted.observe(SLOT["response_seconds"], table.RESPONSE_BUCKETS, value)
    lines = served(tmp_path)
    name = "greencrawl_worker_"
    assert f'{name}pages_total{{process="0"}} 2.0' in lines
    assert f'{name}pages_total{{process="1"}} 3.0' in lines
    assert f'{name}failures_total{{kind="gone"}} 10.0' in lines
    kinds = [line for line in lines if line.startswith(f"{name}failures_total")]
    assert len(kinds) == len(FailureKind)
    assert f'{name}response_seconds_bucket{{le="0.05"}} 2.0' in lines
    assert f'{name}response_seconds_bucket{{le="0.1"}} 4.0' in lines
    assert f'{name}response_seconds_bucket{{le="60.0"}} 4.0' in lines
    assert f'{name}response_seconds_bucket{{le="+Inf"}} 6.0' in lines
    assert f"{name}response_seconds_count 6.0" in lines
    assert f"{name}response_seconds_sum 122.22" in lines


def test_the_memory_metric_is_that_of_the_living_process(tmp_path: Path, path: Path) -> None:
    counted = tallies.create(path)
    counted.set(SLOT["process_id"], os.getpid())
    lines = served(tmp_path)
    size = next(line for line in lines if line.startswith("greencrawl_worker_resident_memory"))
    assert float(size.split()[1]) > 10e6
    assert "greencrawl_worker_processes 1.0" in lines
    counted.clear_gauges()
    lines = served(tmp_path)
    assert 'greencrawl_worker_resident_memory_bytes{process="0"} 0.0' in lines
    assert "greencrawl_worker_processes 0.0" in lines


def test_openmetrics_is_served_only_if_it_is_asked_for(tmp_path: Path, path: Path) -> None:
    tallies.create(path)
    plain, asked = served(tmp_path), served(tmp_path, "application/openmetrics-text;version=1.0.0")
    assert asked[-1] == "# EOF"
    assert "# TYPE greencrawl_worker_pages counter" in asked
    assert plain[-1] != "# EOF"
    assert "# TYPE greencrawl_worker_pages_total counter" in plain


def test_metrics_are_served_before_a_worker_has_processes(tmp_path: Path) -> None:
    assert "greencrawl_worker_processes 0.0" in served(tmp_path)
