"""The ring keeps the last lines, and gives away the older half when there are too many."""

from __future__ import annotations

import json
import threading
import time

import pytest

from greencrawl.schema import log
from greencrawl.schema.logs.records import MOST_LINE_BYTES
from greencrawl.schema.logs.ring import Ring, shortened


def test_the_ring_numbers_lines_in_the_order_of_logging() -> None:
    ring = Ring()
    for text in "abcde":
        ring.append(text)
    assert ring.after(0, 100) == (1, ["a", "b", "c", "d", "e"])
    assert ring.after(2, 5) == (3, ["c", "d"])
    assert ring.after(2, 0) == (3, ["c"])
    ring.forget(3)
    assert ring.after(0, 100) == (4, ["d", "e"])
    assert (len(ring), ring.first, ring.last, ring.bytes) == (2, 4, 5, 4)
    ring.forget(9)
    assert ring.after(0, 100) == (6, [])


def test_the_ring_gives_its_older_half_away_when_it_is_full() -> None:
    ring, spilled = Ring(20), []
    ring.spill = lambda first, lines: spilled.append((first, lines)) or 0  # type: ignore[func-returns-value]
    for number in range(11):
        ring.append(str(number % 10))
    assert spilled == [(1, ["0", "1", "2", "3", "4", "5"])]
    assert ring.after(0, 100) == (7, ["6", "7", "8", "9", "0"])
    assert ring.dropped == 0


def test_lines_that_a_full_ring_cannot_give_away_are_dropped_and_counted() -> None:
    ring = Ring(20)
    for _ in range(11):
        ring.append("a")
    assert (ring.dropped, ring.first, len(ring)) == (6, 7, 5)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"event": "a", "level": "error", "text": "x" * MOST_LINE_BYTES}),
        json.dumps({"event": "a", "level": "error", "n": list(range(MOST_LINE_BYTES))}),
        json.dumps({"event": "a", "level": "error", **dict.fromkeys(map(str, range(9999)), 1)}),
    ],
)
def test_a_long_line_is_shortened(line: str) -> None:
    ring = Ring()
    ring.append(line)
    ((short,),) = (ring.after(0, 10**9)[1],)
    said = json.loads(short)
    assert len(short) <= MOST_LINE_BYTES
    assert (said["event"], said["level"], said["shortened_from"]) == ("a", "error", len(line))


def test_a_long_line_that_is_not_json_is_quoted() -> None:
    assert json.loads(shortened("x" * 100_000)) == {"event": "line_not_read", "text": "x" * 2000}


def test_no_line_is_lost_when_several_threads_log() -> None:
    ring = Ring()

    def say() -> None:
        for _ in range(2000):
            ring.append("{}")

    threads = [threading.Thread(target=say) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ring.last, ring.bytes) == (8000, 3 * 8000)


def test_a_line_in_the_ring_costs_less_than_five_microseconds() -> None:
    """The cost of keeping a line and of the check for loggers, in addition to some 20 µs for
    writing it."""
    ring, line = Ring(), json.dumps({"event": "a", "text": "x" * 250})
    began = time.process_time()
    for _ in range(20_000):
        ring.append(line)
    kept_us = (time.process_time() - began) / 20_000 * 1e6
    assert kept_us < 5.0


def test_each_line_is_kept_as_json_even_if_it_is_shown_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    event = {"event": "a", "level": "info", "n": 1}
    assert json.loads(log._as_json(None, "info", dict(event))) == event
    log.attach(lines.append)
    try:
        said = log._as_json(None, "info", dict(event))
        shown = log._for_people(None, "info", dict(event))
    finally:
        log.attach(None)
    assert lines == [said, said]
    assert "{" not in shown
