"""What the parts that are harmed tell of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nemesis.parts import RedisPart
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
