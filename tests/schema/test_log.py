"""Logs that cannot be written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

from structlog.testing import capture_logs

from greencrawl.schema.log import Trouble, logger
from tests.support.checkout import ROOT


def test_a_process_that_logs_goes_on_when_the_disk_is_full() -> None:
    code = (
        "from greencrawl.schema import log\n"
        "log.configure('broker')\n"
        "for number in range(3):\n"
        "    log.logger('duties').info('not_renewed', number=number)\n"
        "print('goes on', flush=True)\n"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=full, text=True,
            env={"PYTHONPATH": str(ROOT / "src")}, check=False,
        )  # fmt: skip
    assert done.stdout == "goes on\n"


def test_each_log_line_is_written_in_one_system_call() -> None:
    code = (
        "from greencrawl.schema import log\n"
        "log.configure('broker')\n"
        "for number in range(3):\n"
        "    log.logger('duties').info('not_renewed', number=number)\n"
    )
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # a message for each call
    with ours, its:
        ours.settimeout(0)
        subprocess.run(
            [sys.executable, "-u", "-c", code], stderr=its,
            env={"PYTHONPATH": str(ROOT / "src")}, check=True,
        )  # fmt: skip
        lines = [ours.recv(65536) for _ in range(3)]
    assert [json.loads(line)["number"] for line in lines] == [0, 1, 2]
    assert all(line.endswith(b"}\n") for line in lines)


def test_a_long_failure_is_logged_at_its_beginning_once_a_minute_and_at_its_end() -> None:
    now = [0.0]
    with capture_logs() as lines:
        trouble = Trouble(logger("test"), "waits", "goes_on", clock=lambda: now[0])
        trouble.done()
        for _ in range(150):
            trouble.failed(reason="away")
            now[0] += 1
        trouble.done(node="n1")
        trouble.done()
    assert [(line["event"], line.get("lasted"), line.get("times")) for line in lines] == [
        ("waits", None, None), ("waits", 60, 61), ("waits", 120, 121), ("goes_on", 150.0, 150),
    ]  # fmt: skip
    assert (lines[0]["log_level"], lines[0]["reason"]) == ("warning", "away")
    assert (lines[-1]["log_level"], lines[-1]["node"]) == ("info", "n1")


def test_an_intermittent_failure_is_logged_no_more_often_than_a_lasting_one() -> None:
    now = [0.0]
    with capture_logs() as lines:
        trouble = Trouble(logger("test"), "waits", "goes_on", clock=lambda: now[0])
        for _ in range(119):
            trouble.failed()
            trouble.done()
            now[0] += 1
    assert [line["event"] for line in lines] == ["waits", "goes_on"] * 2
