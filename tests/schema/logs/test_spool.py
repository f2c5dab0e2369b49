"""The spool has the lines that no logger takes: each line once; the oldest are dropped and
counted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greencrawl.schema.logs.spool import FILE_BYTES, Spool
from tests.logger.test_archive import no_file_beyond

LINE = "x" * 1023
A_FILE = FILE_BYTES // 1024
"""Return the lines of a whole file."""


DIES = f"""
import os, sys
from pathlib import Path
from greencrawl.schema.logs.spool import Spool
spool = Spool(Path(sys.argv[1]), "w-0", 7, 8 * {FILE_BYTES})
spool.append(1, ["x" * 1023] * {10 * A_FILE})
spool.claim()
spool.append({10 * A_FILE + 1}, ["the last"])
os._exit(0)
"""
"""It dies while some of its lines are dropped, and some are being sent."""


def drained(spool: Spool) -> list[int]:
    """Return the numbers of all lines in it, in the order in which they come out."""
    found: list[int] = []
    while batch := spool.claim():
        assert len(batch.lines) <= A_FILE + 2
        found += range(batch.first, batch.first + len(batch.lines))
        spool.done(batch)
    return found


def test_the_spool_gives_each_line_once_and_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "w-0", 7)
    assert (bool(spool), spool.claim(), list(tmp_path.iterdir())) == (False, None, [])
    spool.append(1, ["a", "b"])
    spool.append(3, [LINE] * (2 * A_FILE))
    spool.append(1000, ["c"])  # a gap: the lines between were sent
    assert spool
    batch = spool.claim()
    assert batch is not None
    assert (batch.first, batch.lines[:3]) == (1, ["a", "b", LINE])
    spool.back(batch)
    assert drained(spool) == [*range(1, 3 + 2 * A_FILE), 1000]
    assert not spool
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_spool_drops_and_counts_the_oldest_lines_of_all_processes(tmp_path: Path) -> None:
    most = 8 * FILE_BYTES
    one, other = Spool(tmp_path, "w-0", 7, most), Spool(tmp_path, "w-1", 7, most)
    dropped = one.append(1, [LINE] * (4 * A_FILE))
    for number in range(20):
        dropped += other.append(1 + number * A_FILE, [LINE] * A_FILE)
    left = drained(one), drained(other)
    assert left[0] == []
    assert left[1][-1] == 20 * A_FILE
    assert left[1] == list(range(left[1][0], 20 * A_FILE + 1))
    assert 6 * A_FILE <= len(left[1]) <= 8 * A_FILE
    assert dropped == 24 * A_FILE - len(left[1]) == one.dropped + other.dropped


def test_lines_that_are_being_sent_are_not_dropped(tmp_path: Path) -> None:
    most = 4 * FILE_BYTES
    spool = Spool(tmp_path, "w-0", 7, most)
    spool.append(1, [LINE] * A_FILE)
    batch = spool.claim()
    assert batch is not None
    dropped = spool.append(A_FILE + 1, [LINE] * (9 * A_FILE))
    spool.back(batch)
    found = drained(spool)
    assert found[:A_FILE] == list(range(1, A_FILE + 1))
    assert dropped + len(found) == 10 * A_FILE


def test_a_process_takes_the_lines_of_a_dead_process_and_not_those_of_a_living_one(
    tmp_path: Path,
) -> None:
    living = Spool(tmp_path, "w-1", 8)
    living.append(1, ["a"])
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=True)
    found_dead = list(Spool.left(tmp_path))
    assert [(one.member, one.incarnation) for one in found_dead] == [("w-0", 7)]
    (left,) = found_dead
    assert list(Spool.left(tmp_path)) == []  # it is taken
    found = drained(left)
    assert found[-1] == 10 * A_FILE + 1
    assert len(found) + left.dropped == 10 * A_FILE + 1
    left.reset_dropped()
    left.close()
    assert [path.name for path in tmp_path.iterdir()] == ["w-1@8"]
    assert drained(living) == [1]


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "w-0@7"
    folder.mkdir()
    (folder / f"{5:020}.open").write_text('{"a": 1}\n{"b": ')
    (folder / f"{9:020}.123.claimed").write_text('{"c": 1}\n')
    (tmp_path / "..@x").mkdir()  # of no process
    (left,) = Spool.left(tmp_path)
    assert drained(left) == [5, 9]


def test_a_spool_whose_folder_was_removed_is_made_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "w-0", 7)
    spool.append(1, [LINE] * A_FILE)
    shutil.rmtree(tmp_path / "spool")
    assert spool.append(A_FILE + 1, ["a"]) == 0
    assert drained(spool) == [A_FILE + 1]


def test_lines_that_cannot_be_written_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "w-0", 7)
    spool.append(1, ["a"] * 10)
    with no_file_beyond(64):
        assert spool.append(11, ["b"] * 100) == 100
    assert "too large" in spool.trouble
    assert spool.append(111, ["c"]) == 0
    assert drained(spool) == [*range(1, 11), 111]
    assert spool.dropped == 100


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_all_lines_are_dropped_if_the_folder_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    spool = Spool(tmp_path, "w-0", 7)
    assert spool.append(1, ["a"]) == 1
    assert spool.trouble
