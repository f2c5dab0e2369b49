"""The reports of the harmed parts about themselves, and what is remembered of them."""

from __future__ import annotations

import math
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tests.nemesis import reading
from tests.nemesis.faults import Done, Strokes
from tests.nemesis.parts import RedisPart
from tests.nemesis.reading import sqlite_writer
from tests.nemesis.schedule import Event
from tests.support.redis_server import RedisServer, binaries, free_port


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[RedisPart]:
    part = RedisPart("A2", tmp_path / "A2", binaries()[0], clocked=False)
    part.master_port = free_port()
    yield part
    part.kill()


def test_a_replica_that_was_never_in_step_has_an_infinite_lag(
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


def test_a_copy_of_a_node_made_before_its_replay_counts_as_older(
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
        """Write the log of a broker that has given a node everything that it missed."""
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


def test_a_node_starts_from_its_dump_if_it_has_no_append_only_file(tmp_path: Path) -> None:
    node = RedisPart("A1", tmp_path / "A1", binaries()[0], clocked=False)
    node.start()
    try:
        node.until_up()
        node.client.set("told", "something")
        assert node.copy(tmp_path / "copy.rdb")
        node.kill()
        node.restore(tmp_path / "copy.rdb")
        node.kill()
        for path in node.folder.glob("appendonly*"):  # as if it had not got that far
            path.unlink()
        node.start()
        node.until_up()
        assert node.client.get("told") == "something"
        assert node.client.config_get("appendonly") == {"appendonly": "yes"}
    finally:
        node.kill()


def test_a_node_killed_before_its_file_is_written_counts_as_empty(tmp_path: Path) -> None:
    node = RedisPart("A1", tmp_path / "A1", binaries()[0], clocked=False)
    world: Any = SimpleNamespace(parts={"A1": node}, master=lambda _: node)
    strokes = Strokes(world, print)

    def kill() -> float:
        strokes.strike(Event(0.0, "kill", 0.0, {"part": "A1", "what": "all"}))
        strokes.finish(30)
        assert not strokes.done[-1].skipped
        return strokes.done[-1].since

    node.start()
    try:
        node.until_up()
        node.client.set("told", "something")
        assert node.copy(tmp_path / "copy.rdb")
        node.kill()
        node.restore(tmp_path / "copy.rdb")
        assert node.written(), "it has waited for that"
        assert kill() > 0
        node.until_up()
        assert node.client.get("told") == "something"
        node.kill()
        node.restore(tmp_path / "copy.rdb")
        pid = node.client.info("server")["process_id"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (8, 8))  # as on a full disk
        node.client.config_set("appendonly", "no")
        with suppress(redis.ResponseError):
            node.client.config_set("appendonly", "yes")
        node._written = False
        assert not node.written()
        assert kill() == -math.inf
    finally:
        node.kill()


def test_an_older_copy_is_not_taken_for_one_that_could_not_be_written(tmp_path: Path) -> None:
    node = RedisPart("A1", tmp_path / "A1", binaries()[0], clocked=False)
    node.start()
    try:
        node.until_up()
        assert node.copy(tmp_path / "copy.rdb")
        pid = node.client.info("server")["process_id"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (8, 8))  # as on a full disk
        assert not node.copy(tmp_path / "copy.rdb")
    finally:
        node.kill()


def test_a_node_is_not_put_back_to_an_old_copy_if_no_fresh_one_could_be_written(
    tmp_path: Path,
) -> None:
    node = RedisPart("A1", tmp_path / "A1", binaries()[0], clocked=False)
    node.start()
    try:
        node.until_up()
        old = tmp_path / "copy-A.rdb"
        assert node.copy(old)
        copies = {"A": (old, 0.0)}
        world: Any = SimpleNamespace(folder=tmp_path, copies=copies, master=lambda _: node)
        strokes = Strokes(world, print)
        process = node.client.info("server")["process_id"]
        resource.prlimit(process, resource.RLIMIT_FSIZE, (8, 8))  # as on a full disk
        strokes.strike(Event(0.0, "older", 0.0, {"node": "A", "fresh": True}))
        strokes.finish(30)
        assert strokes.done[-1].skipped
        assert node.client.info("server")["process_id"] == process
    finally:
        node.kill()


class WritesToSqlite:
    """A part that is frozen while it writes, if it ``writes``."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        body = (
            "import sqlite3, sys\n"
            f"db = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
            "db.execute('PRAGMA journal_mode=WAL')\n"
            f"db.execute({'BEGIN IMMEDIATE' if writes else 'SELECT 1'!r})\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def family(self) -> list[subprocess.Popen[bytes]]:
        return [self.process]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_frozen_process_that_writes_to_sqlite_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    writer, other = (WritesToSqlite(path, writes=writes) for writes in (True, False))
    try:
        parts = {"w1": writer, "w2": other}
        world: Any = SimpleNamespace(store="sqlite", sqlite=path, parts=parts, master=None)
        strokes = Strokes(world, print)
        for name, holds in (("w1", True), ("w2", False)):
            strokes.strike(Event(0.0, "stop", 0.0, {"part": name}))
            strokes.finish(10)
            assert strokes.done[-1].skipped == ""
            assert strokes.done[-1].holds_sql is holds
    finally:
        writer.end()
        other.end()
    assert sqlite_writer(path) == 0


def test_a_waiting_retry_is_recognised_by_the_clock_of_its_node(redis_server: RedisServer) -> None:
    client = redis_server.client
    assert not reading.retries_wait(client)
    client.hset("gc:owner", "offset", -5000)
    client.zadd("gc:{3}:later", {"1\nh\nA0,0,1,0h/x": (time.time() - 2) * 1000})
    assert reading.retries_wait(client), "it is three seconds earlier there"
    client.hset("gc:owner", "offset", 0)
    assert not reading.retries_wait(client)
