"""Posts: each line is taken once, and is on disk when the answer says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import gevent
import pytest
from structlog.testing import capture_logs

from greencrawl.logger import intake as module
from greencrawl.logger.archive import Archive
from greencrawl.logger.frames import unpack
from greencrawl.logger.intake import FLUSH_SECONDS, Full, Intake
from greencrawl.schema.logs.records import PostReply
from tests.logger.test_archive import no_file_beyond
from tests.support.logger_process import line
from tests.support.system import wait_until


class Turned:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Turned:
    return Turned()


@pytest.fixture
def intake(tmp_path: Path, clock: Turned) -> Intake:
    return Intake(Archive(tmp_path, 14), clock)


def take(
    intake: Intake, first: int, count: int, *, after: int = 0, flush: bool = False
) -> tuple[int, int]:
    texts = [line(str(n)).encode() for n in range(first, first + count)]
    reply = intake.take("w-0", 1, first, texts, after, flush)
    return reply.taken, reply.kept


def on_disk(intake: Intake) -> list[int]:
    """Return the numbers of lines on disk, which each line contains."""
    archive = Archive(intake.archive.folder, 14)
    found = []
    for day in archive.days():
        for _, path in archive.files(day):
            for frame in archive.frames(path):
                with path.open("rb") as file:
                    lines = unpack(file.fileno(), frame)
                said = [int(json.loads(one.text)["event"]) for one in lines]
                assert said == list(range(frame.first, frame.last + 1))
                found += said
    return found


def test_lines_are_on_disk_after_a_minute_or_at_once_if_the_sender_asks(
    intake: Intake, clock: Turned
) -> None:
    assert take(intake, 1, 3) == (3, 0)
    clock.now += FLUSH_SECONDS - 1
    intake.flush_old()
    assert take(intake, 4, 1) == (4, 0)
    clock.now += 1
    intake.flush_old()
    assert on_disk(intake) == [1, 2, 3, 4]
    assert take(intake, 5, 0) == (4, 4)
    assert take(intake, 5, 1, flush=True) == (5, 5)
    assert on_disk(intake) == [1, 2, 3, 4, 5]


def test_lines_that_are_sent_again_are_not_stored_twice(intake: Intake) -> None:
    take(intake, 1, 3)
    assert take(intake, 1, 3) == (3, 0)
    assert take(intake, 2, 4, flush=True) == (5, 5)
    assert take(intake, 1, 5, flush=True) == (5, 5)
    assert on_disk(intake) == [1, 2, 3, 4, 5]
    again = Intake(Archive(intake.archive.folder, 14))  # as after a restart
    assert take(again, 1, 6, flush=True) == (6, 6)
    assert on_disk(again) == [1, 2, 3, 4, 5, 6]
    assert (intake.taken_lines, intake.repeated_lines) == (5, 3 + 2 + 5)


def test_lines_that_the_sender_dropped_leave_a_gap_in_the_numbers(intake: Intake) -> None:
    take(intake, 1, 2)
    assert take(intake, 10, 2) == (11, 2)
    assert take(intake, 20, 1, flush=True) == (20, 20)
    assert on_disk(intake) == [1, 2, 10, 11, 20]


def test_the_logger_asks_again_for_lines_that_it_took_and_lost(intake: Intake) -> None:
    take(intake, 1, 2, flush=True)
    assert take(intake, 3, 5) == (7, 2)
    restarted = Intake(Archive(intake.archive.folder, 14))
    assert take(restarted, 8, 2, after=7) == (2, 2)
    assert take(restarted, 3, 7, flush=True) == (9, 9)
    assert on_disk(restarted) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_the_sender_is_told_of_a_full_disk_and_can_send_its_lines_again(intake: Intake) -> None:
    take(intake, 1, 2, flush=True)
    large = [line("large", more=os.urandom(15_000).hex()).encode() for _ in range(15)]
    take(intake, 3, 2)
    with no_file_beyond(128 * 1024):  # more than pytest writes meanwhile
        with pytest.raises(Full, match="File too large"):
            intake.take("w-0", 1, 5, large, 4, True)
        assert intake.full
        with pytest.raises(Full):  # from now on nothing is taken in memory only
            intake.take("w-0", 1, 3, large, 0, False)
    assert list(intake.waiting()) == []
    assert intake.bytes == 0
    assert take(intake, 6, 1, after=5) == (2, 2)
    assert take(intake, 3, 4) == (6, 6)
    assert intake.full == ""
    assert on_disk(intake) == [1, 2, 3, 4, 5, 6]


def test_many_lines_are_written_before_a_minute_is_over(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_BYTES", 1000)
    assert take(intake, 1, 5) == (5, 0)
    assert take(intake, 6, 10) == (15, 15)
    monkeypatch.setattr(module, "ALL_BYTES", 300)
    other = intake.take("w-1", 1, 1, [line("1").encode()] * 2, 0, False)
    assert other == PostReply(taken=2, kept=0)
    assert intake.take("w-2", 1, 1, [line("1").encode()] * 3, 0, False).kept == 3


def test_simultaneous_posts_are_taken_one_after_the_other(intake: Intake) -> None:
    posts = [gevent.spawn(take, intake, 1, count, flush=True) for count in range(1, 9)]
    gevent.joinall(posts, raise_error=True)
    assert on_disk(intake) == list(range(1, 9))


def test_lines_posted_during_a_write_of_their_member_are_written_a_minute_later(
    intake: Intake, clock: Turned
) -> None:
    take(intake, 1, 1)
    clock.now += FLUSH_SECONDS
    written = gevent.spawn(intake.flush_old)
    posted = gevent.spawn(take, intake, 2, 1, after=1)
    written.get()
    assert posted.get() == (2, 1)
    clock.now += FLUSH_SECONDS
    intake.flush_old()
    assert on_disk(intake) == [1, 2]
    assert intake.bytes == 0


def test_a_write_that_had_to_wait_does_not_remove_lines_that_came_meanwhile(intake: Intake) -> None:
    def write_and_post() -> None:
        intake.flush()
        assert take(intake, 2, 1, after=1) == (2, 1)

    take(intake, 1, 1)
    both = gevent.spawn(write_and_post), gevent.spawn(intake.flush)
    for one in both:
        one.get()
    intake.flush()
    assert on_disk(intake) == [1, 2]
    assert intake.bytes == 0


class Failing(Turned):
    """A clock that fails ``fails`` times."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 0

    def __call__(self) -> float:
        if self.fails:
            self.fails -= 1
            raise ValueError("no time")
        return self.now


def test_lines_are_written_as_before_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "REST_SECONDS", 0.001)
    clock = Failing()
    intake = Intake(Archive(tmp_path, 14), clock)
    take(intake, 1, 2)
    clock.now += FLUSH_SECONDS
    clock.fails = 2
    with capture_logs() as said:
        running = gevent.spawn(intake.run)
        wait_until(lambda: running.dead or not intake.bytes, 10, "the lines are written")
        running.kill()
    assert [one["event"] for one in said] == ["flush_failed"] * 2
    assert on_disk(intake) == [1, 2]
