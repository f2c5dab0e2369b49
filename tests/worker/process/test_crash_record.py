"""The page of memory that a worker process shares with its supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import gevent
import pytest
from gevent.lock import Semaphore

from greencrawl.schema.records import FailureKind
from greencrawl.worker.process.crash_record import CrashRecord, Lock, Suspect

PAGE = Suspect("3/example.org", "00ff00ff00ff00ff", 7, 1, "http://example.org/é", 2, 4, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker" / "0.crash"


def test_the_crash_record_names_a_page_only_while_it_is_parsed(path: Path) -> None:
    child, supervisor = CrashRecord(path), CrashRecord(path)
    assert supervisor.suspect() is None
    with child.parsing(PAGE):
        assert supervisor.suspect() == PAGE
    assert supervisor.suspect() is None


def test_the_crash_record_still_names_a_page_whose_process_was_killed(path: Path) -> None:
    supervisor = CrashRecord(path)
    pid = os.fork()
    if pid == 0:
        with CrashRecord(path).parsing(PAGE):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert supervisor.note_death(FailureKind.PROCESS_DEATH) == PAGE
    supervisor.rearm()
    assert CrashRecord(path).verdict() == (FailureKind.PROCESS_DEATH, PAGE)


def test_the_crash_record_names_no_page_after_its_parser_raised(path: Path) -> None:
    child = CrashRecord(path)
    with pytest.raises(ZeroDivisionError), child.parsing(PAGE):
        raise ZeroDivisionError
    assert child.suspect() is None


def test_moment_of_a_death_is_told_to_the_next_process_alone(path: Path) -> None:
    child, supervisor = CrashRecord(path), CrashRecord(path)
    assert child.died == 0.0
    supervisor.rearm(1234.5)
    with child.parsing(PAGE):
        assert child.died == 1234.5
    supervisor.rearm()
    assert child.died == 0.0


def test_suspect_without_verdict_is_forgotten_at_the_next_start(path: Path) -> None:
    child = CrashRecord(path)
    body = child.parsing(PAGE)
    body.__enter__()  # it never leaves: the process died with its supervisor
    CrashRecord(path).rearm()
    assert child.suspect() is None
    assert child.verdict() is None


def test_a_death_between_pages_is_charged_to_no_page(path: Path) -> None:
    crash_record = CrashRecord(path)
    assert crash_record.note_death(FailureKind.STALLED) is None
    assert crash_record.verdict() is None


def test_a_verdict_of_the_crash_record_is_gone_once_it_is_cleared(path: Path) -> None:
    crash_record = CrashRecord(path)
    body = crash_record.parsing(PAGE)
    body.__enter__()
    crash_record.note_death(FailureKind.STALLED)
    assert crash_record.verdict() == (FailureKind.STALLED, PAGE)
    crash_record.clear()
    assert crash_record.verdict() is None


def test_heartbeat_and_readiness_are_seen_and_begin_anew(path: Path) -> None:
    child, supervisor = CrashRecord(path), CrashRecord(path)
    child.beat()
    child.beat()
    child.set_ready()
    assert (supervisor.beats, supervisor.ready) == (2, True)
    supervisor.rearm()
    assert (supervisor.beats, supervisor.ready) == (0, False)


def test_an_endless_parse_beats_once_though_other_greenlets_run(path: Path) -> None:
    crash_record = CrashRecord(path)
    crash_record.beat()
    for _ in range(2):
        before = crash_record.beats
        with crash_record.parsing(PAGE):
            for _ in range(3):  # while a hook sleeps, the heartbeat's greenlet runs
                crash_record.beat()
        assert crash_record.beats == before + 1
    crash_record.beat()
    crash_record.beat()
    assert crash_record.beats == before + 3


@pytest.mark.parametrize("alone", [None, Semaphore(1)])
def test_second_page_waits_while_a_hook_of_the_first_yields(path: Path, alone: Lock | None) -> None:
    crash_record = CrashRecord(path, alone)
    other = Suspect("3/example.org", "00ff00ff00ff00ff", 8, 1, "http://example.org/b", 2, 4, 0)
    seen: list[Suspect | None] = []

    def parse(suspect: Suspect) -> None:
        with crash_record.parsing(suspect):
            gevent.sleep(0.01)
            seen.append(crash_record.suspect())

    gevent.joinall([gevent.spawn(parse, PAGE), gevent.spawn(parse, other)], raise_error=True)
    assert seen == [PAGE, other]


def test_a_url_too_long_for_the_crash_record_is_parsed_unnamed(path: Path) -> None:
    crash_record = CrashRecord(path)
    long = Suspect("3/h", "00ff00ff00ff00ff", 8, 1, "http://h/" + "x" * 20_000, 0, 0, 0)
    with crash_record.parsing(long):
        assert crash_record.suspect() is None


@pytest.mark.parametrize("alone", [None, Semaphore(1)])
def test_a_page_that_cannot_be_named_does_not_hold_up_the_next(
    path: Path, alone: Lock | None
) -> None:
    crash_record = CrashRecord(path, alone)
    odd = Suspect("3/h", "00ff00ff00ff00ff", 8, 1, "http://h/\udc80", 0, 0, 0)
    with pytest.raises(UnicodeEncodeError), crash_record.parsing(odd):
        pass
    crash_record.beat()
    crash_record.beat()
    assert crash_record.beats == 2
    with gevent.Timeout(5), crash_record.parsing(PAGE):
        assert crash_record.suspect() == PAGE
