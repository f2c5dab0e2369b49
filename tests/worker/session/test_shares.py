"""Worker processes share addresses on a real Redis: caps, turns and exemptions."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.frontier import Frontier, addresses
from greencrawl.store import open_store
from greencrawl.worker.http.addresses import address_name
from greencrawl.worker.http.connections import Connection, Connections, Origin
from greencrawl.worker.http.tls import tls_context
from greencrawl.worker.session import shares as shares_module
from greencrawl.worker.session.caps import Caps, NoShare
from greencrawl.worker.session.shares import Shares
from tests.support.raw_server import RawServer
from tests.support.redis_server import RedisServer

ADDRESS, OTHER = "203.0.113.7", "203.0.113.8"
CAPS = Caps(address_rate=8, address_connections=100, domain_rate=0)


@pytest.fixture
def frontier(redis_server: RedisServer, tmp_path: Path) -> Iterator[Frontier]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url], store, partitions=8, create=True)
    yield frontier
    frontier.stop()
    store.close()


@pytest.fixture
def pair(frontier: Frontier) -> Iterator[tuple[Shares, Shares]]:
    """Make the shares of two processes."""
    made = [Shares(partial(frontier.shares, name)) for name in "ab"]
    yield made[0], made[1]
    for shares in made:
        shares.close()


def busiest(times: list[float], window: float) -> int:
    """Return the largest number that began within any window."""
    times = sorted(times)
    return max(sum(at <= other < at + window for other in times) for at in times)


def send(shares: Shares, caps: Caps, times: list[float], until: float) -> None:
    while time.monotonic() < until:
        try:
            ticket = shares.enter("h.example", ADDRESS, caps, connect=False)
        except NoShare as error:
            gevent.sleep(min(error.seconds, 0.2))
            continue
        assert ticket is not None
        times.append(time.monotonic())
        gevent.sleep(0.005)
        ticket.end()


def test_two_processes_together_stay_within_the_rate_of_an_address_and_use_it(
    pair: tuple[Shares, Shares],
) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    until = time.monotonic() + 10
    jobs = [
        gevent.spawn(send, shares, CAPS, mine, until)
        for shares, mine in zip(pair, times, strict=True)
        for _ in range(12)
    ]
    gevent.joinall(jobs, raise_error=True)
    everything = [*times[0], *times[1]]
    assert busiest(everything, 1.0) <= 8
    assert len(everything) >= 40
    assert min(len(mine) for mine in times) >= 8, "each had its part"


class Process:
    """Hosts of one address, each with a delay of a second; their connections stay open for long."""

    def __init__(self, frontier: Frontier, name: str, hosts: int) -> None:
        self.shares = Shares(partial(frontier.shares, name))
        self.times: list[float] = []
        self.open = 0
        self._idle: dict[str, Callable[[], None]] = {}
        self._jobs = [gevent.spawn(self._host, f"{n}.{name}.example") for n in range(hosts)]

    def _drop(self) -> bool:
        return bool(self._idle) and self._close(self._idle.pop(next(iter(self._idle))))

    def _close(self, closed: Callable[[], None]) -> bool:
        self.open -= 1
        closed()
        return True

    def _host(self, host: str) -> None:
        caps = Caps(address_rate=10, address_connections=10, domain_rate=0)
        while True:
            kept = self._idle.pop(host, None)
            try:
                ticket = self.shares.enter(
                    host, ADDRESS, caps, connect=kept is None, make_room=self._drop
                )
            except NoShare as error:
                if kept is not None:
                    self._idle[host] = kept
                gevent.sleep(error.seconds)
                continue
            assert ticket is not None
            self.open += kept is None
            kept = kept or ticket.opened()
            self.times.append(time.monotonic())
            gevent.sleep(0.05)
            ticket.end()
            self._idle[host] = kept
            gevent.sleep(1.0)

    def stop(self) -> None:
        gevent.killall(self._jobs)
        self.shares.close()


def test_processes_with_many_hosts_at_one_address_get_about_equal_rates(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This failed in the past: the first process kept all connections, though they were idle, and
    the others had starts but could not use them."""
    for module in (addresses, shares_module):
        monkeypatch.setattr(module, "SHARE_SECONDS", 1.0)
    processes, most = [Process(frontier, "a", 20)], 0
    try:
        gevent.sleep(1.5)
        assert processes[0].open == 10
        processes += [Process(frontier, name, 20) for name in "bcd"]
        until = time.monotonic() + 7
        while time.monotonic() < until:
            most = max(most, sum(one.open for one in processes))
            gevent.sleep(0.01)
    finally:
        for one in processes:
            one.stop()
    rates = [sum(at > until - 3 for at in one.times) / 3 for one in processes]
    assert min(rates) > 1, rates
    assert max(rates) < 5, rates
    assert sum(rates) > 6, rates  # of 10: a process with a late share has less to do at the end
    assert busiest([at for one in processes for at in one.times], 1.0) <= 10
    assert most <= 10


def test_requests_that_waited_for_the_domain_take_from_the_same_share_of_the_address(
    pair: tuple[Shares, Shares],
) -> None:
    """This failed in the past: a share that nobody used while requests waited was forgotten, and
    was requested twice."""
    caps = Caps(address_rate=8, address_connections=8, domain_rate=100)
    times: list[float] = []

    def ask() -> None:
        with suppress(NoShare):
            pair[0].enter("h.example", ADDRESS, caps, connect=True)
            times.append(time.monotonic())

    jobs = [gevent.spawn_later(0.001 * n, ask) for n in range(24)]
    gevent.joinall(jobs, raise_error=True)
    assert len(times) == 8


def test_a_rate_below_one_is_a_longer_window(pair: tuple[Shares, Shares]) -> None:
    caps = Caps(address_rate=0.5, address_connections=0, domain_rate=0)
    ticket = pair[0].enter("h.example", ADDRESS, caps, connect=False)
    assert ticket is not None
    ticket.end()
    for shares in pair:
        with pytest.raises(NoShare, match="1 requests in 2 s") as caught:
            shares.enter("i.example", ADDRESS, caps, connect=False)
        assert caught.value.seconds > 1


def test_a_strict_crawl_holds_up_another_only_while_it_asks(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares_module, "CAPS_SECONDS", 0.5)
    strict, other = Caps(0.001, 0, 0), Caps(50, 0, 0)
    shares = Shares(partial(frontier.shares, "a"))
    try:
        ticket = shares.enter("h.example", ADDRESS, strict, connect=False)
        assert ticket is not None
        ticket.end()
        with pytest.raises(NoShare, match="1 requests in 1000 s") as caught:
            shares.enter("i.example", ADDRESS, other, connect=False, deadline=0)
        assert caught.value.seconds <= 0.5, "not by the other crawl's rate"
        with pytest.raises(NoShare) as caught:
            shares.enter("h.example", ADDRESS, strict, connect=False, deadline=0)
        assert caught.value.seconds > 100
        gevent.sleep(1.1)
        for _ in range(20):
            assert shares.enter("i.example", ADDRESS, other, connect=False)
        with pytest.raises(NoShare, match="1 requests in 1000 s"):
            shares.enter("h.example", ADDRESS, strict, connect=False, deadline=0)
    finally:
        shares.close()


def test_requests_beyond_the_rate_get_turns_one_after_the_other(
    pair: tuple[Shares, Shares],
) -> None:
    shares, turns = pair[0], []
    for _ in range(8):
        shares.enter("h.example", ADDRESS, CAPS, connect=False)
    for _ in range(40):
        with pytest.raises(NoShare) as caught:
            shares.enter("h.example", ADDRESS, CAPS, connect=False, deadline=0)
        turns.append(caught.value.seconds)
    assert turns == sorted(turns)
    assert 40 / 8 < turns[-1] < 2 + 40 / 8


def test_connections_are_counted_until_they_are_closed(pair: tuple[Shares, Shares]) -> None:
    caps = Caps(address_rate=0, address_connections=2, domain_rate=0)
    shares, idle = pair[0], []
    for _ in range(2):
        ticket = shares.enter("h.example", ADDRESS, caps, connect=True)
        assert ticket is not None
        idle.append(ticket.opened())
        ticket.end()
    with pytest.raises(NoShare, match="2 connections"):
        shares.enter("i.example", ADDRESS, caps, connect=True, deadline=0)
    assert shares.enter("i.example", ADDRESS, caps, connect=False), "an open one may be used"

    def close_one() -> bool:
        if idle:
            idle.pop()()
            return True
        return False

    ticket = shares.enter("i.example", ADDRESS, caps, connect=True, make_room=close_one)
    assert ticket is not None
    assert len(idle) == 1
    ticket.end()  # its connecting failed
    assert shares.enter("i.example", ADDRESS, caps, connect=True, deadline=0)


def test_a_domain_has_a_rate_of_its_own_over_addresses(pair: tuple[Shares, Shares]) -> None:
    caps = Caps(address_rate=0, address_connections=0, domain_rate=3)
    for n, address in enumerate((ADDRESS, OTHER, "2001:db8::1")):
        assert pair[0].enter(f"{n}.farm.example.org", address, caps, connect=True)
    with pytest.raises(NoShare, match=r"example\.org"):
        pair[0].enter("9.farm.example.org:8080", "203.0.113.9", caps, connect=True, deadline=0)
    assert pair[0].enter("other.example.net", ADDRESS, caps, connect=True)


def test_own_networks_have_no_caps_but_those_of_a_crawl(frontier: Frontier) -> None:
    own = (ipaddress.ip_network("203.0.113.0/24"),)
    shares = Shares(partial(frontier.shares, "a"), own)
    try:
        for _ in range(50):
            assert shares.enter("h.example", ADDRESS, Caps(), connect=True) is None
        assert shares.enter("h.example", "198.51.100.1", Caps(), connect=True) is not None
        said = Caps(address_rate=1)
        assert shares.enter("h.example", ADDRESS, said, connect=True) is not None
        with pytest.raises(NoShare):
            shares.enter("h.example", ADDRESS, said, connect=True, deadline=0)
        nothing = Caps(address_rate=0, address_connections=0, domain_rate=0)
        assert shares.enter("h.example", "198.51.100.1", nothing, connect=True) is None
    finally:
        shares.close()


def test_a_request_gets_no_share_while_redis_is_away(
    pair: tuple[Shares, Shares], redis_server: RedisServer
) -> None:
    redis_server.kill()
    with pytest.raises(NoShare):
        pair[0].enter("h.example", ADDRESS, CAPS, connect=False)


def test_an_idle_connection_to_another_address_of_a_machine_is_closed_to_make_room() -> None:
    connections = Connections(max_idle=9, tls=tls_context())
    with RawServer(b"") as server:
        origin = Origin("http", "h", server.port, b"h")
        found = connections.open(origin, ["127.0.0.1"], 5.0)
        assert isinstance(found, Connection)
        connections.give(found)
        assert not connections.drop_idle("127.0.0.2")
        assert connections.drop_idle("::ffff:127.0.0.1")
        assert not len(connections)
    connections.close()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("203.0.113.7", "4:203.0.113.7"),
        ("::ffff:203.0.113.7", "4:203.0.113.7"),
        ("64:ff9b::cb00:7107", "4:203.0.113.7"),
        ("64:ff9b::808:808", "4:8.8.8.8"),
        ("2002:cb00:7107:1::1", "4:203.0.113.7"),
        ("2600:1::5efe:cb00:7107", "6:2600:1::/64"),
        ("2001:db8:1:2:3::4", "6:2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "6:2001:db8:1:2::/64"),
    ],
)
def test_a_machine_is_an_ipv4_address_or_a_network_of_64_bits(address: str, name: str) -> None:
    assert address_name(address) == name
