"""``greencrawl logs``: how a line is shown. tests/system/test_logs.py tests the search."""

from __future__ import annotations

from greencrawl.cli.reading.logs import text_of
from greencrawl.schema.logs.records import LogLine


def test_a_log_line_is_shown_as_one_line_of_plain_text() -> None:
    said = {"event": "page_failed", "url": "https://example.org/", "n": 3, "level": "error"}
    line = LogLine(
        at_ms=1_790_000_000_000, member="w-0", incarnation=1, sequence=2, level="error",
        event="page_failed", said=said,
    )  # fmt: skip
    shown = text_of(line)
    assert shown.split() == [
        "2026-09-21", "14:13:20", "UTC", "w-0", "error", "page_failed",
        "url=https://example.org/", "n=3",
    ]  # fmt: skip


def test_a_log_line_reaches_the_terminal_without_control_characters() -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\r\n\u202e\u2028\x9b31m"
    line = LogLine(
        at_ms=1, member="w-0", incarnation=1, sequence=2, level="info", event=hostile,
        said={"event": hostile, hostile: hostile, "list": [hostile], "more": {hostile: [hostile]}},
    )  # fmt: skip
    shown = text_of(line)
    assert shown.isprintable()
    assert "title" in shown
