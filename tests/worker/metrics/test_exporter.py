"""Metrics of a real supervisor; its processes count and die."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

import psutil
import pytest

from greencrawl.schema.settings import load
from greencrawl.worker.metrics import tallies
from greencrawl.worker.metrics.exporter import MOST_AGAIN_SECONDS, Exporter
from greencrawl.worker.process.supervisor import EX_CONFIG, lock_id
from tests.support.certificates import authority, signed
from tests.support.ports import free_port
from tests.support.system import wait_until
from tests.support.worker_process import SupervisorProcess, alive

COUNTS = """
from greencrawl.worker.metrics import table, tallies
counted = tallies.joined(tallies.file_of(folder, settings.worker_id, int(number)))
record.set_ready()
if first:
    counted.set(table.SLOT["greenlets_busy"], 3)
while True:
    record.beat()
    counted.add(table.SLOT["pages"])
    time.sleep(0.01)
"""


class Scraped:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/metrics"

    def text(self) -> str:
        """Return the metrics, or "" if nobody answers."""
        try:
            with urllib.request.urlopen(self._address, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def value(self, name: str, labels: str = "") -> float:
        found = re.search(
            rf"^greencrawl_worker_{name}{re.escape(labels)} (\S+)$", self.text(), re.M
        )
        return float(found[1]) if found else 0.0


def exporter_of(worker: SupervisorProcess) -> psutil.Process:
    """Find the exporter among the children of the supervisor."""
    assert worker.process
    supervisor = psutil.Process(worker.process.pid)
    (found,) = [one for one in supervisor.children() if "--metrics" in one.cmdline()]
    return found


def gone(pids: list[int]) -> bool:
    return not alive(pids)


def test_counters_go_on_after_the_death_of_a_process_or_of_the_exporter(tmp_path: Path) -> None:
    port = free_port()
    scraped = Scraped(port)
    with SupervisorProcess(
        tmp_path, COUNTS, processes=2, metrics_bind=f"127.0.0.1:{port}"
    ) as worker:
        worker.wait_starts(1)
        worker.wait_starts(1, child=1)
        wait_until(lambda: scraped.value("pages_total", '{process="0"}') > 3, 10, "it counts")
        pid = worker.starts()[0][0]
        assert scraped.value("processes") == 2
        before = scraped.value("pages_total", '{process="0"}')
        os.kill(pid, signal.SIGKILL)
        worker.wait_starts(2)
        after = scraped.value("pages_total", '{process="0"}')
        assert before <= after < before + 1000
        wait_until(lambda: scraped.value("pages_total", '{process="0"}') > after, 10, "it goes on")
        assert scraped.value("process_starts_total", '{process="0"}') == 2
        assert scraped.value("process_starts_total", '{process="1"}') == 1
        assert scraped.value("process_deaths_total", '{cause="process_death"}') == 1

        serving = exporter_of(worker)
        before = scraped.value("pages_total", '{process="1"}')
        serving.terminate()  # a service manager may do this; it goes on until the worker has ended
        serving.send_signal(signal.SIGINT)
        assert scraped.value("processes") == 2
        assert exporter_of(worker).pid == serving.pid
        assert "exporter_died" not in worker.log
        serving.kill()
        assert scraped.value("pages_total", '{process="1"}') >= before, "who connects waits"
        assert exporter_of(worker).pid != serving.pid
        assert "exporter_died" in worker.log

        serving = exporter_of(worker)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        with pytest.raises(psutil.NoSuchProcess):
            psutil.Process(serving.pid)


def test_the_exporter_dies_with_a_killed_supervisor_and_the_next_counts_anew(
    tmp_path: Path,
) -> None:
    port = free_port()
    scraped = Scraped(port)
    for _ in range(2):
        # An earlier run had more processes.
        tallies.create(tallies.file_of(tmp_path / "data" / "worker", "w", 7))
        with SupervisorProcess(tmp_path, COUNTS, metrics_bind=f"127.0.0.1:{port}") as worker:
            wait_until(lambda: scraped.value("pages_total", '{process="0"}') > 3, 10, "it counts")
            assert scraped.value("process_starts_total", '{process="0"}') == 1
            assert 'process="7"' not in scraped.text()
            serving = [exporter_of(worker).pid]
            assert worker.process
            worker.process.kill()
            worker.process.wait()
            wait_until(partial(gone, serving), 5, "it is dead")


HOLDS = """
import os
from greencrawl.schema.settings import load
from greencrawl.worker.metrics.exporter import Exporter
from greencrawl.worker.process.supervisor import IdInUse, lock_id
settings = load()
held = lock_id(settings)
exporter = Exporter(settings, held)
exporter.look()
os.close(held)
for _ in range(2):
    try:
        lock_id(settings, 0.1)
        print("free")
    except IdInUse:
        print("held")
        exporter.close()
"""


def test_the_next_supervisor_waits_until_the_address_of_the_exporter_is_free(
    tmp_path: Path,
) -> None:
    """If the address were taken, it would end as with wrong settings, and nobody would restart
    it."""
    given = {
        "GREENCRAWL_DATA": str(tmp_path),
        "GREENCRAWL_METRICS_BIND": f"127.0.0.1:{free_port()}",
    }
    done = subprocess.run(
        [sys.executable, "-c", HOLDS],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["held", "free"]


def test_an_exporter_that_has_just_been_started_ignores_signals_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("GREENCRAWL_METRICS_BIND", f"127.0.0.1:{port}")
    monkeypatch.setenv("GREENCRAWL_DATA", str(tmp_path))
    settings = load()
    exporter = Exporter(settings, lock_id(settings))
    try:
        exporter.look()  # Python itself is not yet started there
        started = exporter._process
        assert started
        started.send_signal(signal.SIGTERM)
        started.send_signal(signal.SIGINT)
        wait_until(lambda: bool(Scraped(port).text()), 20, "it serves")
        assert started.poll() is None
    finally:
        exporter.close()


def test_an_exporter_without_a_usable_certificate_says_so_and_is_started_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ca, port = authority(tmp_path / "ca"), free_port()
    certificate, key = signed(ca, "server", address="127.0.0.1")
    given = {"METRICS_BIND": f"127.0.0.1:{port}", "DATA": tmp_path}
    for name, value in {**given, "TLS_CERT": certificate, "TLS_KEY": key}.items():
        monkeypatch.setenv(f"GREENCRAWL_{name}", str(value))
    settings = load()
    now = 100.0
    exporter = Exporter(settings, lock_id(settings), clock=lambda: now)
    whole = Path(certificate).read_text()
    Path(certificate).write_text(whole[: len(whole) // 2])
    try:
        exporter.look()
        for seconds in (1.0, 2.0, 4.0):
            assert exporter._process
            assert exporter._process.wait(20) == EX_CONFIG
            now += seconds - 0.1
            exporter.look()
            assert exporter._process is None
            now += 0.1
            exporter.look()
        assert exporter._process
        assert exporter._process.wait(20) == EX_CONFIG
        Path(certificate).write_text(whole)
        now += MOST_AGAIN_SECONDS
        exporter.look()
        context = ssl.create_default_context(cafile=str(ca))
        address = f"https://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(address, timeout=20, context=context) as answer:
            assert answer.status == 200
    finally:
        exporter.close()
    said = capfd.readouterr().err
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if "metrics_not_served" in line]
    assert len(lines) >= 3
    assert all("GREENCRAWL_TLS_CERT: cannot be used" in line for line in lines)


def test_gauges_of_a_dead_process_are_zero(tmp_path: Path) -> None:
    port = free_port()
    scraped = Scraped(port)
    dies = COUNTS.replace("while True:", 'while not (settings.data / "die").exists():')
    with SupervisorProcess(tmp_path, dies, metrics_bind=f"127.0.0.1:{port}") as worker:
        labels = '{process="0"}'
        wait_until(lambda: scraped.value("greenlets_busy", labels) == 3, 10, "it is busy")
        (worker.data / "die").touch()
        worker.wait_starts(2)
        assert scraped.value("greenlets_busy", labels) == 0
        assert scraped.value("pages_total", labels) > 0


def test_no_metrics_are_served_or_shared_unless_they_are_asked_for(tmp_path: Path) -> None:
    idle = COUNTS.replace("tallies.file_of(folder, settings.worker_id, int(number))", "None")
    with SupervisorProcess(tmp_path, idle) as worker:
        worker.wait_starts(1)
        assert worker.process
        assert len(psutil.Process(worker.process.pid).children()) == 1
        assert not list((worker.data / "worker").glob("*.tallies"))
