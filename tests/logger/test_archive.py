"""Files of a logger: lines on disk count, a torn end does not, whole days are dropped."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
import zstandard
from structlog.testing import capture_logs

from greencrawl.logger import frames
from greencrawl.logger.archive import DAY_MS, Archive, day_of
from greencrawl.logger.lines import Line, read
from greencrawl.schema.clock import epoch_ms
from tests.support.logger_process import line

NOON_MS = epoch_ms() // DAY_MS * DAY_MS + DAY_MS // 2
DAY = day_of(NOON_MS)


def lines(count: int, at_ms: int = NOON_MS, level: str = "info") -> list[Line]:
    return [read(line(f"e{n}", at_ms + n, level).encode(), at_ms) for n in range(count)]


def stored(archive: Archive, member: str = "w-0", day: str = DAY) -> list[str]:
    """Return the events in a file, in its order."""
    path = archive.folder / day / f"{member}.ndjson.zst"
    with path.open("rb") as file:
        found = [one for f in archive.frames(path) for one in frames.unpack(file.fileno(), f)]
    return [json.loads(one.text)["event"] for one in found]


def test_the_number_of_the_last_line_is_known_after_a_restart(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(3))
    archive.append("w-0", 8, 1, lines(2))
    archive.append("w-0", 7, 9, lines(2))  # 4 to 8 were dropped
    for one in (archive, Archive(tmp_path, 14)):
        assert [one.last("w-0", life) for life in (7, 8, 9)] == [10, 2, 0]
        assert one.last("w-1", 7) == 0
    assert stored(archive) == ["e0", "e1", "e2", "e0", "e1", "e0", "e1"]


def test_a_line_is_filed_under_the_day_on_which_it_was_logged(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(4, NOON_MS // DAY_MS * DAY_MS - 2))
    before = day_of(NOON_MS - DAY_MS)
    assert archive.days() == [before, DAY]
    assert stored(archive, day=before) == ["e0", "e1"]
    assert stored(archive) == ["e2", "e3"]
    assert archive.last("w-0", 7) == 4


def test_a_log_file_can_be_read_with_zstdcat(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(3))
    archive.append("w-0", 7, 4, lines(1))
    data = (tmp_path / DAY / "w-0.ndjson.zst").read_bytes()
    reader = zstandard.ZstdDecompressor().stream_reader(BytesIO(data), read_across_frames=True)
    assert [json.loads(one)["event"] for one in reader.read().splitlines()] == [
        "e0", "e1", "e2", "e0",
    ]  # fmt: skip


@pytest.mark.parametrize("keep_index", [True, False])
def test_a_torn_log_file_keeps_exactly_its_whole_frames(tmp_path: Path, keep_index: bool) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(2))
    path = tmp_path / DAY / "w-0.ndjson.zst"
    whole = path.stat().st_size
    archive.append("w-0", 7, 3, lines(5))
    data, index = path.read_bytes(), frames.index_of(path).read_bytes()
    for size in [*range(whole, len(data), 29), len(data) - 1]:
        path.write_bytes(data[:size])
        frames.index_of(path).write_bytes(index if keep_index else b"")
        again = Archive(tmp_path, 14)
        assert path.stat().st_size == whole
        assert again.last("w-0", 7) == 2
        again.append("w-0", 7, 3, lines(1))
        assert stored(again) == ["e0", "e1", "e0"]


def test_an_index_that_is_outdated_damaged_or_missing_is_built_again(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    for first in (1, 3, 5):
        archive.append("w-0", 7, first, lines(2))
    index = frames.index_of(tmp_path / DAY / "w-0.ndjson.zst")
    whole = index.read_bytes()
    for torn in (whole[:-7], whole[: len(whole) // 3], b"", b"\0" * len(whole), whole + whole[:80]):
        index.write_bytes(torn)
        assert Archive(tmp_path, 14).last("w-0", 7) == 6
        assert index.read_bytes() == whole
    index.unlink()
    assert Archive(tmp_path, 14).last("w-0", 7) == 6


def test_a_log_file_that_cannot_grow_is_left_as_it_was(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(2))
    path = tmp_path / DAY / "w-0.ndjson.zst"
    before = path.read_bytes()
    with no_file_beyond(len(before) + 100), pytest.raises(OSError) as error:
        archive.append("w-0", 7, 3, lines(50))
    assert error.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert archive.last("w-0", 7) == 2
    archive.append("w-0", 7, 3, lines(1))
    assert Archive(tmp_path, 14).last("w-0", 7) == 3


def test_log_files_of_days_beyond_the_limit_are_dropped(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    for days in range(5):
        archive.append("w-0", 7, days + 1, lines(1, NOON_MS - days * DAY_MS))
    (tmp_path / "broker.log").touch()
    dropped = archive.drop(NOON_MS)
    assert dropped == [day_of(NOON_MS - days * DAY_MS) for days in (4, 3)]
    assert len(archive.days()) == 3
    assert (tmp_path / "broker.log").exists()


def test_a_day_that_cannot_be_dropped_is_not_reported_as_dropped_and_is_logged_once(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path, 3)
    archive.append("w-0", 7, 1, lines(1, NOON_MS - 4 * DAY_MS))
    stuck = tmp_path / day_of(NOON_MS - 3 * DAY_MS)
    stuck.symlink_to(tmp_path / day_of(NOON_MS - 4 * DAY_MS))  # no folder: rmtree refuses it
    with capture_logs() as said:
        assert archive.drop(NOON_MS) == [day_of(NOON_MS - 4 * DAY_MS)]
        assert archive.drop(NOON_MS) == []
    assert [(one["event"], one["log_level"], one["day"]) for one in said] == [
        ("day_not_dropped", "error", stuck.name)
    ]
    stuck.unlink()
    stuck.mkdir()
    assert archive.drop(NOON_MS) == [stuck.name]


def test_a_line_outside_the_kept_days_is_filed_under_the_nearest_day(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 3)
    (old,), (far,) = lines(1, 0), lines(1, NOON_MS + 900 * DAY_MS)
    assert day_of(archive.placed(old, NOON_MS).at_ms) == day_of(NOON_MS - 2 * DAY_MS)
    assert day_of(archive.placed(far, NOON_MS).at_ms) == day_of(NOON_MS + DAY_MS)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let no file of this process get longer than ``size``, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_damaged_frame_is_refused(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 14)
    archive.append("w-0", 7, 1, lines(3))
    path = tmp_path / DAY / "w-0.ndjson.zst"
    (frame,) = archive.frames(path)
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\0\0\0", frame.end - 5)
        with pytest.raises(ValueError, match="damaged"):
            frames.unpack(file.fileno(), frame)
