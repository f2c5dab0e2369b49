"""The knowledge of a host's shapes as bytes, which go with the host to other workers."""

from __future__ import annotations

import struct
from array import array
from zlib import crc32

from msgspec import Struct

from greencrawl.schema.records import TRAPS_BYTES
from greencrawl.worker.traps.evidence import Same
from greencrawl.worker.traps.yields import (
    FIRST_PROBE,
    MORE,
    PACKED_SECTIONS,
    PACKED_SHAPES,
    Sum,
    Yields,
    key_of,
)


class Unpacked(Struct):
    """The results of :func:`unpack` besides the sums."""

    yields: Yields
    full: dict[int, frozenset[int]]
    software: int
    asks: bool = False


_VERSION = 3
_HEAD = struct.Struct("<BHI?")
_SUM = struct.Struct("<IbIBBBBBBIBIIB")
_SCORE = struct.Struct("<Ib")
_TEXT = struct.Struct("<IBHI??")
_PACKED_PARAMETERS = 64
_MOST_PAGES = 2**32 - 1
_PACKED_TEXTS = 32


def pack(sums: Yields, full: dict[int, frozenset[int]], software: int, asks: bool = False) -> bytes:
    """Return a record that :func:`unpack` reads, at most :data:`TRAPS_BYTES`; the most important
    comes first.

    ``full`` are the words that tell shapes apart, ``software`` is what the host runs; ``asks``: it
    has links with a query.
    """
    rows = [(key_of(one.name), one) for one in sums.sums.values()]
    rows += sums.packed.items()
    rows.sort(key=lambda pair: (-pair[1].score, -pair[1].pages))
    sections = {crc32(name.encode()): score for name, score in sums.sections.items()}
    sections = {**sums.packed_sections, **sections}
    pieces = [_HEAD.pack(_VERSION, software, min(sums.pages, _MOST_PAGES), asks)]
    pieces.append(bytes((min(len(rows), PACKED_SHAPES),)))
    pieces += [_packed_sum(key, one) for key, one in rows[:PACKED_SHAPES]]
    kept = [(number, score) for number, score in sections.items() if score][-PACKED_SECTIONS:]
    pieces.append(bytes((len(kept),)))
    pieces += [_SCORE.pack(number, round(score * 4)) for number, score in kept]
    texts = sorted(sums.texts.items(), key=lambda pair: -pair[1].pages)[:_PACKED_TEXTS]
    pieces.append(bytes((len(texts),)))
    pieces += [
        _TEXT.pack(text, one.pages, one.depths, one.shape, one.several, one.asked)
        for text, one in texts
    ]
    known = list(sums.parameters.items())[-_PACKED_PARAMETERS:]
    pieces.append(bytes((len(known),)))
    pieces += [_SCORE.pack(number, round(score * 4)) for number, score in known]
    left = TRAPS_BYTES - sum(map(len, pieces)) - 2
    words = b""
    count = 0
    for prefix, settled in full.items():
        piece = struct.pack("<IB", prefix, len(settled)) + array("I", settled).tobytes()
        if len(words) + len(piece) > left or count == 255:
            break
        words += piece
        count += 1
    pieces += [bytes((count,)), words]
    left -= len(words)
    pieces.append(array("I", list(sums.templates)[-(left // 4) :] if left > 3 else []).tobytes())
    return b"".join(pieces)


def pages_of(record: bytes) -> int:
    """Return how many pages of the host went into a record; 0 for an invalid one."""
    if len(record) < _HEAD.size or record[0] != _VERSION:
        return 0
    return int(_HEAD.unpack_from(record)[2])


def unpack(record: bytes) -> Unpacked | None:
    """Return what :func:`pack` wrote; None for an invalid record, or for one of another version."""
    if not pages_of(record):
        return None
    try:
        return _unpacked(record)
    except (struct.error, IndexError, ValueError):
        return None


def _unpacked(record: bytes) -> Unpacked:
    yields = Yields()
    _, software, yields.pages, asks = _HEAD.unpack_from(record)
    at = _HEAD.size
    count, at = record[at], at + 1
    for _ in range(count):
        (
            key, score, pages, text, leads, further, unknown_leads, inner, votes, feeder, probe,
            parked, good, flags,
        ) = _SUM.unpack_from(record, at)  # fmt: skip
        yields.packed[key] = Sum(
            "", score / 4, pages, good, text / 255, leads / 255, further / 255,
            unknown_leads / 255, feeder, votes, parked, FIRST_PROBE * MORE ** min(probe, 20),
            0, bool(flags & 1), bool(flags & 2), inner / 255, flags >> 2,
        )  # fmt: skip
        at += _SUM.size
    yields.by_key.update(yields.packed)
    yields.troubled = any(one.is_poor for one in yields.packed.values())
    at = _unpack_scores(record, at, yields.packed_sections)
    count, at = record[at], at + 1
    for _ in range(count):
        text, *same = _TEXT.unpack_from(record, at)
        yields.texts[text] = Same(*same)
        at += _TEXT.size
    at = _unpack_scores(record, at, yields.parameters)
    full = {}
    count, at = record[at], at + 1
    for _ in range(count):
        prefix, length = struct.unpack_from("<IB", record, at)
        at += 5
        full[prefix] = frozenset(array("I", record[at : at + 4 * length]))
        at += 4 * length
    rest = record[at:]
    yields.templates = dict.fromkeys(array("I", rest[: len(rest) // 4 * 4]))
    return Unpacked(yields, full, software, asks)


def _unpack_scores(record: bytes, at: int, scores: dict[int, float]) -> int:
    count, at = record[at], at + 1
    for _ in range(count):
        key, score = _SCORE.unpack_from(record, at)
        scores[key] = score / 4
        at += _SCORE.size
    return at


def _packed_sum(key: int, one: Sum) -> bytes:
    probe, step = FIRST_PROBE, 0
    while probe < one.probe and step < 20:
        probe, step = probe * MORE, step + 1
    return _SUM.pack(
        key,
        round(one.score * 4),
        min(one.pages, _MOST_PAGES),
        round(one.text * 255),
        round(one.leads * 255),
        round(one.further * 255),
        round(one.unknown_leads * 255),
        round(one.inner * 255),
        one.votes,
        one.feeder,
        step,
        min(one.parked, _MOST_PAGES),
        min(one.yields, _MOST_PAGES),
        one.grew | one.copied << 1 | one.inners << 2,
    )
