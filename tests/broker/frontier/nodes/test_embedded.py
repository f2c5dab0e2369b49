"""The embedded Redis: what is started is ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import gevent
import psutil
import pytest
from gevent.event import Event

from greencrawl.broker.__main__ import BrokenOff, breaking_off
from greencrawl.broker.frontier.nodes.embedded import EmbeddedRedis


def servers(folder: Path) -> list[int]:
    """Processes that have that folder as theirs."""
    found = []
    for pid in psutil.pids():
        try:
            if Path(psutil.Process(pid).cwd()) == folder:
                found.append(pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("switches", [0, 1, 2])
def test_a_start_that_is_broken_off_leaves_no_server(tmp_path: Path, switches: int) -> None:
    """It is told so in the very moment at which the server's process begins, or soon after."""
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
def test_a_start_that_is_broken_off_ends_the_server_that_it_takes_over(
    tmp_path: Path, switches: int
) -> None:
    folder = tmp_path / "redis"
    killed, embedded, stop = EmbeddedRedis(folder), EmbeddedRedis(folder), Event()
    killed.start()
    assert killed._watch is not None
    killed._watch.kill()
    assert killed._lock is not None
    os.close(killed._lock)  # as of a broker that was killed

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
