"""The files of a logger: frames of zstd, each after a head that ``zstdcat`` skips.

A head is a skippable frame (RFC 8878, 3.1.2) with a :class:`Frame`. It names the life of a member,
the numbers and times of its lines, how many lines each level has, and a checksum. So a reader knows
without unpacking whether a frame may have what it looks for. The heads are also in the file's
index, which is written after the frame is on disk; frames that an index lacks are found in the file
itself.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import zstandard

from greencrawl.logger.lines import Line, known
from greencrawl.schema.logs.records import LEVELS

_RECORD = struct.Struct("<4sIQQQIIqq5II")
_HEAD = struct.Struct("<II")
_SKIPPABLE = 0x184D2A5C
_TAG = b"GCL1"
_BEFORE = _HEAD.size + _RECORD.size
MOST_RAW_BYTES = 8 * 1024 * 1024
"""The lines of a frame may have this many bytes; a head that says more is not read."""


class Frame(NamedTuple):
    """The content of a head. ``offset`` is the place of the head in its file; ``size`` is the size
    of the packed lines."""

    size: int
    offset: int
    incarnation: int
    first: int
    lines: int
    raw: int
    low_ms: int
    high_ms: int
    levels: tuple[int, ...]
    check: int

    @property
    def last(self) -> int:
        """Return the number of the last line in the frame."""
        return self.first + self.lines - 1

    @property
    def end(self) -> int:
        """Return where the next frame begins in the file."""
        return self.offset + _BEFORE + self.size

    def record(self) -> bytes:
        """Return the frame as in the index."""
        fields = (*self[:8], *self.levels, self.check)
        return _RECORD.pack(_TAG, *fields)


def pack(offset: int, incarnation: int, first: int, lines: Sequence[Line]) -> tuple[Frame, bytes]:
    """Pack lines with successive numbers; return the frame, and its bytes for ``offset``."""
    raw = b"".join(line.text + b"\n" for line in lines)
    packed = zstandard.ZstdCompressor(level=3).compress(raw)
    moments = [line.at_ms for line in lines]
    counts = [0] * len(LEVELS)
    for line in lines:
        counts[line.level] += 1
    frame = Frame(
        len(packed),
        offset,
        incarnation,
        first,
        len(lines),
        len(raw),
        min(moments),
        max(moments),
        tuple(counts),
        zlib.crc32(packed),
    )
    return frame, _HEAD.pack(_SKIPPABLE, _RECORD.size) + frame.record() + packed


def unpack(descriptor: int, frame: Frame) -> list[Line]:
    """Return the lines of a frame. Raises ValueError if it is damaged, OSError."""
    packed = os.pread(descriptor, frame.size, frame.offset + _BEFORE)
    if zlib.crc32(packed) != frame.check or frame.raw > MOST_RAW_BYTES:
        raise ValueError("a frame is damaged")
    raw = zstandard.ZstdDecompressor().decompress(packed, max_output_size=frame.raw)
    low, high = frame.low_ms, frame.high_ms
    found = (known(text) for text in raw.split(b"\n")[:-1])
    return [line._replace(at_ms=min(max(line.at_ms, low), high)) for line in found]


def index_of(path: Path) -> Path:
    """Return the index of a file of lines."""
    return path.with_name(path.name.removesuffix(".ndjson.zst") + ".index")


def frames(path: Path) -> list[Frame]:
    """Return the frames of a file, by its index alone. Raises OSError."""
    return list(_records(index_of(path).read_bytes()))


def mend(path: Path) -> int:
    """Make file and index agree, and cut off a torn end.

    Returns how many bytes were cut off. Raises OSError.
    """
    index = index_of(path)
    there = list(_records(index.read_bytes() if index.exists() else b""))
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        while there and not _is_whole(file.fileno(), there[-1], size):
            there.pop()
        end = there[-1].end if there else 0
        for frame in _walk(file.fileno(), end, size):
            there.append(frame)
            end = frame.end
        if end < size:
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
    wanted = b"".join(frame.record() for frame in there)
    if not index.exists() or index.read_bytes() != wanted:
        fresh = index.with_suffix(".new")
        fresh.write_bytes(wanted)
        fresh.replace(index)
    return size - end


def is_mended(path: Path) -> bool:
    """Return whether an index covers the whole file, by their sizes. Raises OSError."""
    with index_of(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        last = os.pread(file.fileno(), _RECORD.size, max(size - _RECORD.size, 0))
    ends = [frame.end for frame in _records(last, anywhere=True)]
    return size % _RECORD.size == 0 and (ends or [0])[0] == path.stat().st_size


def _records(data: bytes, *, anywhere: bool = False) -> Iterator[Frame]:
    """Yield the frames in an index; stop at a frame that does not begin where the last one ends."""
    end = 0
    for record in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
        tag, *fields = record
        frame = Frame._make([*fields[:8], tuple(fields[8:13]), fields[13]])
        if tag != _TAG or (frame.offset != end and not anywhere):
            return
        yield frame
        end = frame.end


def _walk(descriptor: int, offset: int, size: int) -> Iterator[Frame]:
    """Yield frames of a file from ``offset`` on; stop at a frame that is not whole."""
    while offset + _BEFORE <= size:
        data = os.pread(descriptor, _BEFORE, offset)
        if data[: _HEAD.size] != _HEAD.pack(_SKIPPABLE, _RECORD.size):
            return
        found = next(_records(data[_HEAD.size :], anywhere=True), None)
        if found is None or found.offset != offset or not _is_whole(descriptor, found, size):
            return
        yield found
        offset = found.end


def _is_whole(descriptor: int, frame: Frame, size: int) -> bool:
    if frame.end > size:
        return False
    packed = os.pread(descriptor, frame.size, frame.offset + _BEFORE)
    return zlib.crc32(packed) == frame.check
