"""Work of this process is not counted as waiting time of answers that came meanwhile."""

from __future__ import annotations

import ipaddress
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest
from gevent.monkey import get_original

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Fetched, Session
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.process.blocked import Blocked, blocked
from greencrawl.worker.process.crash_record import CrashRecord, Suspect
from greencrawl.worker.session.held import HeldSession
from greencrawl.worker.session.slow_hosts import SLOW_SECONDS, SlowHosts

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
PAGE = Suspect("1/h", "token", 1, 1, "http://h/", 0, 0, 0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"

plain_sleep = get_original("time", "sleep")
plain_socket = get_original("socket", "socket")


@contextmanager
def serving(*pauses: float) -> Iterator[str]:
    """Serve an answer in pieces, with a pause before each; yield the URL.

    The server is in a thread, so a busy hub does not hold it up.
    """
    listener = plain_socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            body = b"x" * 100_000
            share = len(body) // len(pauses)
            for number, pause in enumerate(pauses):
                plain_sleep(pause)
                piece = body[number * share : (number + 1) * share]
                connection.sendall(piece if number else HEAD + piece)
            select.select([connection], [], [], 10)

    served = gevent.get_hub().threadpool.spawn(serve)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    served.get()
    listener.close()


@pytest.fixture
def crash_record(tmp_path: Path) -> CrashRecord:
    return CrashRecord(tmp_path / "crash", blocked=blocked())


def fetch_beside(
    crash_record: CrashRecord, url: str, stretches: Sequence[tuple[float, float]]
) -> int:
    """Return the milliseconds that an answer took beside pages that hold the hub: (after, for)
    seconds."""

    def read_pages() -> None:
        for pause, seconds in stretches:
            gevent.sleep(pause)
            with crash_record.parsing(PAGE):
                plain_sleep(seconds)

    downloader = Downloader(LOOPBACK, 10)
    reading = gevent.spawn(read_pages)
    try:
        found = downloader.fetch(url, {}, max_body_bytes=10**6, deadline=monotonic() + 60)
    finally:
        downloader.close()
    reading.join()
    assert isinstance(found, Fetched), found
    return found.elapsed_ms


def test_the_latency_of_a_host_excludes_a_page_that_was_read_meanwhile(
    crash_record: CrashRecord,
) -> None:
    with serving(0.1) as url:
        assert fetch_beside(crash_record, url, [(0.02, 0.8)]) < 300


def test_the_latency_of_a_host_excludes_pages_read_between_the_pieces_of_its_answer(
    crash_record: CrashRecord,
) -> None:
    with serving(0.1, 0.6) as url:
        taken = fetch_beside(crash_record, url, [(0.02, 0.5), (0.05, 0.5)])
    assert taken < 500, "of about a second"


def test_the_latency_of_a_slow_host_counts_in_full_though_pages_were_read_meanwhile(
    crash_record: CrashRecord,
) -> None:
    with serving(0.9) as url:
        assert fetch_beside(crash_record, url, [(0.02, 0.3), (0.02, 0.3)]) > 850


def test_a_hook_that_lets_others_run_does_not_count_as_blocking(crash_record: CrashRecord) -> None:
    before, seconds = blocked().count, blocked().seconds
    with crash_record.parsing(PAGE):
        gevent.sleep(0.05)
    assert (blocked().count, blocked().seconds) == (before, seconds)
    with crash_record.parsing(PAGE):
        plain_sleep(0.05)
    assert blocked().count == before + 1
    assert 0.05 <= blocked().seconds - seconds < 1


def test_a_session_that_waited_while_its_process_was_busy_does_not_count_as_slow() -> None:
    clock = [100.0]
    busy = Blocked(lambda: clock[0])
    session = Session(
        session="1/h", token="t", crawl=1, revision=1, host="h", ttl=60,
        delay=0, floor=0, robots_known=True, tasks=(),
    )  # fmt: skip
    held = HeldSession(session, 1e12, since=100.0)
    begun = busy.begin()
    clock[0] += SLOW_SECONDS + 0.5
    busy.end(begun)
    hosts = SlowHosts(10)
    assert not hosts.look([held], clock[0], busy.since)
    assert hosts.slow == 0
    clock[0] += SLOW_SECONDS + 0.5
    assert hosts.look([held], clock[0], busy.since)
    assert hosts.slow == 1
