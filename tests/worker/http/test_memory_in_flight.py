"""Bodies count while they are received: slow peers neither fill nor stop the process."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.session.memory_budget import MemoryBudget, MemoryTimeout
from tests.support.raw_server import Behaviour, RawServer, answer, send_then_stall

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
OK = b"HTTP/1.1 200 OK\r\n"
MOST, RESERVE, SMALL, READ = 400_000, 200_000, 20_000, 65536
LARGE = 200_000
GOOD = answer(b"g" * 5000)


class Watched(MemoryBudget):
    """It notes the largest amount in hand."""

    peak = 0

    def add(self, size: int) -> None:
        super().add(size)
        self.peak = max(self.peak, self.bytes)


@pytest.fixture
def memory_budget() -> Iterator[Watched]:
    made = Watched(MOST, RESERVE, small=SMALL)
    yield made
    assert (made.bytes, made.taken, list(made.parts), made.favoured) == (0, 0, [], None)


@pytest.fixture
def downloader(memory_budget: Watched) -> Iterator[Downloader]:
    made = Downloader(LOOPBACK, 20, memory_budget=memory_budget)
    yield made
    made.close()


def fetch(downloader: Downloader, url: str) -> Fetched | Failure | MemoryTimeout:
    try:
        return downloader.fetch(url, {}, max_body_bytes=10**6, deadline=monotonic() + 60)
    except MemoryTimeout as error:
        return error


def sit_on(size: int) -> Behaviour:
    """Send all of a body except its last bytes, then nothing."""
    head = OK + b"Content-Length: %d\r\n\r\n" % size
    return send_then_stall(head + bytes(size - 100), 30)


def test_stalled_bodies_are_ended_if_memory_is_short_and_small_pages_go_on(
    downloader: Downloader, memory_budget: Watched
) -> None:
    with RawServer({"/bad": sit_on(LARGE), "/good": GOOD}) as server:
        bad = [gevent.spawn(fetch, downloader, server.url("/bad")) for _ in range(12)]
        gevent.sleep(0.2)
        began = monotonic()
        for _ in range(50):
            assert isinstance(fetch(downloader, server.url("/good")), Fetched)
        assert monotonic() - began < 0.5
        gevent.wait(bad, timeout=9, count=4)
        ended = [one.value for one in bad if one.ready()]
        gevent.killall(bad)  # nobody ends the last ones, because nobody has to wait for them
    assert len(ended) >= 4
    for found in ended:
        assert isinstance(found, Failure)
        assert found.kind is FailureKind.TIMEOUT
        assert "waited for the memory" in found.detail
    assert memory_budget.peak < MOST + RESERVE + READ


def test_stalled_small_bodies_leave_room_for_smaller_ones() -> None:
    memory_budget = Watched(400_000, 600_000, small=64_000)
    downloader = Downloader(LOOPBACK, 20, memory_budget=memory_budget)
    with RawServer({"/bad": sit_on(60_000), "/good": answer(b"g" * 1000)}) as server:
        bad = [gevent.spawn(fetch, downloader, server.url("/bad")) for _ in range(30)]
        gevent.sleep(0.3)
        began = monotonic()
        for _ in range(20):
            assert isinstance(fetch(downloader, server.url("/good")), Fetched)
        assert monotonic() - began < 0.3
        assert memory_budget.peak < 1_000_000
        gevent.killall(bad)
    downloader.close()


def test_large_bodies_that_compete_for_memory_are_all_received(
    downloader: Downloader, memory_budget: Watched
) -> None:
    def behave(sock: socket.socket) -> None:
        sock.sendall(OK + b"Connection: close\r\n\r\n")
        for _ in range(6):
            sock.sendall(bytes(50_000))
            gevent.sleep(0.01)

    with RawServer(behave) as server:
        pages = [gevent.spawn(fetch, downloader, server.url()) for _ in range(8)]
        gevent.joinall(pages, timeout=10)
    assert [len(page.value.body) for page in pages] == [300_000] * 8
    assert memory_budget.peak < MOST + RESERVE + READ


@pytest.mark.parametrize(("first", "again"), [(100, 0), (20_000, 4000)], ids=["nothing", "little"])
def test_peer_that_announces_much_and_sends_little_does_not_hold_up_others(
    downloader: Downloader, first: int, again: int
) -> None:
    def sit(sock: socket.socket) -> None:
        sock.sendall(OK + b"Content-Length: 900000\r\n\r\n" + bytes(first))
        while True:
            gevent.sleep(0.1)
            sock.sendall(bytes(again))

    with RawServer({"/bad": sit, "/good": answer(bytes(LARGE))}) as server:
        bad = gevent.spawn(fetch, downloader, server.url("/bad"))
        gevent.sleep(0.1)
        began = monotonic()
        assert isinstance(fetch(downloader, server.url("/good")), Fetched)
        assert monotonic() - began < 2
        assert not bad.ready(), "it does not hold much, so it is not ended"
        bad.kill()


def test_bombs_count_in_their_decoded_size(downloader: Downloader, memory_budget: Watched) -> None:
    size = 600_000
    bomb = answer(zlib.compress(bytes(size), 9), Content_Encoding="deflate")
    little = answer(zlib.compress(b"g" * 5000), Content_Encoding="deflate")

    def session(url: str) -> int:
        found = fetch(downloader, url)
        assert isinstance(found, Fetched), found
        memory_budget.add(len(found.body))
        gevent.sleep(0.1)  # it waits for its reader
        memory_budget.add(-len(found.body))
        return len(found.body)

    with RawServer({"/bomb": bomb, "/little": little}) as server:
        bombs = [gevent.spawn(session, server.url("/bomb")) for _ in range(6)]
        gevent.sleep(0.05)
        found = fetch(downloader, server.url("/little"))
        assert isinstance(found, Fetched)
        assert len(found.body) == 5000
        assert not all(one.ready() for one in bombs), "small ones do not wait for bombs"
        gevent.joinall(bombs, timeout=10)
    assert [one.value for one in bombs] == [size] * 6
    assert memory_budget.peak < MOST + size


def test_body_is_put_off_without_a_failure_if_no_memory_is_free(memory_budget: Watched) -> None:
    downloader = Downloader(LOOPBACK, 0.4, memory_budget=memory_budget)
    memory_budget.add(MOST)
    with RawServer({"/large": answer(bytes(LARGE)), "/good": GOOD}) as server:
        began = monotonic()
        assert isinstance(fetch(downloader, server.url("/large")), MemoryTimeout)
        assert 0.35 < monotonic() - began < 1
        assert isinstance(fetch(downloader, server.url("/good")), Fetched)
    memory_budget.add(-MOST)
    downloader.close()


def test_waiting_for_memory_does_not_count_as_a_slow_body(memory_budget: Watched) -> None:
    downloader = Downloader(
        LOOPBACK, 9, least_rate=10**6, rate_seconds=0.2, memory_budget=memory_budget
    )
    memory_budget.add(MOST)
    with RawServer(answer(bytes(LARGE))) as server:
        page = gevent.spawn(fetch, downloader, server.url())
        gevent.sleep(0.6)
        assert not page.ready()
        memory_budget.add(-MOST)
        page.join(2)
    assert isinstance(page.value, Fetched), page.value
    downloader.close()
