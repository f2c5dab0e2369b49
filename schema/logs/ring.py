"""The last lines of this process, in memory, until a logger has them.

Lines are numbered from 1 on. Appending one costs a lock that is nearly always free and a deque: any
code may log, in any thread and any greenlet.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from gevent import monkey

from greencrawl.schema.logs.records import MOST_LINE_BYTES

RING_BYTES = 4 * 1024 * 1024
_MOST_TEXT = 2000
_KEPT_FIELDS = ("timestamp", "level", "event", "process", "part")

_allocate_lock = monkey.get_original("_thread", "allocate_lock")
"""Threads log, too. No code blocks while it holds this lock, so no greenlet ever finds it taken."""

Spill = Callable[[int, list[str]], int]
"""Takes lines, with the number of the first one; returns how many it could not keep."""


def _no_spill(_first: int, lines: list[str]) -> int:
    return len(lines)


class Ring:
    """The ring; see the module's docstring.

    ``spill`` gets the older half when ``most_bytes`` are exceeded.
    """

    def __init__(self, most_bytes: int = RING_BYTES) -> None:
        self.spill: Spill = _no_spill
        self.dropped = 0
        """Lines that were lost."""
        self.bytes = 0
        self._most_bytes = most_bytes
        self._lines: deque[str] = deque()
        self._first = 1
        self._lock = _allocate_lock()

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def first(self) -> int:
        """Return the number of the oldest line in the ring, or of the next one."""
        return self._first

    @property
    def last(self) -> int:
        """Return the number of the last line that was logged."""
        with self._lock:
            return self._first + len(self._lines) - 1

    def append(self, line: str) -> None:
        """Keep a line of JSON in ASCII, without line breaks."""
        if len(line) > MOST_LINE_BYTES:
            line = shortened(line)
        with self._lock:
            self._lines.append(line)
            self.bytes += len(line) + 1
            if self.bytes > self._most_bytes:
                self._spill(self._most_bytes // 2)

    def after(self, sequence: int, most_bytes: int) -> tuple[int, list[str]]:
        """Return the number of the first line after ``sequence``, and the lines from there on.

        They are at most ``most_bytes``, but at least one line.
        """
        with self._lock:
            first = max(sequence + 1, self._first)
            found: list[str] = []
            for line in islice(self._lines, first - self._first, None):
                most_bytes -= len(line) + 1
                if most_bytes < 0 and found:
                    break
                found.append(line)
            return first, found

    def forget(self, sequence: int) -> None:
        """Drop the lines up to this one: a logger has them."""
        with self._lock:
            while self._lines and self._first <= sequence:
                self._pop()

    def empty(self) -> None:
        """Give all lines to ``spill``."""
        with self._lock:
            self._spill(0)

    def clear(self) -> None:
        """Drop all lines, since no logger is expected; they do not count as dropped."""
        with self._lock:
            while self._lines:
                self._pop()

    def _spill(self, down_to_bytes: int) -> None:
        first, lines = self._first, []
        while self._lines and self.bytes > down_to_bytes:
            lines.append(self._pop())
        if lines:
            self.dropped += self.spill(first, lines)

    def _pop(self) -> str:
        line = self._lines.popleft()
        self.bytes -= len(line) + 1
        self._first += 1
        return line


def shortened(line: str) -> str:
    """Shorten a line that is too long: cut its texts, or keep only the fields of every line."""
    try:
        said: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return json.dumps({"event": "line_not_read", "text": line[:_MOST_TEXT]})
    cut = {name: _cut(value) for name, value in said.items()}
    text = json.dumps({**cut, "shortened_from": len(line)})
    if len(text) <= MOST_LINE_BYTES:
        return text
    few = {name: cut[name] for name in _KEPT_FIELDS if isinstance(cut.get(name), str)}
    return json.dumps({**few, "shortened_from": len(line)})


def _cut(value: Any) -> Any:
    if isinstance(value, (bool, int, float, type(None))):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
