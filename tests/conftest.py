"""Fixtures that all tests share. gevent patches first, as in the processes."""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from greencrawl.schema import log  # noqa: E402
from greencrawl.store.mysql.cluster.local import cluster  # noqa: E402
from tests.support import ports  # noqa: E402
from tests.support.effort import LONG  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402

# Processes that a test starts are those of this checkout, whichever package is installed.
SRC = str(Path(__file__).resolve().parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SRC, os.environ.get("PYTHONPATH")]))

# By day each run tries the same examples, so that only a change of the code can make a test fail.
settings.register_profile("day", derandomize=True)
if not LONG:
    settings.load_profile("day")

# A command that a test runs in this process would permanently set the level of all its loggers.
log.configure = lambda *_: None
# Tests that run at the same time must not choose the same port for a cluster's server.
cluster.free_ports = ports.free_ports


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.stop()
