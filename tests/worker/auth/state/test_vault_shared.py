"""Real processes share logins on a real frontier: one at a time, and never an old one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gevent.event import Event

from greencrawl.broker.frontier.frontier import Frontier
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.settings import Settings, load
from greencrawl.store import open_store
from greencrawl.worker import child
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.auth.state.vault import Vault, open_vault
from tests.support.checkout import ROOT
from tests.support.effort import cases
from tests.support.redis_server import RedisServer, binaries
from tests.support.system import wait_until

NAME = "shop-0123456789ab"
KEY = "k" * 40
SECRET = "a-cookie-of-the-site"

_WORKER = """
import sys
from gevent.fileobject import FileObject
from greencrawl.schema.errors import Unavailable
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.auth.state.vault import open_vault
from tests.worker.auth.state.test_vault_shared import NAME, joined, settings
from pathlib import Path

folder, url, shared, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "1", sys.argv[4]
vault = open_vault(settings(folder, url, shared), joined(folder, url))
vault._claim_seconds = float(seconds)
print("ready", flush=True)
for line in FileObject(sys.stdin):
    what, _, value = line.strip().partition(" ")
    if what == "claim":
        claim = vault.claim(NAME)
        print(claim.count if claim else 0, flush=True)
    elif what == "put":
        grant = Grant(account=value, generation=1, made_ms=1)
        try:
            print(claim.put(grant), grant.generation, flush=True)
        except Unavailable:
            print("Unavailable", flush=True)
    elif what == "drop":
        claim.drop()
        print("dropped", flush=True)
    elif what == "read":
        kept = vault.read(NAME)
        print(kept and (kept.account, kept.generation), flush=True)
"""


def settings(folder: Path, url: str, shared: bool) -> Settings:
    return load(
        {
            "GREENCRAWL_DATA": str(folder),
            "GREENCRAWL_REDIS": url,
            "GREENCRAWL_SESSION_KEY": KEY if shared else "",
            "GREENCRAWL_STORE": f"sqlite:///{folder.parent / 'content.sqlite'}",
            "GREENCRAWL_PARTITIONS": "4",
        }
    )


def joined(folder: Path, url: str, *, create: bool = False) -> Frontier:
    store = open_store(f"sqlite:///{folder.parent / 'content.sqlite'}")
    return Frontier([url], store, partitions=4, create=create)


class Worker:
    """Another process with a vault; the test tells it what to do."""

    def __init__(self, folder: Path, url: str, *, shared: bool, seconds: float = 60.0) -> None:
        arguments = [str(folder), url, str(int(shared)), str(seconds)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._said() == "ready"

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def ask(self, what: str) -> str:
        self.tell(what)
        return self._said()

    def _said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


# By day ``test_logins`` runs the scripts of logins on the older one.
@pytest.fixture(params=cases(binaries()[-1:], binaries()[:-1]))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", request.param).start()
    joined(tmp_path / "a", server.url, create=True)
    yield server
    server.stop()


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.url


def vault(folder: Path, url: str, *, shared: bool = True) -> Vault:
    return open_vault(settings(folder, url, shared), joined(folder, url))


@pytest.mark.parametrize("shared", [False, True])
def test_a_process_frozen_in_its_login_overwrites_nothing_when_it_wakes(
    tmp_path: Path, url: str, shared: bool
) -> None:
    folder = tmp_path / "a"
    with (
        Worker(folder, url, shared=shared, seconds=1.0) as frozen,
        Worker(folder, url, shared=shared) as other,
    ):
        assert frozen.ask("claim") == "1"
        assert other.ask("claim") == "0"
        frozen.process.send_signal(signal.SIGSTOP)
        frozen.tell("put frozen")
        wait_until(lambda: other.ask("claim") == "2", 20, "the claim of the frozen one ends")
        assert other.ask("put other") == "True 1"
        assert other.ask("drop") == "dropped"
        before = (folder / "logins" / f"{NAME}.json").read_bytes()
        frozen.process.send_signal(signal.SIGCONT)
        assert frozen._said() == "False 1"
        assert (folder / "logins" / f"{NAME}.json").read_bytes() == before
        assert frozen.ask("read") == "('other', 1)"
        assert frozen.ask("drop") == "dropped"
        assert other.ask("claim") == "1", "the count begins anew"


def test_one_of_many_processes_may_log_in_at_a_time(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "a"
    workers = [Worker(folder, url, shared=False) for _ in range(4)]
    try:
        for turn in range(1, 6):
            for worker in workers:
                worker.tell("claim")
            counts = [worker._said() for worker in workers]
            assert sorted(counts) == ["0", "0", "0", "1"]
            winner = workers[counts.index("1")]
            assert winner.ask(f"put w{turn}") == f"True {turn}"
            assert winner.ask("drop") == "dropped"
            assert {worker.ask("read") for worker in workers} == {f"('w{turn}', {turn})"}
    finally:
        for worker in workers:
            worker.__exit__()


def test_the_grant_is_put_again_into_a_redis_that_lost_it(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        frontier = joined(tmp_path / "a", server.url, create=True)
        first = vault(tmp_path / "a", server.url)
        claim = first.claim(NAME)
        assert claim is not None
        with claim:
            assert claim.put(Grant(account="ann", generation=1, made_ms=1, headers={"x": SECRET}))
        assert SECRET not in str(everything(server))
        for key in server.client.keys("gc:*:a:*"):
            server.client.delete(key)
        assert frontier.login_get(NAME) is None
        other = vault(tmp_path / "b", server.url)
        assert other.read(NAME) is None
        assert first.read(NAME) is not None
        kept = other.read(NAME)
        assert kept is not None
        assert kept.headers == {"x": SECRET}
        assert SECRET not in str(everything(server))
        assert other.claim(NAME) is not None, "no claim was left over"
    finally:
        server.stop()


def test_no_machine_uses_a_token_that_was_spent_while_redis_was_down(
    tmp_path: Path, server: RedisServer
) -> None:
    """This also holds when the process that renewed it is dead and another takes its place."""
    url = server.url
    other = vault(tmp_path / "b", url)
    with Worker(tmp_path / "a", url, shared=True, seconds=1.0) as first:
        assert first.ask("claim") == "1"
        assert first.ask("put R1") == "True 1"
        assert first.ask("drop") == "dropped"
        assert first.ask("claim") == "1"
        server.kill()
        assert first.ask("put R2") == "Unavailable"
        assert first.ask("drop") == "dropped"
        joined(tmp_path / "a", server.start().url, create=True)  # as a broker does
        wait_until(lambda: account(other) == "R2", 20, "the grant is put")
        assert first.ask("claim") == "1"
        server.kill()
        assert first.ask("put R3") == "Unavailable"
    joined(tmp_path / "a", server.start().url, create=True)
    child.Worker(settings(tmp_path / "a", url, shared=True), 1, Event())
    wait_until(lambda: account(other) == "R3", 20, "the next process puts it")
    third = vault(tmp_path / "c", url)
    wait_until(lambda: third.claim(NAME), 20, "no claim is left over")


def account(vault: Vault) -> str | None:
    """Return whose grant the vault has; None while Redis is not up."""
    try:
        kept = vault.read(NAME)
    except Unavailable:
        return None
    return kept and kept.account


def everything(server: RedisServer) -> dict[str, object]:
    client = server.client
    found: dict[str, object] = {}
    for key in client.scan_iter():
        kind = client.type(key)
        if kind == "string":
            found[key] = client.get(key)
        elif kind == "hash" and ":a" in key:
            found[key] = client.hgetall(key)
    assert any(":a:" in key for key in found)
    return found
