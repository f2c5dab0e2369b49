"""Lines as they are kept: JSON objects on one line of printable ASCII, whatever was sent.

A log line may quote a foreign server, and a person may read the files in a terminal. An invalid
line is not left out, since lines are numbered: another line replaces it and says so.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from greencrawl.schema.logs.records import LEVELS, MOST_LINE_BYTES

_PLAIN = re.compile(rb"\{[\x20-\x7e]*\}")
_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate: half of a character above U+FFFF. Its other half may be missing."""
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")
_DEEPEST = 64
_QUOTED = 300
_LEVEL = {level: number for number, level in enumerate(LEVELS)}
_INFO = _LEVEL["info"]


class Line(NamedTuple):
    """The time of a line, the number of its level in LEVELS, and its text."""

    at_ms: int
    level: int
    text: bytes


class _Said(msgspec.Struct):
    timestamp: datetime
    level: str = "info"


_DECODER = msgspec.json.Decoder(_Said)


def read(text: bytes, now_ms: int) -> Line:
    """Return a line unchanged, or its replacement; a line without a time gets ``now_ms``."""
    plain = len(text) <= MOST_LINE_BYTES and _PLAIN.fullmatch(text) and not _PAIR.search(text)
    if plain and _is_sound(text) and (found := _known(text)):
        return found
    text = _safe(text, now_ms)
    found = _known(text)
    assert found is not None
    return found


def known(text: bytes) -> Line:
    """Return a stored line, which :func:`read` made."""
    found = _known(text)
    return found if found is not None else Line(0, _INFO, text)


def _known(text: bytes) -> Line | None:
    try:
        said = _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    moment = said.timestamp if said.timestamp.tzinfo else said.timestamp.replace(tzinfo=UTC)
    return Line(round(moment.timestamp() * 1000), _LEVEL.get(said.level, _INFO), text)


def _safe(text: bytes, now_ms: int) -> bytes:
    """Return the line with printable characters only, or a line which says that it is invalid."""
    try:
        if len(text) > MOST_LINE_BYTES:
            raise ValueError(f"more than {MOST_LINE_BYTES} bytes")
        whole = json.dumps(json.loads(text, strict=False), ensure_ascii=False)
        said = json.loads(whole.encode("utf-8", "replace"))  # a half becomes a question mark
        if _depth(text) > _DEEPEST:
            raise RecursionError
        if not isinstance(said, dict):
            raise ValueError("not an object")
        for at in (said.get("timestamp"), _iso(now_ms)):  # its own time, if it is valid
            made = _ascii({**said, "timestamp": at, "level": str(said.get("level", "info"))[:20]})
            if len(made) <= MOST_LINE_BYTES and _is_sound(made) and _known(made):
                return made
        raise ValueError("no line, or too long once it is made printable")
    except UnicodeDecodeError:
        why = "not UTF-8"
    except json.JSONDecodeError:
        why = "not JSON"
    except RecursionError:
        why = "nested too deep"
    except ValueError as error:
        why = str(error)[:_QUOTED]
    return _ascii(
        {
            "event": "line_not_read",
            "why": why,
            "text": text[:_QUOTED].decode("utf-8", "replace"),
            "level": "warning",
            "timestamp": _iso(now_ms),
        }
    )


def _is_sound(text: bytes) -> bool:
    """Return whether the whole line can be read, and written, by all readers."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return _depth(text) <= _DEEPEST


def _depth(text: bytes) -> int:
    """Return how deep objects and lists are nested, or their number if that is small enough."""
    few = text.count(b"{") + text.count(b"[")
    if few <= _DEEPEST:
        return few
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_TEXTS.sub(b"", text)):
        depth += 1 if bracket in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _ascii(said: dict[str, Any]) -> bytes:
    return json.dumps(said).replace("\x7f", "\\u007f").encode("ascii")


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
