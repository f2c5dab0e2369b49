"""A whole crawler that several tests share: each makes a crawl of its own, and harms no process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.redis_server import RedisServer
from tests.support.system import System


@contextmanager
def shared_system(folder: Path, *, processes: int = 1, **settings: str) -> Iterator[System]:
    """Start a system with a Redis of its own; its start takes longer than most crawls of a test."""
    redis_server = RedisServer(folder / "redis").start()
    try:
        with System(folder, [redis_server.url], processes=processes, **settings).start() as system:
            yield system
    finally:
        redis_server.stop()
