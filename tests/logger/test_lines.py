"""Text that is no line, or would harm a terminal, becomes a harmless line."""

from __future__ import annotations

import json
import re

import pytest

from greencrawl.logger.lines import known, read
from greencrawl.schema.logs.records import MOST_LINE_BYTES

NOW_MS = 1_790_000_000_000
TIME = '"timestamp": "2026-11-26T15:32:49.123456Z"'
AT_MS = 1_795_707_169_123

HOSTILE = {
    "no JSON": (b"kaputt \x1b[2J", "not JSON"),
    "cut short": (b'{"event": "a", "level"', "not JSON"),
    "no UTF-8": (b'{"event": "\xff\xfe"}', "not UTF-8"),
    "no object": (b'["event"]', "not an object"),
    "too long": (b'{"event": "' + b"a" * MOST_LINE_BYTES + b'"}', "more than"),
    "nested": (b'{"event": ' + b"[" * 12_000 + b"]" * 12_000 + b"}", "nested"),
    "a number without end": (b'{"event": "a", "n": ' + b"1" * 9000 + b"}", ""),
    "no number": (b'{"event": "a", "n": NaN}', "no line"),
    "too long once it is printable": (
        ('{"event": "' + "\U0001f4a9" * 4000 + '"}').encode(), "no line, or too long"
    ),
    "empty": (b"", "not JSON"),
    "too large a number": (f'{{"event": "a", {TIME}, "n": {"1" * 9000}}}'.encode(), ""),
    "too large a fraction": (f'{{"event": "a", {TIME}, "n": 1e999}}'.encode(), "no line"),
    "nested, with a time": (f'{{{TIME}, "a": {"[" * 65}{"]" * 65}}}'.encode(), "nested"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_that_is_no_log_line_is_reported_in_a_log_line(name: str) -> None:
    text, why = HOSTILE[name]
    line = read(text, NOW_MS)
    assert b'"line_not_read"' in line.text
    said = json.loads(line.text)
    assert said["event"] == "line_not_read"
    assert why in said["why"]
    assert (line.at_ms, line.level) == (NOW_MS, 2)
    assert_harmless(line.text)
    assert known(line.text) == line


MADE_SAFE = {
    "control characters": '"event": "a\x1b[2J\x9b", "level": "info"',
    "blanks that go back": '\r"event": "a\x7f", "level": "info"',
    "other letters": '"event": "äöü \u202e\u2028", "level": "info"',
    "half a character": '"event": "a\\ud800b", "level": "info"',
    "a level of its own": '"event": "a\x1b", "level": ["\x1b"]',
}


@pytest.mark.parametrize("name", MADE_SAFE)
def test_characters_that_harm_a_terminal_are_escaped_in_a_line(name: str) -> None:
    line = read(f"{{{TIME}, {MADE_SAFE[name]}}}".encode(), NOW_MS)
    said = json.loads(line.text)
    assert said["event"] != "line_not_read"
    assert (line.at_ms, line.level) == (AT_MS, 1)
    assert_harmless(line.text)
    said["event"].encode()  # all of it can be encoded


def test_many_lists_side_by_side_do_not_count_as_deep_nesting() -> None:
    text = f'{{"event": "a", {TIME}, "level": "info", "list": [{"[1, {}], " * 500}["]]]]"]]}}'
    assert read(text.encode(), NOW_MS) == (AT_MS, 1, text.encode())


def test_a_harmless_log_line_is_stored_unchanged() -> None:
    text = f'{{"event": "worker_started", "part": "worker", "level": "error", {TIME}}}'.encode()
    assert read(text, NOW_MS) == (AT_MS, 3, text)


@pytest.mark.parametrize("time", ['"yesterday"', "7", "null", '"99999-01-01T00:00:00Z"'])
def test_a_line_without_a_valid_time_gets_the_time_of_its_arrival(time: str) -> None:
    line = read(f'{{"event": "a", "timestamp": {time}}}'.encode(), NOW_MS)
    assert (line.at_ms, json.loads(line.text)["event"]) == (NOW_MS, "a")


def assert_harmless(text: bytes) -> None:
    assert re.fullmatch(rb"[\x20-\x7e]+", text)
    assert len(text) <= MOST_LINE_BYTES
