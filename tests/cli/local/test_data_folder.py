"""One command at a time in a data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gevent.event import Event

from greencrawl.cli.local.data_folder import (
    LOCK,
    REDIS_LOCK,
    FolderHolder,
    FolderInUse,
    await_broker,
    held,
    holder,
)
from greencrawl.schema import file_lock
from greencrawl.schema.errors import GreencrawlError


def test_a_second_command_is_refused_and_told_which_command_uses_the_data_folder(
    tmp_path: Path,
) -> None:
    with (
        held(tmp_path, "up", "http://127.0.0.1:9"),
        pytest.raises(FolderInUse, match=r"greencrawl up.*GREENCRAWL_BROKER=http://127.0.0.1:9"),
        held(tmp_path, "crawl", "http://127.0.0.1:10"),
    ):
        pass


def test_the_command_that_uses_a_data_folder_is_found_only_while_it_runs(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with held(tmp_path / "new", "crawl", "http://127.0.0.1:9"):
        assert holder(tmp_path / "new") == FolderHolder("crawl", os.getpid(), "http://127.0.0.1:9")
    assert holder(tmp_path / "new") is None


def test_a_data_folder_is_free_again_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), held(tmp_path, "crawl", ""):
        raise RuntimeError
    with held(tmp_path, "crawl", ""):
        pass


def test_a_damaged_note_in_the_lock_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"{half a no")
    with held(tmp_path, "crawl", "http://127.0.0.1:9"):
        assert holder(tmp_path) is not None
    (tmp_path / LOCK).write_bytes(b"{half a no")
    assert holder(tmp_path) is None


def test_a_data_folder_that_cannot_be_created_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(GreencrawlError, match="cannot use the data folder"),
        held(tmp_path / "file" / "data", "crawl", ""),
    ):
        pass


def test_a_broker_of_another_command_that_does_not_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    descriptor = file_lock.take(tmp_path / REDIS_LOCK, b"1234")
    said: list[str] = []
    with pytest.raises(GreencrawlError, match=r"\(process 1234\) has .* does not end"):
        await_broker(tmp_path, Event(), said.append, seconds=0.05)
    os.close(descriptor)
    assert len(said) == 1
