"""Bodies in WARC files: real files, real kills, real full disks; warcio judges."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import StoredPage
from greencrawl.store.bodies import Place
from greencrawl.store.errors import BodyAway, Closed
from greencrawl.store.warc import segment
from greencrawl.store.warc.files import NO_PLACE, WarcFiles
from greencrawl.store.warc.segment import repair
from tests.support.archive import Archive, check, records
from tests.support.checkout import ROOT
from tests.support.effort import cases
from tests.support.store_records import digest, page

WRITER = """
import json, os, sys
from pathlib import Path
from typing import BinaryIO
from gevent import monkey; monkey.patch_all()
from greencrawl.schema import crash_points
from greencrawl.store.warc.files import WarcFiles
from tests.support.store_records import page
crash_points.arm(os.environ.get("GREENCRAWL_FAULT", ""))
folder, writer, appends, size = Path(sys.argv[1]), *map(int, sys.argv[2:])
files = WarcFiles(folder, segment_bytes=size)
for n in range(appends):
    pages = [page(1, m, body=b"%d %d " % (writer, m) * 200) for m in range(10 * n, 10 * n + 10)]
    places = files.append(pages, {})
    print(json.dumps([[p.body.decode(), *q] for p, q in zip(pages, places)]), flush=True)
files.close()
"""


def start(folder: Path, writer: int, appends: int, size: int = 10**9, fault: str = "") -> object:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "GREENCRAWL_FAULT": fault}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(writer), str(appends), str(size)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def outcome(process: object) -> tuple[int, list[tuple[bytes, Place]]]:
    """Return the exit code, and the reported bodies with their places."""
    assert isinstance(process, subprocess.Popen)
    out, _ = process.communicate(timeout=60)
    told = [line for line in out.splitlines() if line.startswith("[[")]  # and not a log
    rows = [row for line in told for row in json.loads(line)]
    return process.returncode, [(body.encode(), Place(*place)) for body, *place in rows]


def finished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.warc.gz"))


def unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.open"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "warc"


@pytest.fixture
def files(folder: Path) -> Iterator[WarcFiles]:
    opened = WarcFiles(folder)
    yield opened
    opened.close()


def test_bodies_come_back_from_their_places(folder: Path, files: WarcFiles) -> None:
    noise = random.Random(1)
    bodies = [b"", b"x", b"\0" * 100_000, noise.randbytes(3_000_000), "新闻".encode() * 999]
    pages = [page(1, n, body=body, digest=digest(body)) for n, body in enumerate(bodies)]
    places = files.append(pages, {})
    assert [files.read(place) for place in places] == bodies
    assert WarcFiles(folder).read(places[3]) == bodies[3]  # while it is written, and from elsewhere
    assert len(unfinished(folder)) == 1
    files.close()
    assert unfinished(folder) == []
    assert [files.read(place) for place in places] == bodies
    assert check(finished(folder)) == ""
    read = list(records(finished(folder)[0]))
    assert [one.kind for one in read] == ["warcinfo", *["response", "request"] * 5]
    info = dict(line.split(": ", 1) for line in read[0].body.decode().splitlines())
    assert info["format"] == "WARC File Format 1.1"
    assert read[0].fields["warc-filename"] == finished(folder)[0].name


def test_reading_creates_no_folder(folder: Path) -> None:
    reader = WarcFiles(folder)
    with pytest.raises(BodyAway):
        reader.read(Place("x.warc.gz", 0, 10))
    reader.close()
    assert not folder.exists()


def test_a_body_that_has_a_record_already_is_written_as_a_revisit(
    folder: Path, files: WarcFiles
) -> None:
    first, other = page(1, 1, body=b"same"), page(2, 1, body=b"same")
    [place, _] = files.append([first, other], {})
    later = [page(1, n, 5000, body=b"same") for n in (2, 3)]
    files.append(later, {(1, digest(b"same")): place})
    twice = [page(1, n, 6000, body=b"new") for n in (4, 5)]
    files.append(twice, {})
    files.close()
    again = WarcFiles(folder)  # it remembers nothing, and reads about the body in its record
    again.append([page(1, 6, 7000, body=b"same")], {(1, digest(b"same")): place})
    again.close()
    assert check(finished(folder)) == ""
    archive = Archive(finished(folder))
    assert archive.kinds == {"warcinfo": 2, "response": 3, "revisit": 4, "request": 7}
    assert archive.answers["http://example.org/3"].body == b"same"
    assert archive.answers["http://example.org/5"].body == b"new"
    assert archive.answers["http://example.org/6"].body == b"same"


def test_a_known_body_whose_file_is_missing_is_written_again(
    folder: Path, files: WarcFiles
) -> None:
    gone = Place("greencrawl-gone.warc.gz", 100, 200)
    [place] = files.append([page(1, 1, body=b"same")], {(1, digest(b"same")): gone})
    assert files.read(place) == b"same"


def test_empty_and_absent_bodies_get_no_revisit_records(folder: Path, files: WarcFiles) -> None:
    empty = page(1, 1, body=b"", digest=digest(b""), status=302, final_url="http://example.org/9")
    absent = page(1, 2, body=b"", digest=digest(b"a picture"))
    place = Place("known.warc.gz", 1, 2)
    known = {(1, digest(b"")): place, (1, digest(b"seen")): place}
    seen = page(1, 3, body=b"", digest=digest(b"seen"))
    places = files.append([empty, absent, seen], known)
    assert files.read(places[0]) == b""
    assert places[1:] == [NO_PLACE, place]
    files.close()
    assert Archive(finished(folder)).kinds == {"warcinfo": 1, "response": 1, "request": 1}


def test_files_are_rotated_between_pages(folder: Path) -> None:
    files = WarcFiles(folder, segment_bytes=3000)
    noise = random.Random(1)
    pages = [page(1, n, body=noise.randbytes(700)) for n in range(20)]
    pages.append(page(1, 99, body=noise.randbytes(9000)))  # longer than a file may be
    places = files.append(pages[:10], {}) + files.append(pages[10:], {})
    files.close()
    assert len(finished(folder)) >= 6
    assert all(file.stat().st_size <= 3000 for file in finished(folder)[:-1])
    assert [files.read(place) for place in places] == [one.body for one in pages]
    assert check(finished(folder)) == ""
    archive = Archive(finished(folder))
    assert archive.kinds["warcinfo"] == len(finished(folder))
    assert archive.kinds["response"] == archive.kinds["request"] == 21


def test_processes_write_to_one_folder_of_warc_files_at_once(folder: Path) -> None:
    writers = [start(folder, n, 8, 20_000) for n in range(3)]
    told = [outcome(writer) for writer in writers]
    assert [code for code, _ in told] == [0, 0, 0]
    reader = WarcFiles(folder)
    for _, rows in told:
        assert len(rows) == 80
        assert all(reader.read(place) == body for body, place in rows)
    assert unfinished(folder) == []
    assert check(finished(folder)) == ""


POINTS = {
    "warc.created": 0,
    "warc.before_write:2": 1,
    "warc.after_write:2": 1,
    "warc.before_sync:2": 1,
    "warc.after_sync:2": 1,
    "warc.before_rename": 1,
    "warc.after_rename": 1,
}
"""Point → the least number of appends, of four, that are reported before the kill."""
BY_NIGHT = ("warc.before_write:2", "warc.before_sync:2", "warc.after_sync:2")
"""By day ``test_store`` kills there."""


@pytest.mark.parametrize("point", cases([one for one in POINTS if one not in BY_NIGHT], BY_NIGHT))
def test_a_kill_at_any_stage_loses_nothing_that_was_reported(folder: Path, point: str) -> None:
    size = 9000 if "rename" in point else 10**9
    code, told = outcome(start(folder, 1, 4, size, fault=point))
    assert code == -signal.SIGKILL
    assert len(told) >= 10 * POINTS[point]
    reader = WarcFiles(folder)
    assert all(reader.read(place) == body for body, place in told)  # before anything is repaired
    code, more = outcome(start(folder, 2, 1))
    assert code == 0
    assert unfinished(folder) == []
    assert all(reader.read(place) == body for body, place in [*told, *more])
    assert check(finished(folder)) == ""


def test_a_file_cut_at_any_byte_is_finished_with_its_whole_records(
    folder: Path, files: WarcFiles, tmp_path: Path
) -> None:
    places = files.append([page(1, n, body=b"body %d" % n) for n in range(3)], {})
    [open_file] = unfinished(folder)
    data = open_file.read_bytes()
    ends = _ends(data)
    for cut in range(len(data) + 1):
        for torn in (data[:cut], data[:cut] + b"\0" * min(50, len(data) - cut)):
            copy = tmp_path / "c.warc.gz.open"
            copy.write_bytes(torn)
            whole = max((end for end in ends if torn[:end] == data[:end]), default=0)
            assert repair(copy) == len(torn) - whole
            assert not copy.exists()
            done = copy.with_suffix("")
            if whole:
                assert done.read_bytes() == data[:whole]
                done.unlink()
            else:
                assert not done.exists()
    assert places[-1].offset + places[-1].length < len(data)


def _ends(data: bytes) -> list[int]:
    ends, rest = [], data
    while rest:
        inflater = zlib.decompressobj(31)
        inflater.decompress(rest)
        rest = inflater.unused_data
        ends.append(len(data) - len(rest))
    return ends


def test_a_repair_cuts_off_only_damage_at_the_end_of_a_file(
    folder: Path, files: WarcFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "TORN_BYTES", 5000)
    noise = random.Random(1)
    pages = [page(1, n, body=noise.randbytes(1000)) for n in range(10)]
    places = [files.append([one], {})[0] for one in pages]
    [open_file] = unfinished(folder)
    data = bytearray(open_file.read_bytes())
    copy = folder / "copy.warc.gz.open"

    def after(damaged: bytes) -> int:
        copy.write_bytes(damaged)
        cut = repair(copy)
        assert cut is not None
        copy.with_suffix("").unlink()
        return cut

    assert after(data) == 0
    start = places[1].offset
    header_gone = data[:start] + b"\0" * 40 + data[start + 40 :]
    assert after(header_gone) == 0  # rows of SQL may point behind it
    start = places[9].offset
    assert after(data[:start] + b"\0" * (len(data) - start)) == len(data) - start
    start = places[8].offset + 200  # within the end: as if blocks were written out of order
    torn = data[:start] + b"\0" * 100 + data[start + 100 :]
    assert after(torn) == len(data) - places[8].offset
    long = bytes(data[: places[1].offset]) + b"\0" * 20_000  # one record, longer than the end
    assert after(long) == 20_000


def test_long_appends_are_synced_in_between(
    folder: Path, files: WarcFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "TORN_BYTES", 3_000_000)
    synced = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (synced.append(1), real(file))[1])
    noise = random.Random(1)
    files.append([page(1, n, body=noise.randbytes(1_100_000)) for n in range(6)], {})
    assert len(synced) == 3


def test_the_file_of_a_living_writer_is_left_alone(folder: Path, files: WarcFiles) -> None:
    [place] = files.append([page(1, 1, body=b"mine")], {})
    other = WarcFiles(folder)
    other.append([page(1, 2, body=b"other")], {})
    assert len(unfinished(folder)) == 2
    other.close()
    [more] = files.append([page(1, 3, body=b"more")], {})
    assert more.file == place.file
    assert files.read(more) == b"more"


def test_files_of_other_hosts_are_finished_after_a_day(folder: Path, files: WarcFiles) -> None:
    folder.mkdir()
    left = folder / "greencrawl-20260301120000000-00001-elsewhere-7.warc.gz.open"
    strange = folder / "theirs.warc.gz.open"
    for path in (left, strange):
        path.write_bytes(b"torn")
    files.append([page(1, 1, body=b"x")], {})
    assert left.exists()
    os.utime(left, (0, 0))
    other = WarcFiles(folder)
    other.append([page(1, 2, body=b"y")], {})
    other.close()
    assert not left.exists()
    assert strange.exists()


# -- full disks


def _survives_a_full_disk(folder: Path, files: WarcFiles, room: Callable[[], None]) -> None:
    """``room`` frees space again."""
    noise = random.Random(1)
    kept: list[tuple[StoredPage, Place]] = []

    def append(number: int) -> None:
        pages = [page(1, 10 * number + n, body=noise.randbytes(20_000)) for n in range(5)]
        kept.extend(zip(pages, files.append(pages, {}), strict=True))

    def fill() -> None:
        for number in range(50):
            append(number)

    with pytest.raises(Unavailable):
        fill()
    assert kept
    with pytest.raises(Unavailable):
        append(98)
    assert all(files.read(place) == one.body for one, place in kept)
    assert check([path for path in unfinished(folder) if path.stat().st_size]) == ""
    room()
    append(99)
    files.close()
    assert all(files.read(place) == one.body for one, place in kept)
    assert unfinished(folder) == []
    assert check(finished(folder)) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_makes_an_append_unavailable_and_leaves_a_usable_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], check=True)
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 200_000)
        _survives_a_full_disk(disk, WarcFiles(disk), ballast.unlink)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_append_is_unavailable_while_its_file_may_not_grow(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    resource.setrlimit(resource.RLIMIT_FSIZE, (350_000, before[1]))
    try:
        _survives_a_full_disk(folder, WarcFiles(folder), room)
    finally:
        room()


def test_a_failed_sync_leaves_what_was_durable_and_begins_anew(
    folder: Path, files: WarcFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    [place] = files.append([page(1, 1, body=b"durable")], {})

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(Unavailable, match="Input/output"):
            files.append([page(1, 2, body=b"lost")], {})
    [again] = files.append([page(1, 2, body=b"again")], {})
    assert again.file != place.file
    assert (files.read(place), files.read(again)) == (b"durable", b"again")
    files.close()
    assert check(finished(folder)) == ""
    assert Archive(finished(folder)).kinds["response"] == 2


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable):
        WarcFiles(tmp_path / "file" / "warc").append([page(1, 1, body=b"x")], {})


# -- damage


def test_a_damaged_record_is_reported_and_harms_no_other_body(
    folder: Path, files: WarcFiles
) -> None:
    noise = random.Random(1)
    bodies = [noise.randbytes(500) for _ in range(3)]
    places = files.append([page(1, n, body=body) for n, body in enumerate(bodies)], {})
    files.close()
    [path] = finished(folder)
    data = bytearray(path.read_bytes())
    data[places[1].offset + 300] ^= 1
    path.write_bytes(data)
    assert "exception" in check([path]) or "digest failed" in check([path])
    with pytest.raises(BodyAway, match="damaged"):
        files.read(places[1])
    assert files.read(places[0]) == bodies[0]
    path.write_bytes(data[: places[2].offset + 100])
    with pytest.raises(BodyAway, match="cut off"):
        files.read(places[2])
    path.unlink()
    with pytest.raises(BodyAway, match="no such file") as caught:
        files.read(places[0])
    assert caught.value.file == places[0].file


@pytest.mark.parametrize(
    ("file", "offset", "length"),
    [
        ("../secret", 0, 10),
        ("/etc/passwd", 0, 10),
        ("", 0, 0),
        ("a\0b", 0, 10),
        ("REAL", -1, 10),
        ("REAL", 0, 2**40),
        ("REAL", 0, 0),
        ("REAL", 2**62, 10),
        ("REAL", 1, 50),
    ],
)
def test_impossible_places_of_bodies_are_refused(
    files: WarcFiles, file: str, offset: int, length: int
) -> None:
    [place] = files.append([page(1, 1, body=b"x")], {})
    with pytest.raises(BodyAway):
        files.read(Place(file.replace("REAL", place.file), offset, length))


def test_a_body_is_away_if_its_file_cannot_be_read(files: WarcFiles, folder: Path) -> None:
    [place] = files.append([page(1, 1, body=b"x")], {})
    (folder / (place.file + ".open")).unlink()
    (folder / place.file).mkdir()
    with pytest.raises(BodyAway):
        files.read(place)


def test_closed_files_take_no_page_and_can_be_closed_again(files: WarcFiles) -> None:
    files.append([page(1, 1, body=b"x")], {})
    files.close()
    files.close()
    with pytest.raises(Closed):
        files.append([page(1, 2, body=b"y")], {})


def test_a_writer_begins_another_file_if_its_new_one_was_taken_for_a_dead_writers(
    folder: Path,
) -> None:
    """Another process may look at the file between its creation and its lock."""
    folder.mkdir()
    taken: list[int | None] = []
    real = fcntl.flock

    def late(file: object, operation: int) -> None:
        if not taken:
            taken.append(0)
            taken[0] = repair(unfinished(folder)[0])
        real(file, operation)  # type: ignore[arg-type]

    files = WarcFiles(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment.fcntl, "flock", late)
        [place] = files.append([page(1, 1, body=b"x")], {})
    assert taken == [0]
    assert files.read(place) == b"x", "it is in another file"
    files.close()


def test_a_writer_does_not_wait_for_a_new_file_that_another_process_has_locked(
    folder: Path,
) -> None:
    """That process may be frozen; it deletes the file later, if it survives."""
    folder.mkdir()
    looked: list[BinaryIO] = []
    real = fcntl.flock

    def late(file: object, operation: int) -> None:
        if not looked:
            looked.append(unfinished(folder)[0].open("rb"))
            real(looked[0], fcntl.LOCK_EX)
        real(file, operation)  # type: ignore[arg-type]

    files = WarcFiles(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment.fcntl, "flock", late)
        [place] = files.append([page(1, 1, body=b"x")], {})
    assert len(unfinished(folder)) == 2, "the other's and ours"
    assert files.read(place) == b"x"
    looked[0].close()
    files.close()


def test_a_folder_without_file_locks_gets_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    files = WarcFiles(tmp_path, segment_bytes=1 << 20)
    with pytest.raises(Unavailable):
        files.append([page(1, 1, body=b"x")], {})
    assert [path.name for path in tmp_path.rglob("*.warc.gz*")] == []
