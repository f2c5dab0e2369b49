"""A system with two loggers: any broker finds each line of the processes, once.

The tests compare with what the processes wrote to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import gevent
import pytest
from click.testing import CliRunner

from greencrawl.cli.reading.logs import logs
from tests.support.checkout import ROOT
from tests.support.logger_process import LoggerProcess
from tests.support.system import System, wait_until

SECONDS = 30.0
NODE = "node"
Said = tuple[str, str, str]


class Rig:
    def __init__(self, system: System, loggers: list[LoggerProcess]) -> None:
        self.system, self.loggers = system, loggers

    def order(self, **options: Any) -> None:
        """Make all processes write a line: they follow the order at once and log it."""
        self.system.call("PATCH", "/v1/orders", {"member": "*", "options": options})

    def said(self, part: str, process: str) -> Counter[Said]:
        """Return all that a process wrote to standard error."""
        text = (self.system.folder / f"{part}.log").read_text()
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return Counter(name_of(one) for one in found if one["process"] == process)

    def kept(self, **query: object) -> list[dict[str, Any]]:
        """Return what the loggers have, page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            asked = "&".join(f"{k}={v}" for k, v in {"limit": 50, "after": after, **query}.items())
            reply = self.system.call("GET", f"/v1/logs?{asked}")
            assert reply["silent"] == []
            found += reply["items"]
            after = reply["next"]
            if not after:
                return found

    def names(self, **query: object) -> Counter[Said]:
        return Counter(name_of(one["said"]) for one in self.kept(**query))


def name_of(said: dict[str, Any]) -> Said:
    return said["process"], said["timestamp"], said["event"]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("logs")
    with System(folder, worker_id=NODE) as system:
        loggers = [LoggerProcess(folder / name, broker=system.variables["BROKER"]) for name in "ab"]
        try:
            system.start_broker()
            for logger in loggers:
                logger.start()
            wait_until(
                lambda: len(system.call("GET", "/v1/logs")["loggers"]) == 2, SECONDS, "they joined"
            )
            rig = Rig(system, loggers)
            rig.order(log_level="info")
            system.start_worker()
            yield rig
        finally:
            for logger in loggers:
                logger.kill()


def test_each_line_is_kept_once_though_both_loggers_are_killed(rig: Rig) -> None:
    worker = "worker-0"
    wait_until(
        lambda: any(one["event"] == "worker_started" for one in rig.kept()), SECONDS, "it says"
    )
    for logger in rig.loggers:
        logger.kill()
    for greenlets in range(50, 55):
        rig.order(greenlets=greenlets)
        wait_until(
            lambda greenlets=greenlets: any(  # type: ignore[misc]
                f'"greenlets": {greenlets}' in line
                for line in (rig.system.folder / "worker.log").read_text().splitlines()
            ),
            SECONDS, "the worker has said so",
        )  # fmt: skip
    reply = rig.system.call("GET", "/v1/logs")
    assert reply["items"] == []
    assert {one["logger"] for one in reply["silent"]} == {one.url for one in rig.loggers}
    for logger in rig.loggers:
        logger.start()
    expected = rig.said("worker", worker)
    assert sum(event == "orders_received" for _, _, event in expected) >= 5
    # Meanwhile it may log more, for example that a logger takes its lines again.
    wait_until(
        lambda: rig.names(node=NODE) == rig.said("worker", worker), SECONDS, "all are kept, once"
    )
    assert max(rig.names().values()) == 1


def test_a_restarted_broker_sends_all_its_lines_to_the_loggers(rig: Rig) -> None:
    broker = rig.system.broker
    assert broker is not None
    broker.terminate()
    assert broker.wait(20) == 0
    before = datetime.now(UTC).isoformat()
    rig.system.start_broker()
    said = rig.said("broker", "broker")
    expected = Counter({name: count for name, count in said.items() if name[1] >= before})
    assert {"settings_loaded", "broker_started"} <= {event for _, _, event in expected}
    node = f"{NODE}-broker-{rig.system.port}"
    wait_until(lambda: expected - rig.names(node=node) == Counter(), SECONDS, "all are kept")


def run(rig: Rig, *arguments: str) -> Any:
    """Run the command; it asks this system's broker."""
    env = {k: "" for k in os.environ if k.startswith("GREENCRAWL_")}
    return CliRunner().invoke(
        logs, arguments, env={**env, "GREENCRAWL_BROKER": rig.system.variables["BROKER"]},
        standalone_mode=False,
    )  # fmt: skip


def test_the_logs_command_shows_the_lines_that_match(rig: Rig) -> None:
    shown = run(rig, "--node", NODE, "--since", "1h")
    assert shown.return_value == 0
    lines = shown.stdout.splitlines()
    assert len(lines) == len(rig.kept(node=NODE))
    assert any("worker_started" in line and f"{NODE}-0" in line for line in lines)
    found = run(rig, "--json", "--url", "worker_started").stdout.splitlines()
    assert [json.loads(line)["event"] for line in found] == ["worker_started"]
    assert run(rig, "--level", "critical").stdout == ""
    assert run(rig, "--crawl", "nobody").stdout == ""


def test_the_logs_command_follows_new_lines(rig: Rig) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    environ["GREENCRAWL_BROKER"] = rig.system.variables["BROKER"]
    command = [sys.executable, "-m", "greencrawl", "logs", "-f", "--json", "--node", NODE]
    with subprocess.Popen(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            rig.order(greenlets=77)
            keys = [first["sequence"]]
            with gevent.Timeout(SECONDS):
                while True:
                    one = json.loads(process.stdout.readline())
                    keys.append(one["sequence"])
                    if one["said"].get("greenlets") == 77:
                        break
            assert len(keys) == len(set(keys))
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


def test_the_logs_command_names_a_logger_that_did_not_answer(rig: Rig) -> None:
    rig.loggers[0].kill()
    shown = run(rig, "--since", "1h")
    assert shown.return_value == 1
    assert f"{rig.loggers[0].url} did not answer" in shown.stderr
