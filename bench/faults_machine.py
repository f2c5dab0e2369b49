"""Rows 11 to 13 of ``make faults``: Redis' memory, its disk and SQL's disk full, Redis' clock."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent

from tests.support.faketime import ClockedRedis, library
from tests.support.faultrig import Fault, Result, Rig, Row, Say, run
from tests.support.system import wait_until
from tests.support.web import WebSpec

# --- the clock ---------------------------------------------------------------------------------

HOUR = 3600


def prepare_clock(rig: Rig) -> None:
    """Give Redis a clock of its own."""
    rig.redis = ClockedRedis(rig.folder / "redis")


def jump(rig: Rig) -> None:
    """An hour forward, back, an hour back, forward again; work at stake each time."""
    server = rig.redis
    assert isinstance(server, ClockedRedis)
    for offset in (HOUR, 0, -HOUR, 0):
        rig.until_at_stake()
        with rig.blow(f"Redis' clock {offset:+d} s"):
            server.set_clock(offset)
        rig.until_leasing()


def clock_kept(rig: Rig) -> list[str]:
    """No lease storm: no task was delivered again, no error charged; the offset was set."""
    offset = int(rig.redis.client.hget("gc:owner", "offset") or 0)
    rig.notes["offset in the end, ms"] = offset
    jumps = rig.system.folder.joinpath("broker.log").read_text().count("clock_set")
    rig.notes["corrections by the broker"] = jumps
    stats = rig.stats()
    findings = []
    if stats.get("retries") or stats.get("failures"):
        findings.append(f"charged: {stats}")
    return findings


CLOCK = Fault(
    "the Redis machine's clock jumps an hour, either way",
    jump,
    "calls carry the time expected; beyond 2 s nothing is done and the offset is set once",
    rows=(13,),
    web=WebSpec(pages=12_000),
    delay=0.1,
    settings={"lease_seconds": "10", "request_seconds": "2"},
    prepare=prepare_clock,
    check=clock_kept,
    refetched="none",
)


def clock(folder: Path, say: Say, small: bool) -> Result:
    """Row 13, where libfaketime is installed."""
    if library() is None:
        result = Result(CLOCK.name, CLOCK.rows, CLOCK.mechanism)
        result.why_not.append("libfaketime is not installed: apt-get install libfaketime")
        return result
    return run(replace(CLOCK, web=replace(CLOCK.web, pages=8000)) if small else CLOCK, folder, say)


ROWS: dict[int, Row] = {13: clock}
