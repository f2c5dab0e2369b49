"""The parts of a worker process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import ExtendItem, ExtendRequest
from greencrawl.schema.settings import load
from greencrawl.worker.child import broker_of
from greencrawl.worker.process.supervisor import EX_NO_ROOM
from tests.broker.test_client import Peer, answer, hang
from tests.support.system import System

LEASE_SECONDS = 3.0
EXTEND = ExtendRequest((ExtendItem(session="s", token="t"),), LEASE_SECONDS)


def test_a_worker_leaves_a_silent_broker_for_the_next_before_its_leases_end() -> None:
    silent, other = Peer(hang), Peer(answer("200 OK", b'{"results":["ok"]}'))
    both = f"{silent.url},{other.url}"
    client = broker_of(load({}, broker=both, lease_seconds=str(LEASE_SECONDS)))
    began = monotonic()
    try:
        with pytest.raises(Unavailable, match="timed out"):
            client.extend(EXTEND)
        assert client.extend(EXTEND).results == ("ok",)
        # It is sent when a third of the lease is over.
        assert monotonic() - began < LEASE_SECONDS * 2 / 3
    finally:
        client.disconnect()
        for peer in (silent, other):
            peer.server.stop(timeout=0.1)


def test_a_child_that_starts_on_a_full_disk_says_so_in_one_line_without_a_traceback(
    tmp_path: Path,
) -> None:
    most_bytes = 40_000
    """Room for the crash record, and not for the table of requests under way."""
    with System(tmp_path) as system:
        system.start_broker()
        settings = {f"GREENCRAWL_{name}": value for name, value in system.variables.items()}
        found = subprocess.run(
            [sys.executable, "-P", "-m", "greencrawl.worker", "--child", "0"],
            env=os.environ | settings,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    said = found.stdout + found.stderr
    assert found.returncode == EX_NO_ROOM, said
    line = said.rstrip("\n")
    assert "\n" not in line, said
    assert "disk_space_exhausted" in line
    assert "make room there" in line
    assert str(tmp_path / "data") in line
