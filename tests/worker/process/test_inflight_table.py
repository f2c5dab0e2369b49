"""The table of requests under way that outlives its process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from greencrawl.schema.records import Session
from greencrawl.worker.process import inflight_table
from greencrawl.worker.process.inflight_table import InflightTable
from greencrawl.worker.session.held import Sessions

TOKENS = tuple(f"{number:016x}" for number in (1, 2, 2**64 - 1))


def session(token: str) -> Session:
    return Session(
        session="1/h", token=token, crawl=1, revision=1, host="h", ttl=60, delay=0, floor=0,
        robots_known=True, tasks=(),
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker" / "w-0.inflight"


def test_next_process_learns_which_sessions_had_no_request_under_way(path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        table = InflightTable(path)
        table.begin()
        sessions = Sessions(table)
        first, second, _ = (sessions.hold(session(token), 1e12) for token in TOKENS)
        assert first is not None
        assert second is not None
        with first.waiting(request=True):
            pass
        with second.waiting(request=True):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert sorted(InflightTable(path).left()) == [TOKENS[0], TOKENS[2]]


def test_a_session_that_is_over_is_not_in_the_inflight_table(path: Path) -> None:
    table = InflightTable(path)
    table.begin()
    sessions = Sessions(table)
    held = sessions.hold(session(TOKENS[0]), 1e12)
    assert held is not None
    sessions.fetched(held, closing=False)
    assert table.left() == ()
    assert sessions.hold(session(TOKENS[1]), 1e12) is not None
    assert table.left() == (TOKENS[1],)


def test_a_session_that_only_reads_has_no_request_under_way(path: Path) -> None:
    table = InflightTable(path)
    table.begin()
    held = Sessions(table).hold(session(TOKENS[0]), 1e12)
    assert held is not None
    with held.waiting(request=False):
        assert held.since is not None
        assert table.left() == (TOKENS[0],)
    assert held.since is None


def test_a_session_beyond_the_inflight_table_is_not_called_idle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight_table, "ROWS", 1)
    table = InflightTable(path)
    table.begin()
    sessions = Sessions(table)
    for token in TOKENS:
        held = sessions.hold(session(token), 1e12)
        assert held is not None
        with held.waiting(request=True):
            pass
    assert table.left() == (TOKENS[0],)


def test_the_inflight_table_is_ignored_after_a_reboot(path: Path) -> None:
    table = InflightTable(path, boot="one")
    table.begin()
    assert table.take(TOKENS[0]) is not None
    assert InflightTable(path, boot="one").left() == (TOKENS[0],)
    assert InflightTable(path, boot="two").left() == ()
    unknown = InflightTable(path, boot="")
    unknown.begin()
    assert unknown.take(TOKENS[0]) is not None
    assert unknown.left() == ()


def test_the_inflight_table_belongs_to_the_next_process_once_it_has_begun(path: Path) -> None:
    first = InflightTable(path)
    first.begin()
    assert first.take(TOKENS[0]) is not None
    second = InflightTable(path)
    assert second.take(TOKENS[1]) is None, "not before the broker has heard of the first"
    second.begin()
    assert second.left() == ()
