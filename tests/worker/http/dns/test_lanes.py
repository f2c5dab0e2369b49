"""How many places a slow zone, or many zones behind one slow server, may take."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.pool import Group

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind
from greencrawl.worker.http.dns import lanes
from greencrawl.worker.http.dns.lanes import Lane
from greencrawl.worker.http.dns.resolver import Resolver
from greencrawl.worker.session.caps import NoShare
from tests.support.dns_server import DnsServer, Zone

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
LOCAL = ("127.0.0.7",)


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the patience, so that a test takes less than two seconds."""
    monkeypatch.setattr(lanes, "PATIENCE_SECONDS", 0.5)


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.kill()


def resolver(server: DnsServer) -> Resolver:
    return Resolver(LOOPBACK, servers=[server.address])


def outcome(asked: Resolver, name: str, timeout: float = 20) -> Any:
    try:
        return asked.resolve(name, timeout)
    except NoShare as error:
        return error


def good_ones(asked: Resolver, count: int) -> float:
    """Look up good names, which must all have an answer; return the seconds that it took."""
    began = time.monotonic()
    asking = [gevent.spawn(outcome, asked, f"www.good{n}.test") for n in range(count)]
    gevent.joinall(asking, timeout=10)
    assert {greenlet.value for greenlet in asking} == {LOCAL}
    return time.monotonic() - began


def test_a_slow_zone_takes_only_its_share_of_look_ups_and_delays_no_other_zone(
    group: Group,
) -> None:
    with DnsServer({"slow.test": Zone(LOCAL, delay=20), "": Zone(LOCAL)}) as server:
        asked = resolver(server)
        slow = [group.spawn(outcome, asked, f"h{n}.slow.test") for n in range(400)]
        gevent.sleep(0.05)
        assert good_ones(asked, 30) < 3
        gevent.joinall(slow, timeout=10, count=392)
        given_up = [greenlet.value for greenlet in slow if greenlet.ready()]
        assert len(given_up) == 392
        assert {type(value) for value in given_up} == {NoShare}
        assert "slow.test" in str(given_up[0])
        assert len(server.names()) == lanes.DOMAIN_LOOKUPS + 30
        turns = sorted(value.seconds for value in given_up if value is not None)
        assert turns[0] > 0
        assert turns[-1] > turns[0] + 1  # one after the other, not all at once
        asked.close()


def test_many_domains_behind_a_slow_server_hold_the_slow_places_only(group: Group) -> None:
    zones = {f"slow{n}.test": Zone(LOCAL, delay=20) for n in range(150)}
    with DnsServer({**zones, "": Zone(LOCAL)}) as server:
        asked = resolver(server)
        slow = [group.spawn(outcome, asked, f"www.slow{n}.test") for n in range(150)]
        gevent.sleep(0.05)
        assert good_ones(asked, 30) < 3
        gevent.joinall(slow, timeout=10, count=150 - lanes.SLOW_LOOKUPS)
        began = time.monotonic()
        assert isinstance(outcome(asked, "other.slow1.test"), NoShare)  # it does not wait long
        assert time.monotonic() - began < (lanes.SLOW_SECONDS + lanes.CROWDED_SECONDS) / 2
        assert sum(not greenlet.ready() for greenlet in slow) == lanes.SLOW_LOOKUPS
        assert good_ones(asked, 40) < 3
        asked.close()


def test_a_slow_zone_is_answered_in_the_end() -> None:
    with DnsServer({"slow.test": Zone(LOCAL, delay=1.3)}) as server:
        asked = resolver(server)
        names = [f"h{n}.slow.test" for n in range(lanes.DOMAIN_LOOKUPS)]
        asking = [gevent.spawn(outcome, asked, name) for name in names]
        gevent.joinall(asking, timeout=5)
        assert {greenlet.value for greenlet in asking} == {LOCAL}
        assert asked.resolve(names[0], 0.01) == LOCAL


def test_waiting_look_ups_of_a_quick_domain_get_their_places() -> None:
    with DnsServer({"a.test": Zone(LOCAL, delay=0.01)}) as server:
        asked = resolver(server)
        asking = [gevent.spawn(outcome, asked, f"h{n}.a.test") for n in range(40)]
        gevent.joinall(asking, timeout=5)
        assert {greenlet.value for greenlet in asking} == {LOCAL}
        assert server.most_waiting["a.test"] <= 2 * lanes.DOMAIN_LOOKUPS


def test_a_place_is_free_once_nobody_waits_for_its_look_up() -> None:
    with DnsServer({"slow.test": Zone(LOCAL, delay=20)}) as server:
        asked = resolver(server)
        for letter in "ab":
            names = [f"{letter}{n}.slow.test" for n in range(lanes.DOMAIN_LOOKUPS)]
            greenlets = [gevent.spawn(outcome, asked, name, 0.1) for name in names]
            gevent.joinall(greenlets, timeout=2)
            for greenlet in greenlets:
                assert isinstance(greenlet.value, Failure)
                assert greenlet.value.kind is FailureKind.DNS_FAILED
        assert len(server.names()) == 16


def test_a_killed_look_up_frees_its_place_for_a_waiting_one() -> None:
    with DnsServer({"slow.test": Zone(LOCAL, delay=20)}) as server:
        asked = resolver(server)
        first = [gevent.spawn(outcome, asked, f"a{n}.slow.test") for n in range(8)]
        gevent.sleep(0.05)
        next_one = gevent.spawn(outcome, asked, "b.slow.test", 0.5)
        gevent.sleep(0.05)
        assert "b.slow.test" not in server.names()
        gevent.killall(first)
        gevent.sleep(0.05)
        assert "b.slow.test" in server.names()
        next_one.kill()


def test_close_ends_all_look_ups() -> None:
    with DnsServer({"": Zone(silent=True)}) as server:
        asked = resolver(server)
        before = len(list(Path("/proc/self/fd").iterdir()))
        asking = [gevent.spawn(outcome, asked, f"www.a{n}.test") for n in range(20)]
        gevent.sleep(0.1)
        assert len(list(Path("/proc/self/fd").iterdir())) >= before + 20
        asked.close()
        gevent.joinall(asking, timeout=1)
        assert all(isinstance(greenlet.value, Failure) for greenlet in asking)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_a_killed_waiter_that_had_just_got_its_place_hands_it_on() -> None:
    lane = Lane(1)
    assert lane.take()
    waiting = [gevent.spawn(lane.wait, 5) for _ in range(2)]
    gevent.sleep(0.01)
    waiting[0].kill(block=False)
    lane.leave(0.1)  # the first has it now, and is killed before it runs
    assert waiting[1].get(timeout=1) is True
    lane.leave(0.1)
    assert lane.taken == 0


def test_the_table_of_domains_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_DOMAINS", 10)
    made = lanes.Lanes()
    kept = made.enter("www.kept.test")
    for n in range(50):
        made.enter(f"www.a{n}.test").end()
    assert list(made._domains) == ["kept.test"]
    for n in range(50):
        places = [made.enter(f"h{k}.b{n}.test") for k in range(lanes.DOMAIN_LOOKUPS)]
        made._domains[f"b{n}.test"].next_turn(monotonic())  # one that came too late
        for place in places:
            place.end()
    assert len(made._domains) == 10
    assert "kept.test" in made._domains
    kept.end()


def test_pauses_between_turns_grow_with_the_duration_of_look_ups() -> None:
    lane = Lane(8)
    assert lane.next_turn(100.0) < 0.1
    lane.lasts(10.0)
    turns = [lane.next_turn(100.0) for _ in range(400)]
    assert turns[0] >= 10
    assert turns[8] - turns[0] == pytest.approx(10)
    assert turns[-1] == lanes.LONGEST_TURN_SECONDS
    assert not lane.idle(100.0)
    lane.take()
    lane.leave(0.001)
    lane.leave(0.001)
    assert lane.next_turn(1000.0) < 10  # a domain that is quick again is soon trusted
