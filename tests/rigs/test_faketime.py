"""The Redis whose clock can be set goes on running when the clock jumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faketime import ClockedRedis, library

pytestmark = pytest.mark.skipif(library() is None, reason="libfaketime is not installed")


@pytest.mark.parametrize("offset", [3600, -3600])
def test_the_clock_of_a_running_redis_jumps_and_comes_back(tmp_path: Path, offset: int) -> None:
    server = ClockedRedis(tmp_path)
    try:
        server.start()
        run = server.client.info("server")["run_id"]
        assert abs(server.offset()) < 0.5
        server.set_clock(offset)
        assert abs(server.offset() - offset) < 0.5
        assert server.client.info("server")["run_id"] == run
        server.set_clock(0)
        assert abs(server.offset()) < 0.5
    finally:
        server.stop()
