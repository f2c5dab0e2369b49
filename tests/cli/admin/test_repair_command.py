"""``greencrawl repair`` against a real broker: the command, the API, and their output."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import Refused
from greencrawl.schema.records import CreateCrawl, Seed, SeedRequest
from greencrawl.store import open_store
from tests.broker.frontier.test_frontier import until
from tests.support.broker_process import BrokerProcess
from tests.support.checkout import ROOT
from tests.support.redis_server import RedisServer

URLS = 40_000


class Scene:
    """A broker on a Redis, and the command that uses it."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.folder = folder / "data"
        self.redis = redis
        self.broker = BrokerProcess(
            self.folder, redis=redis.url, lease_seconds="1", request_seconds="1"
        )

    def start(self) -> BrokerClient:
        return self.broker.start().client()

    def command(self, *options: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        return subprocess.Popen(
            [sys.executable, "-m", "greencrawl.cli", "repair", *options],
            cwd=ROOT,
            env={**kept, "GREENCRAWL_BROKER": self.broker.url, "GREENCRAWL_DATA": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str, str]:
        process = self.command(*options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def scene(tmp_path: Path, redis_server: RedisServer) -> Iterator[Scene]:
    made = Scene(tmp_path, redis_server)
    yield made
    made.broker.stop()


def fill(client: BrokerClient, count: int) -> None:
    client.put_crawl(CreateCrawl(name="test", scope="any"))
    urls = tuple(Seed(f"https://h{n % 50}.example/{n}") for n in range(count))
    assert client.seed("test", SeedRequest(urls)).added == count


def test_repair_refills_a_redis_that_lost_data_and_says_how_much(scene: Scene) -> None:
    client = scene.start()
    fill(client, 100)
    assert [node.phase for node in client.repairs().nodes] in (["none"], ["done"])
    keys = scene.redis.client.keys("gc:{*")
    scene.redis.client.delete(*keys)
    code, out, err = scene.run("--all")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"1 Redis node\(s\) refilled: 1 rows in 0:0\d\n", out), out
    until(lambda: client.stats("test").crawls[0].waiting == 100)
    assert scene.run()[0] == 0


def test_ctrl_c_ends_the_command_and_not_the_repair(scene: Scene) -> None:
    client = scene.start()
    fill(client, URLS)
    process = scene.command("--all")
    server = scene.redis.process
    assert server is not None
    until(lambda: client.repairs().nodes[0].phase == "seeds", 20)
    server.send_signal(signal.SIGSTOP)  # otherwise it would be finished too soon
    gevent.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    server.send_signal(signal.SIGCONT)
    assert process.returncode == 128 + signal.SIGINT
    assert "goes on at the broker" in err
    until(lambda: client.repairs().nodes[0].phase == "done", 30)


def test_a_broker_stays_up_if_its_store_lost_data_and_repair_says_what_to_do(scene: Scene) -> None:
    client = scene.start()
    fill(client, 10)
    scene.broker.stop()
    shutil.copy(scene.folder / "content.sqlite", scene.folder / "backup")
    client = scene.start()
    fill_more = SeedRequest(tuple(f"https://late.example/{n}" for n in range(5)))
    client.seed("test", fill_more)
    ticks = lambda: int(scene.redis.client.hget("gc:owner", "tick") or 0)  # noqa: E731
    seen = _clock(scene)
    until(lambda: client.seed("test", fill_more) and ticks() > seen, 10)
    scene.broker.stop()
    for name in ("", "-wal", "-shm"):
        (scene.folder / f"content.sqlite{name}").unlink(missing_ok=True)
    shutil.copy(scene.folder / "backup", scene.folder / "content.sqlite")
    process = scene.broker.spawn()
    client = scene.broker.client()
    until(lambda: scene.broker.log().count("broker_started") == 3, 20)
    assert process.poll() is None
    assert not client.ready()
    code, _, err = scene.run()
    assert code == 1
    assert "greencrawl repair --all" in err
    code, out, _ = scene.run("--all")
    assert code == 0
    assert "refilled" in out
    assert client.ready()
    until(lambda: client.stats("test").crawls[0].waiting == 10)


def _clock(scene: Scene) -> int:
    store = open_store(f"sqlite:///{scene.folder / 'backup'}")
    try:
        return store.clock().clock
    finally:
        store.close()


def test_repair_is_for_administrators(tmp_path: Path, redis_server: RedisServer) -> None:
    broker = BrokerProcess(
        tmp_path / "data", redis=redis_server.url, worker_token="w" * 16, admin_token="a" * 16
    ).start()
    try:
        worker = BrokerClient([broker.url], "w" * 16)
        for ask in (worker.repairs, lambda: worker.repair(True)):
            with pytest.raises(Refused, match="403"):
                ask()
        assert broker.client().repairs().nodes
    finally:
        broker.stop()
