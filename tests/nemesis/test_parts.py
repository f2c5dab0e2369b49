"""What the parts that are harmed tell of themselves, and what is remembered of them."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.nemesis.faults import Done, Strokes
from tests.nemesis.parts import RedisPart
from tests.nemesis.reading import write_lock_is_held
from tests.nemesis.schedule import Event
from tests.support.redis_server import binaries, free_port


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[RedisPart]:
    part = RedisPart("A2", tmp_path / "A2", binaries()[0], clocked=False)
    part.master_port = free_port()
    yield part
    part.kill()


def test_a_replica_that_was_never_in_step_has_heard_of_nothing(
    replica: RedisPart, tmp_path: Path
) -> None:
    replica.start()
    replica.until_up()
    assert replica.lag_seconds() == math.inf
    master = RedisPart("A1", tmp_path / "A1", replica.binary, clocked=False)
    master.port = replica.master_port
    try:
        master.start()
        master.until_up()
        master.client.set("something", 1)
        assert master.client.wait(1, 20_000) == 1
        assert replica.lag_seconds() < 60
        master.client.flushall()
        assert master.client.wait(1, 20_000) == 1
        assert replica.lag_seconds() < 60  # empty, and in step
    finally:
        master.kill()


def test_a_copy_of_a_node_that_was_not_told_what_it_missed_is_older_than_it_looks(
    tmp_path: Path,
) -> None:
    node = RedisPart("A1", tmp_path / "A1", binaries()[0], clocked=False)
    world: Any = SimpleNamespace(folder=tmp_path, copies={}, master=lambda _: node)
    strokes = Strokes(world, print)

    def strike(kind: str) -> Done:
        strokes.strike(Event(0.0, kind, 0.0, {"node": "A"}))
        strokes.finish(30)
        done = strokes.done[-1]
        assert not done.skipped
        return done

    def tell() -> None:
        """What a broker writes that has given a node all that it missed."""
        run = node.client.info("server")["run_id"]
        node.client.hset("gc:owner", mapping={"run": run, "state": "open"})

    node.start()
    try:
        node.until_up()
        tell()
        first = strike("copy").began
        assert first <= strike("older").since
        untold = strike("copy").began
        assert first <= strike("older").since < untold
        tell()
        told = strike("copy").began
        assert strike("older").since >= told
    finally:
        node.kill()


def test_a_process_that_is_frozen_while_it_writes_to_sqlite_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    body = (
        "import sqlite3, sys\n"
        f"db = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "print('writes', flush=True)\n"
        "sys.stdin.read()\n"
    )
    assert not write_lock_is_held(path, 0.01)
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writes\n"
        writer.send_signal(signal.SIGSTOP)
        assert write_lock_is_held(path, 0.01)
        writer.kill()
    assert not write_lock_is_held(path, 0.01)
