"""Lines on their way: none is lost within ring and spool, each comes once, drops are counted.

Real loggers take them, here in this process or in others, and real files hold what waits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
import structlog

from greencrawl.broker.loggers import merge
from greencrawl.logger.finding import find
from greencrawl.logger.intake import Intake
from greencrawl.schema import log
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.logs import sender as module
from greencrawl.schema.logs.known_loggers import FORGET_SECONDS, KnownLoggers
from greencrawl.schema.logs.logger_choice import ranked
from greencrawl.schema.logs.records import LogLine, LogsQuery, LogsReply
from greencrawl.schema.logs.sender import Sender
from greencrawl.schema.transport import KeepAlive
from tests.broker.test_loggers import answering
from tests.support.logger_process import LoggerProcess, everything, line, logger_here
from tests.support.ports import free_port, free_ports
from tests.support.system import wait_until

SECONDS = 15.0
NOBODY = f"http://127.0.0.1:{free_port()}"


@contextmanager
def sending(
    folder: Path, *loggers: str, member: str = "w-0", life: int = 1, **more: Any
) -> Iterator[Sender]:
    sender = Sender(folder, "", every_seconds=0.02, **more)
    sender.begin(member, life)
    sender.tell(loggers)
    try:
        yield sender
    finally:
        sender.stop()
        log.attach(None)


def say(sender: Sender, numbers: range, **more: object) -> None:
    for number in numbers:
        sender.ring.append(line(f"line {number}", number=number, **more))


def as_processes_say_it() -> Any:
    """Configure the log as processes do; tests/conftest.py keeps their configuration from this
    process."""
    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            log._as_json,
        ],
    )


def numbers(items: list[LogLine]) -> Counter[int]:
    """Return how often each line of a test is there."""
    return Counter(one.said["number"] for one in items if "number" in one.said)


def all_once(last: int) -> Counter[int]:
    return Counter(range(1, last + 1))


def kept(intake: Intake) -> list[LogLine]:
    """Return all lines of a logger in this process."""
    found: list[LogLine] = []
    query = LogsQuery(since="1d", limit=1000)
    while True:
        reply = find(intake.archive, intake, query, epoch_ms())
        found += reply.items
        if not reply.next:
            return found
        query = LogsQuery(since="1d", limit=1000, after=reply.next)


def test_lines_come_to_a_logger_in_order_and_are_on_disk_at_the_end(tmp_path: Path) -> None:
    with logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, url) as sender:
            say(sender, range(1, 11))
            wait_until(lambda: intake.taken_lines >= 10, SECONDS, "taken")
            assert sender.queued >= 10  # until they are on disk
            say(sender, range(11, 2001))
        assert not list(intake.waiting())
        said = [one.said["number"] for one in kept(intake) if "number" in one.said]
        assert said == list(range(1, 2001))
        assert [path.name for path in (tmp_path / "spool").iterdir()] == ["loggers"]


def test_the_spool_keeps_lines_in_order_while_there_is_no_logger(tmp_path: Path) -> None:
    with logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, NOBODY) as sender:
            say(sender, range(1, 3001))
            wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
            sender.tell([url])
            say(sender, range(3001, 3011))
            wait_until(lambda: intake.taken_lines >= 3010, SECONDS, "taken")
        said = [one.said["number"] for one in kept(intake) if "number" in one.said]
        assert said == list(range(1, 3011))
        assert sender.dropped == 0


def test_lines_beyond_the_size_of_the_spool_are_dropped_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "log", as_processes_say_it())
    with logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, NOBODY, ring_bytes=64 * 1024, spool_bytes=1024 * 1024) as sender:
            for first in range(1, 12_001, 100):
                say(sender, range(first, first + 100), text="x" * 200)
                gevent.sleep(0)
            wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
            dropped = sender.dropped
            assert dropped > 1000
            sender.tell([url])
            say(sender, range(12_001, 12_002))
            wait_until(
                lambda: any(one.event == "log_lines_dropped" for one in kept(intake)),
                SECONDS, "it is told",
            )  # fmt: skip
        found = numbers(kept(intake))
        assert set(found.values()) == {1}
        assert sorted(found)[-1] == 12_001
        assert len(kept(intake)) + dropped == sender.ring.last
        told = [one.said["lines"] for one in kept(intake) if one.event == "log_lines_dropped"]
        assert sum(told) == dropped


def test_the_next_process_of_a_node_sends_the_lines_that_an_ended_one_left(tmp_path: Path) -> None:
    with logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, NOBODY, member="w-0", life=5) as sender:
            say(sender, range(1, 101))
        assert sender.dropped == 0
        with sending(tmp_path, url, member="w-1", life=6):
            wait_until(lambda: intake.taken_lines >= 100, SECONDS, "taken")
        assert numbers(kept(intake)) == all_once(100)
        assert {one.member for one in kept(intake) if "number" in one.said} == {"w-0"}


def test_a_logger_that_was_killed_and_comes_again_has_each_line_once(tmp_path: Path) -> None:
    port = free_port()
    with sending(tmp_path, f"http://127.0.0.1:{port}") as sender:
        with logger_here(tmp_path / "logs", port=port) as (_, intake):
            say(sender, range(1, 101))
            wait_until(lambda: intake.taken_lines >= 100, SECONDS, "taken, and not on disk")
            assert not intake.archive.days()
        say(sender, range(101, 201))
        wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
        with logger_here(tmp_path / "logs", port=port) as (_, intake):
            say(sender, range(201, 301))
            wait_until(lambda: intake.taken_lines >= 300, SECONDS, "all are taken")
            assert numbers(kept(intake)) == all_once(300)
            assert sender.dropped == 0


def test_a_logger_that_fails_again_and_again_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "log", as_processes_say_it())
    monkeypatch.setattr(module, "REST_SECONDS", 0.1)
    monkeypatch.setattr(module, "MOST_REST_SECONDS", 0.1)
    with logger_here(tmp_path / "logs") as (url, intake):
        member = next(f"w-{n}" for n in range(99) if ranked(f"w-{n}", [url, NOBODY])[0] == NOBODY)
        tried = 0

        class Counting(KeepAlive):
            def send(self, *given: Any, **more: Any) -> Any:
                nonlocal tried
                tried += self.url == NOBODY
                return super().send(*given, **more)

        with sending(tmp_path, NOBODY, url, member=member, connect=Counting) as sender:
            for number in range(1, 2000):
                say(sender, range(number, number + 1))
                gevent.sleep(0.01)
                if tried > 4 and intake.taken_lines:
                    break
        said = Counter(one.event for one in kept(intake) if one.event.startswith("log"))
    assert tried > 4
    assert said == {"logger_chosen": 1, "logger_failed": 1}


def test_a_second_logger_takes_over_and_no_line_is_shown_twice(tmp_path: Path) -> None:
    ports = free_ports(2)
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    member = next(f"w-{n}" for n in range(99) if ranked(f"w-{n}", urls)[0] == urls[1])
    with (
        logger_here(tmp_path / "a", port=ports[0]) as (_, other),
        sending(tmp_path, *urls, member=member) as sender,
    ):
        with logger_here(tmp_path / "b", port=ports[1]) as (_, first):
            say(sender, range(1, 101))
            wait_until(lambda: first.taken_lines >= 100, SECONDS, "taken by its first")
            first.flush()  # the lines are on disk, but the sender does not know that
        say(sender, range(101, 201))
        wait_until(lambda: other.taken_lines >= 200, SECONDS, "taken by the other")
        with logger_here(tmp_path / "b", port=ports[1]) as (_, again):
            wait_until(lambda: sender._logger == urls[1], SECONDS, "the first is asked again")
            say(sender, range(201, 301))
            wait_until(lambda: again.taken_lines >= 100, SECONDS, "taken by its first")
            both = [kept(other), kept(again)]
            assert numbers(both[0]) & numbers(both[1]) == all_once(100)
            merged = merge([LogsReply(items=tuple(one)) for one in both], 10_000)
            assert Counter(one.said["number"] for one in merged.items) == all_once(300)


def test_a_process_that_ends_while_it_sends_loses_no_line(tmp_path: Path) -> None:
    with answering(b"", seconds=60) as hanging, logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, NOBODY) as sender:
            say(sender, range(1, 101))
            wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
            sender.tell([hanging])
            wait_until(lambda: list(tmp_path.glob("spool/*/*.claimed")), SECONDS, "it sends them")
            say(sender, range(101, 111))
            sender.tell([url])  # it would take the last lines at once
        with sending(tmp_path, url, member="w-1"):
            wait_until(lambda: len(numbers(kept(intake))) >= 110, SECONDS, "all are taken")
        assert numbers(kept(intake)) == all_once(110)


def test_a_line_that_two_loggers_have_is_shown_once(tmp_path: Path) -> None:
    replies, now = [], epoch_ms()
    moments = range(now - 9, now)
    for name in "ab":
        with logger_here(tmp_path / name) as (_, intake):
            texts = [line("a", at_ms, number=n).encode() for n, at_ms in enumerate(moments)]
            sent = 0 if name == "a" else 3
            intake.take("w-0", 1, 1 + sent, texts[sent:], 0, True)
            query = LogsQuery(since="1h", limit=4)
            replies.append(find(intake.archive, intake, query, epoch_ms()))
    merged = merge(replies, 100)
    assert [one.said["number"] for one in merged.items] == [0, 1, 2, 3]
    assert merged.next
    assert merge([LogsReply(), LogsReply()], 4) == LogsReply()


def once(items: list[dict[str, Any]]) -> Counter[int]:
    """Check an answer of another process: each line is there once."""
    return Counter(one["said"]["number"] for one in items if "number" in one["said"])


def test_no_line_is_lost_when_the_disk_of_a_logger_is_full(tmp_path: Path) -> None:
    logger = LoggerProcess(tmp_path / "node").start()
    try:
        with sending(tmp_path, logger.url, ring_bytes=128 * 1024) as sender:
            say(sender, range(1, 101))
            wait_until(lambda: logger.health()["taken"] >= 100, SECONDS, "taken")
            logger.limit(1)
            say(sender, range(101, 2001), text="x" * 100)  # enough to be written at once
            wait_until(lambda: logger.health()["full"], SECONDS, "the disk is full")
            wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
            logger.limit(0)
            say(sender, range(2001, 2011))
            wait_until(lambda: 2010 in once(everything(logger.url)), SECONDS, "taken")
        assert once(everything(logger.url)) == all_once(2010)
        assert sender.dropped == 0
    finally:
        logger.stop()


def test_a_sender_keeps_no_lines_until_a_logger_is_known(tmp_path: Path) -> None:
    with sending(tmp_path) as sender:
        say(sender, range(1, 101))
        assert sender.queued == 0
        assert log._sink is None
        assert not (tmp_path / "spool").exists()
        with logger_here(tmp_path / "logs") as (url, intake):
            sender.tell([url])
            assert log._sink is not None
            say(sender, range(101, 111))
            wait_until(lambda: intake.taken_lines >= 10, SECONDS, "taken")


def test_a_node_keeps_lines_until_no_logger_was_named_for_a_day(
    tmp_path: Path,
) -> None:
    known = KnownLoggers(tmp_path)
    assert known.tell((NOBODY,))
    again = KnownLoggers(tmp_path)
    assert again.loggers == (NOBODY,)
    assert again.tell(())
    (tmp_path / "w-0@1").mkdir()
    late = KnownLoggers(tmp_path, -1.0)
    assert late.loggers == ()
    assert not tmp_path.exists()
    assert not late.tell(())
    assert FORGET_SECONDS == 86_400


def test_lines_that_a_logger_refuses_are_given_up(tmp_path: Path) -> None:
    with logger_here(tmp_path / "logs") as (url, intake):
        with sending(tmp_path, url, member="no member!") as sender:  # a name without an address
            say(sender, range(1, 4))
            wait_until(lambda: sender.dropped >= 3, SECONDS, "they are given up")
        assert intake.taken_lines == 0


def test_the_spool_keeps_the_lines_if_the_token_is_wrong(tmp_path: Path) -> None:
    with logger_here(tmp_path / "logs", token="right") as (url, intake):
        with sending(tmp_path, url) as sender:
            say(sender, range(1, 4))
            wait_until(lambda: not len(sender.ring), SECONDS, "all is in the spool")
        assert sender.dropped == 0
        right = Sender(tmp_path, "right", every_seconds=0.02)
        right.begin("w-0", 2)
        wait_until(lambda: intake.taken_lines >= 3, SECONDS, "taken")
        right.stop()
        log.attach(None)
        assert numbers(kept(intake)) == all_once(3)
