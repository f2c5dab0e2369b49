"""The messages for a node's errors."""

from __future__ import annotations

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from greencrawl.broker.frontier.nodes.failures import Full, translated
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable

RAW = (
    "MISCONF Errors writing to the AOF file: No space left on device script: "
    "8f3c2f0b1d, on @user_script:1."
)


def test_a_full_disk_of_redis_is_reported_in_plain_words() -> None:
    for said in (
        translated(ResponseError(RAW), "admit", "unix:///d/redis.sock"),
        Node("unix:///d/redis.sock")._unavailable(ResponseError(RAW)),
    ):
        assert isinstance(said, Unavailable)
        assert str(said).startswith("Redis at unix:///d/redis.sock cannot write to its disk: is it")
        assert "script" not in str(said)
        assert "MISCONF" not in str(said)


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'. script: 8f3c"),
        ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: 8f3c"),
    ],
)
def test_the_memory_limit_of_redis_is_reported_in_plain_words(error: Exception) -> None:
    said = translated(error, "admit", "redis://r")
    assert isinstance(said, Full)
    assert "script" not in str(said)
