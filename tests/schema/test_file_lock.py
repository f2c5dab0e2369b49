"""A file that one process at a time holds."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from greencrawl.schema import file_lock


def test_a_process_that_only_looks_at_a_lock_does_not_prevent_another_from_taking_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    path.touch()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = threading.Timer(file_lock.LOOK_SECONDS / 5, os.close, [looking])
    timer.start()
    taken = file_lock.take(path, b"note")
    timer.join()
    assert file_lock.holder(path) == b"note"
    os.close(taken)


def test_a_lock_that_is_already_held_is_refused(tmp_path: Path) -> None:
    taken = file_lock.take(tmp_path / "lock", b"first")
    with pytest.raises(BlockingIOError):
        file_lock.take(tmp_path / "lock", b"second")
    assert file_lock.holder(tmp_path / "lock") == b"first"
    os.close(taken)
    assert file_lock.holder(tmp_path / "lock") is None
