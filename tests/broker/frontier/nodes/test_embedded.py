"""The embedded Redis: a server that was started is ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import gevent
import psutil
import pytest
from gevent.event import Event
from structlog.testing import capture_logs

from greencrawl.broker.__main__ import BrokenOff, breaking_off
from greencrawl.broker.frontier.nodes.embedded import EmbeddedRedis
from greencrawl.schema.errors import Unavailable

EMBEDDED = "greencrawl.broker.frontier.nodes.embedded"


def servers(folder: Path) -> list[int]:
    """Return the processes that use that folder."""
    found = []
    for pid in psutil.pids():
        try:
            if Path(psutil.Process(pid).cwd()) == folder:
                found.append(pid)
        except psutil.Error:
            continue
    return found


def left_server(folder: Path) -> psutil.Process:
    """Return the server of a broker that was killed."""
    killed = EmbeddedRedis(folder)
    killed.start()
    assert killed._watch is not None
    killed._watch.kill()
    assert killed._lock is not None
    os.close(killed._lock)
    return psutil.Process(killed._pid)


@pytest.mark.parametrize("switches", [0, 1, 2])
def test_a_start_of_redis_that_is_broken_off_leaves_no_server(
    tmp_path: Path, switches: int
) -> None:
    """The signal comes just when the server's process begins, or soon after."""
    folder = tmp_path / "redis"
    embedded, stop = EmbeddedRedis(folder), Event()

    def tell() -> None:
        for _ in range(switches):
            gevent.sleep(0)
        stop.set()

    teller = gevent.spawn(tell)
    with pytest.raises(BrokenOff), breaking_off(stop):
        embedded.start()
    teller.join()
    embedded.stop()
    assert servers(folder) == []
    again = EmbeddedRedis(folder)
    again.start()
    again.stop()
    assert servers(folder) == []


@pytest.mark.parametrize("switches", [0, 1, 2, 3, 5, 8])
def test_a_start_of_redis_that_is_broken_off_ends_the_server_that_it_takes_over(
    tmp_path: Path, switches: int
) -> None:
    folder = tmp_path / "redis"
    embedded, stop = EmbeddedRedis(folder), Event()
    left_server(folder)

    def tell() -> None:
        for _ in range(switches):
            gevent.sleep(0)
        stop.set()

    teller = gevent.spawn(tell)
    with suppress(BrokenOff), breaking_off(stop):
        embedded.start()
    teller.join()
    embedded.stop()
    assert servers(folder) == []


def test_no_second_redis_is_started_beside_a_silent_one_that_was_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers would write the same files. The first may be frozen, or have much to read."""
    monkeypatch.setattr(f"{EMBEDDED}.ANSWER_SECONDS", 0.1)
    folder = tmp_path / "redis"
    left = left_server(folder)
    left.suspend()
    embedded = EmbeddedRedis(folder)
    start = gevent.spawn(embedded.start)
    with capture_logs() as logs:
        while not any(entry["event"] == "redis_not_answered" for entry in logs):
            gevent.sleep(0.01)
        assert servers(folder) == [left.pid]
        left.resume()
        start.get()
    assert servers(folder) == [left.pid]
    embedded.stop()
    assert servers(folder) == []


def test_a_start_names_the_process_of_a_redis_that_stays_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "redis"
    left = left_server(folder)
    monkeypatch.setattr(f"{EMBEDDED}.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(f"{EMBEDDED}.START_SECONDS", 0.05)
    left.suspend()
    embedded = EmbeddedRedis(folder)
    try:
        with pytest.raises(Unavailable, match=f"process {left.pid}, does not answer"):
            embedded.start()
        embedded.stop()
        assert servers(folder) == [left.pid], "it is left to who knows why it is silent"
    finally:
        left.resume()
        left.terminate()
        left.wait()
