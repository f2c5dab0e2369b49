"""A logger's files: ``logs/DAY/MEMBER.ndjson.zst``, by the day on which a line was logged.

A frame counts when it is on disk. For the first frame of a file, the folder of the file must be on
disk, too. If a process dies while it writes a frame, the file has a torn end, which is cut off
before anything is read or written. Whole days are dropped.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from greencrawl.logger import frames
from greencrawl.logger.frames import Frame
from greencrawl.logger.lines import Line
from greencrawl.schema.log import logger

log = logger("archive")

DAY_MS = 86_400_000
SUFFIX = ".ndjson.zst"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LIVES = 10_000
"""Lives of members whose last number is cached; for all other lives the files are read."""


def day_of(at_ms: int) -> str:
    """Return ``2026-03-01``, in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d")


class Archive:
    """The files in ``folder``, of ``days`` days. One thread at a time may write for a member.

    Raises OSError if the folder cannot be used.
    """

    def __init__(self, folder: Path, days: int) -> None:
        self.folder = folder
        self._days = days
        self._last: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._stuck: set[str] = set()
        """Days that could not be dropped; a log line has said so."""
        folder.mkdir(parents=True, exist_ok=True)
        self._mend()

    # -- writing

    def last(self, member: str, incarnation: int) -> int:
        """Return the number of the last line on disk of a member's life; 0 if no line is there."""
        life = member, incarnation
        if life not in self._last:
            self._note(life, self._look_up(member, incarnation))
        self._last.move_to_end(life)
        return self._last[life]

    def append(self, member: str, incarnation: int, first: int, lines: Sequence[Line]) -> None:
        """Keep lines with successive numbers; all are on disk when it returns.

        Raises OSError: then the lines up to :meth:`last` are kept, and the others are not.
        """
        for day, of_day in groupby(lines, key=lambda line: line.at_ms // DAY_MS):
            part = list(of_day)
            path = self.folder / day_of(day * DAY_MS) / f"{member}{SUFFIX}"
            self._write(path, incarnation, first, part)
            first += len(part)
            self._note((member, incarnation), first - 1)

    def placed(self, line: Line, now_ms: int) -> Line:
        """Return a line in a day that is kept. If its time is in another day, it is moved to the
        nearest time that is kept."""
        low, high = now_ms - (self._days - 1) * DAY_MS, now_ms + DAY_MS
        return line._replace(at_ms=min(max(line.at_ms, low), high))

    def drop(self, now_ms: int) -> list[str]:
        """Drop the days that are over for long enough; return those that are gone.

        A day that cannot be dropped is logged once. Raises OSError if the folder cannot be read.
        """
        oldest = day_of(now_ms - (self._days - 1) * DAY_MS)
        over = [day for day in self.days() if day < oldest]
        failed = {day: error for day in over if (error := _removed(self.folder / day))}
        for day in failed.keys() - self._stuck:
            log.error("day_not_dropped", day=day, reason=str(failed[day]))
        self._stuck = set(failed)
        return [day for day in over if day not in failed]

    def _write(self, path: Path, incarnation: int, first: int, lines: list[Line]) -> None:
        path.parent.mkdir(exist_ok=True)
        with (
            path.open("ab", buffering=0) as file,
            frames.index_of(path).open("ab", buffering=0) as index,
        ):
            sizes = [os.fstat(one.fileno()).st_size for one in (file, index)]
            frame, data = frames.pack(sizes[0], incarnation, first, lines)
            try:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
                _write_all(index.fileno(), frame.record())
                if not sizes[0]:
                    _sync(path.parent)
                    _sync(self.folder)
            except OSError:
                for one, size in zip((file, index), sizes, strict=True):
                    os.ftruncate(one.fileno(), size)
                raise

    def _look_up(self, member: str, incarnation: int) -> int:
        found = 0
        for day in self.days():
            with suppress(FileNotFoundError):
                there = frames.frames(self.folder / day / f"{member}{SUFFIX}")
                found = max([found, *(f.last for f in there if f.incarnation == incarnation)])
        return found

    def _note(self, life: tuple[str, int], last: int) -> None:
        self._last[life] = last
        while len(self._last) > _LIVES:
            self._last.popitem(last=False)

    # -- reading

    def days(self) -> list[str]:
        """Return the days that have lines, in order."""
        names = (path.name for path in self.folder.iterdir())
        return sorted(name for name in names if _DAY.fullmatch(name))

    def files(self, day: str) -> Iterator[tuple[str, Path]]:
        """Yield each member of a day with its file."""
        with suppress(FileNotFoundError):
            for path in sorted((self.folder / day).glob(f"*{SUFFIX}")):
                yield path.name.removesuffix(SUFFIX), path

    def frames(self, path: Path) -> list[Frame]:
        """Return what is in a file; nothing if it has just been dropped."""
        try:
            return frames.frames(path)
        except FileNotFoundError:
            return []

    def _mend(self) -> None:
        for day in self.days():
            for _, path in self.files(day):
                try:
                    if not frames.is_mended(path):
                        raise FileNotFoundError
                except FileNotFoundError:
                    if cut := frames.mend(path):
                        log.warning("file_truncated", file=f"{day}/{path.name}", bytes=cut)


def _removed(folder: Path) -> BaseException | None:
    """Remove what can be removed of a folder; return the first error if it is still there."""
    errors: list[BaseException] = []
    shutil.rmtree(folder, onerror=lambda _call, _path, info: errors.append(info[1]))
    return errors[0] if errors and os.path.lexists(folder) else None


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
