"""A process that is forked from the template is as one that is executed, for whoever starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from greencrawl.broker.client import BrokerClient
from tests.support import template
from tests.support.broker_process import BrokerProcess
from tests.support.checkout import ROOT
from tests.support.effort import LONG
from tests.support.redis_server import RedisServer
from tests.support.template import popen

pytestmark = pytest.mark.skipif(LONG, reason="by night all processes are executed")

STATUS = [sys.executable, "-P", "-m", "greencrawl.cli", "status", "--data", "none"]


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate("", timeout=60)
    return process.returncode, out, err


def started(
    folder: Path, variables: dict[str, str], executed: bool = False
) -> subprocess.Popen[str]:
    start = subprocess.Popen if executed else popen
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    environment |= variables
    pipe = subprocess.PIPE
    return start(
        STATUS, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def test_it_says_and_ends_with_the_same(tmp_path: Path) -> None:
    given: list[dict[str, str]] = [{}, {"GREENCRAWL_LEASE_SECONDS": "never"}]
    for variables in given:
        forked = started(tmp_path, variables)
        executed = started(tmp_path, variables, executed=True)
        assert type(forked) is not type(executed)
        said = outcome(executed)
        assert outcome(forked) == said
        assert said[0] != 0
        assert said[2] != ""


def test_it_is_our_child_and_ends_by_signals(tmp_path: Path, redis_server: RedisServer) -> None:
    broker = BrokerProcess(tmp_path / "broker", redis=redis_server.url).start()
    try:
        process = broker.process
        assert process is not None
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert broker.stop() == 0
        broker.start()
        assert broker.process is not None
        os.kill(broker.process.pid, signal.SIGKILL)
        assert broker.process.wait(10) == -signal.SIGKILL
    finally:
        broker.kill()


def test_what_python_or_the_loader_reads_at_a_start_has_it_executed(tmp_path: Path) -> None:
    for name in ("PYTHONHASHSEED", "LD_PRELOAD", "TZ"):
        process = started(tmp_path, {name: ""})
        assert type(process) is subprocess.Popen, name
        process.kill()
        process.wait()


def test_all_of_ours_is_imported_anew() -> None:
    program = """
import sys
from tests.support import template
template._prepare()
print("redis" in sys.modules, [name for name in sys.modules if "greencrawl" in name])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_two_brokers_of_one_template_share_nothing(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    brokers = [BrokerProcess(tmp_path / "data", redis=redis_server.url) for _ in range(2)]
    try:
        for one in brokers:
            one.start()
        assert len(template._templates) == 1
        clients: list[BrokerClient] = [one.client() for one in brokers]
        assert [one.ready() for one in clients] == [True, True]
        brokers[0].kill()
        assert [one.ready() for one in clients] == [False, True]
    finally:
        for one in brokers:
            one.stop()
