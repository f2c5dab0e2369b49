"""What a logger does by itself goes on after an unexpected error, which is logged."""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest
from structlog.testing import capture_logs

from greencrawl.logger import __main__ as process
from greencrawl.logger import joining
from greencrawl.logger.archive import Archive, day_of
from greencrawl.logger.joining import Joining
from greencrawl.schema.process import own_process
from greencrawl.schema.records import Facts
from greencrawl.schema.settings import load
from tests.support.ports import free_port
from tests.support.system import wait_until


def test_days_are_dropped_once_the_folder_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "DROP_SECONDS", 0.001)
    folder = tmp_path / "logs"
    archive = Archive(folder, 3)
    (folder / day_of(0)).mkdir()
    folder.rename(tmp_path / "away")
    with capture_logs() as said:
        running = gevent.spawn(process._drop_days, archive)
        wait_until(lambda: running.dead or said, 10, "it cannot be read")
        (tmp_path / "away").rename(folder)
        over = "days_dropped"
        wait_until(lambda: running.dead or said[-1]["event"] == over, 10, "the day is dropped")
        running.kill()
    assert {one["event"] for one in said[:-1]} == {"drop_failed"}
    assert (said[-1]["event"], said[-1]["days"]) == (over, [day_of(0)])


def test_a_logger_stays_a_member_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def facts(folders: object) -> Facts:
        calls.append(folders)
        if len(calls) == 1:
            raise ValueError("no facts")
        return Facts()

    monkeypatch.setattr(own_process, "facts", facts)
    monkeypatch.setattr(joining, "WAIT_SECONDS", 0.001)
    settings = load({}, data=str(tmp_path), broker=f"http://127.0.0.1:{free_port()}")
    member = Joining(settings, 1)
    with capture_logs() as said:
        running = gevent.spawn(member._run)
        wait_until(lambda: running.dead or len(said) > 1, 10, "it asks the broker")
        running.kill()
    assert [one["event"] for one in said] == ["membership_failed", "wait_started"]
