"""Finds lines by time, node, level, crawl and text, some at a time.

Days and frames without such lines are skipped by their heads. The cost of an answer is bounded: it
stops after a number of bytes, and says where to go on. Up to that point an answer has all lines, so
that answers of several loggers can be merged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gevent
import msgspec

from greencrawl.logger import frames
from greencrawl.logger.archive import DAY_MS, Archive, day_of
from greencrawl.logger.frames import Frame
from greencrawl.logger.intake import Intake
from greencrawl.logger.lines import Line
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.logs.records import LEVELS, LogLine, LogsQuery, LogsReply, cursor, key_of
from greencrawl.schema.text.moments import since_ms

log = logger("finding")

LOOK_BYTES = 16 * 1024 * 1024
"""An answer reads this many bytes of lines, and more only if more lines have the same time."""
FOREVER_MS = 2**53

Key = tuple[int, str, int, int]


@dataclass(frozen=True)
class _Part:
    """Lines that are together: a frame of a file, or those in memory."""

    member: str
    incarnation: int
    first: int
    low_ms: int
    high_ms: int
    size: int
    lines: Callable[[], list[Line]]


class _Wanted:
    """The lines that a query asks for. Raises ValueError for an invalid query."""

    def __init__(self, query: LogsQuery, now_ms: int) -> None:
        self.newest = query.newest
        self.limit = query.limit
        self.low = since_ms(query.since, now_ms)
        self.high = since_ms(query.until, now_ms) if query.until else FOREVER_MS
        self.level = LEVELS.index(query.level)
        self._node = re.compile(rf"{re.escape(query.node)}(-[0-9]+)?") if query.node else None
        self._text = json.dumps(query.url)[1:-1].encode("ascii")
        self._crawls = frozenset(query.crawl.split(",")) if query.crawl else None
        self.after: Key | None = None
        if query.after:
            self.after = key_of(query.after)
            if self.newest:
                at_ms, member, *_ = self.after
                self.high = min(self.high, at_ms + 1 if member else at_ms)
            else:
                self.low = max(self.low, self.after[0])

    def of_member(self, member: str) -> bool:
        return self._node is None or self._node.fullmatch(member) is not None

    def of_line(self, key: Key, line: Line) -> bool:
        return (
            self.low <= line.at_ms < self.high
            and line.level >= self.level
            and self._follows(key)
            and self._text in line.text
            and (self._crawls is None or self._of_crawl(line.text))
        )

    def _follows(self, key: Key) -> bool:
        if self.after is None:
            return True
        return key < self.after if self.newest else key > self.after

    def _of_crawl(self, text: bytes) -> bool:
        crawls = self._crawls
        assert crawls is not None
        return str(msgspec.json.decode(text).get("crawl", "")) in crawls


def find(archive: Archive, intake: Intake, query: LogsQuery, now_ms: int) -> LogsReply:
    """Answer ``query``. Raises ValueError for an invalid moment or cursor."""
    wanted = _Wanted(query, now_ms)
    found = _Found(wanted)
    start = wanted.high - 1 if wanted.newest else wanted.low
    looked, stopped = 0, None
    for part in _parts(archive, intake, wanted):
        edge = part.high_ms if wanted.newest else part.low_ms
        if found.has_all_before(edge):
            break
        moved = edge < start if wanted.newest else edge > start
        if looked > LOOK_BYTES and moved:
            stopped = edge
            break
        found.look_at(part)
        looked += part.size
        gevent.sleep(0)
    return found.answer(stopped)


class _Found:
    """Collects the first (or last) matching lines.

    A line that is found twice, in memory and on disk, is collected once.
    """

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self._lines: dict[Key, Line] = {}
        self._more = False

    def look_at(self, part: _Part) -> None:
        """Take the wanted lines of a part; no lines of a damaged frame."""
        try:
            lines = part.lines()
        except (OSError, ValueError) as error:
            log.warning("frame_damaged", member=part.member, reason=str(error))
            return
        wanted = self._wanted
        for number, line in enumerate(lines, part.first):
            key = (line.at_ms, part.member, part.incarnation, number)
            if wanted.of_line(key, line):
                self._lines[key] = line
        if len(self._lines) > 2 * wanted.limit:
            self._cut()

    def has_all_before(self, edge_ms: int) -> bool:
        """Return whether the answer is full, so that a line at ``edge_ms`` or further on would not
        be in it."""
        if len(self._lines) <= self._wanted.limit:
            return False
        self._cut()
        last_ms, *_ = next(reversed(self._lines))
        return edge_ms < last_ms if self._wanted.newest else edge_ms > last_ms

    def answer(self, stopped_ms: int | None) -> LogsReply:
        """Return the answer; lines at ``stopped_ms`` or further on were not read."""
        newest = self._wanted.newest
        self._cut()
        after = ""
        if self._more and self._lines:
            after = cursor(next(reversed(self._lines)))
        if stopped_ms is not None:
            edge = stopped_ms + 1 if newest else stopped_ms
            inside = {
                key: line
                for key, line in self._lines.items()
                if (key[0] >= edge if newest else key[0] < edge)
            }
            if len(inside) < len(self._lines) or not self._more:
                self._lines, after = inside, cursor((edge, "", 0, 0))
        items = tuple(_item(key, self._lines[key]) for key in sorted(self._lines))
        return LogsReply(items=items, next=after)

    def _cut(self) -> None:
        keys = sorted(self._lines, reverse=self._wanted.newest)
        if len(keys) > self._wanted.limit:
            keys = keys[: self._wanted.limit]
            self._more = True
        self._lines = {key: self._lines[key] for key in keys}


def _item(key: Key, line: Line) -> LogLine:
    at_ms, member, incarnation, sequence = key
    said = msgspec.json.decode(line.text)
    return LogLine(
        at_ms=at_ms,
        member=member,
        incarnation=incarnation,
        sequence=sequence,
        level=LEVELS[line.level],  # type: ignore[arg-type]
        event=str(said.get("event", "")),
        said=said,
    )


def _parts(archive: Archive, intake: Intake, wanted: _Wanted) -> Iterator[_Part]:
    """Yield parts that may have wanted lines, in the order of their starts (or, from the end, of
    their ends).

    Only one day's heads are in memory at a time.
    """

    def edge(part: _Part) -> int:
        return -part.high_ms if wanted.newest else part.low_ms

    waiting: dict[str, list[_Part]] = {}
    for part in _in_memory(intake, wanted):
        waiting.setdefault(day_of(abs(edge(part))), []).append(part)
    first, last = day_of(wanted.low), day_of(min(wanted.high, epoch_ms() + 2 * DAY_MS))
    days = {day for day in archive.days() if first <= day <= last}
    for day in sorted(days | set(waiting), reverse=wanted.newest):
        parts = waiting.get(day, [])
        for member, path in archive.files(day):
            if wanted.of_member(member):
                parts += _in_file(archive, member, path, wanted)
        yield from sorted(parts, key=edge)


def _in_memory(intake: Intake, wanted: _Wanted) -> Iterator[_Part]:
    for member, incarnation, first, lines in intake.waiting():
        moments = [line.at_ms for line in lines]
        size = sum(len(line.text) for line in lines)
        low, high = min(moments), max(moments)
        if wanted.of_member(member) and low < wanted.high and high >= wanted.low:
            yield _Part(member, incarnation, first, low, high, size, partial(list, lines))


def _in_file(archive: Archive, member: str, path: Path, wanted: _Wanted) -> Iterator[_Part]:
    for frame in archive.frames(path):
        in_time = frame.low_ms < wanted.high and frame.high_ms >= wanted.low
        if in_time and any(frame.levels[wanted.level :]):
            lines = partial(_unpacked, path, frame)
            yield _Part(
                member,
                frame.incarnation,
                frame.first,
                frame.low_ms,
                frame.high_ms,
                frame.raw,
                lines,
            )


def _unpacked(path: Path, frame: Frame) -> list[Line]:
    with path.open("rb") as file:
        return frames.unpack(file.fileno(), frame)
