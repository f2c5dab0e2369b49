"""The client of name servers, against servers on loopback."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import dns.rcode
import gevent
import pytest
from gevent import socket
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import Failure, FailureKind
from greencrawl.worker.http.dns import messages, servers
from greencrawl.worker.http.dns.messages import AAAA, A
from greencrawl.worker.http.dns.servers import NameServers
from greencrawl.worker.http.dns.system import Found
from tests.support.dns_server import DnsServer, Zone

LOCAL = ("127.0.0.7",)


def never() -> None:
    raise AssertionError("the look-up counts as slow")


def ask(named: Sequence[str], name: str, *, seconds: float = 5) -> Found:
    return NameServers(named).ask(name, seconds, math.inf, never)


def kind_of(found: Found) -> FailureKind:
    assert isinstance(found.addresses, Failure)
    assert found.addresses.requests == 0
    return found.addresses.kind


def test_ipv4_and_ipv6_addresses_are_asked_for_at_once_and_aliases_are_followed() -> None:
    zones = {
        "a.test": Zone(("127.0.0.1", "::1"), ttl=500, delay=0.1),
        "b.test": Zone(aliases={"www.b.test": "c.a.test", "c.a.test": "d.a.test"}, ttl=90),
    }
    with DnsServer(zones) as server:
        assert ask([server.address], "a.test") == Found(("::1", "127.0.0.1"), 500)
        assert server.most_waiting["a.test"] == 2
        assert ask([server.address], "www.b.test") == Found(("::1", "127.0.0.1"), 90)
        assert server.asked[:2] == ["a.test A", "a.test AAAA"]


@pytest.mark.parametrize(("ttl", "kept"), [(0, 60), (61, 61), (86_400, 3600), (2**31 - 1, 3600)])
def test_an_answer_is_kept_for_its_ttl_between_a_minute_and_an_hour(ttl: int, kept: float) -> None:
    with DnsServer({"a.test": Zone(LOCAL, ttl=ttl)}) as server:
        assert ask([server.address], "a.test") == Found(LOCAL, kept)


@pytest.mark.parametrize(("ttl", "kept"), [(None, 30), (1, 30), (200, 200), (86_400, 900)])
def test_a_missing_name_is_kept_as_long_as_its_zone_says_within_bounds(
    ttl: int | None, kept: float
) -> None:
    with DnsServer({"a.test": Zone({"empty.a.test": ()}, negative_ttl=ttl)}) as server:
        for name, why in (("no.a.test", "no such name"), ("empty.a.test", "has no address")):
            found = ask([server.address], name)
            assert kind_of(found) is FailureKind.DNS_MISSING
            assert isinstance(found.addresses, Failure)
            assert found.addresses.detail == f"{name}: {why}"
            assert found.seconds == kept


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
def test_a_failing_server_is_no_answer_and_the_next_server_is_asked(
    code: dns.rcode.Rcode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "AGAIN_SECONDS", 60.0)  # it does not wait that long
    with (
        DnsServer({"a.test": Zone(rcode=code)}) as broken,
        DnsServer({"a.test": Zone(LOCAL)}) as good,
    ):
        found = ask([broken.address], "a.test")
        assert kind_of(found) is FailureKind.DNS_FAILED
        assert dns.rcode.to_text(code) in str(found.addresses)
        assert found.seconds <= 30
        assert ask([broken.address, good.address], "a.test").addresses == LOCAL


def test_the_next_server_is_asked_after_a_silent_one_and_stays_first() -> None:
    with DnsServer({"": Zone(silent=True)}) as silent, DnsServer({"": Zone(LOCAL)}) as good:
        asking = NameServers([silent.address, good.address])
        assert asking.ask("a.test", 5, math.inf, never).addresses == LOCAL
        heard = len(silent.asked)
        assert asking.ask("b.test", 5, math.inf, never).addresses == LOCAL
        assert len(silent.asked) == heard


def test_a_closed_port_is_known_at_once_and_the_next_server_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "AGAIN_SECONDS", 60.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with DnsServer({"": Zone(LOCAL)}) as good:
        found = ask([f"127.0.0.1:{port}"], "a.test")
        assert kind_of(found) is FailureKind.DNS_FAILED
        assert ask([f"127.0.0.1:{port}", good.address], "a.test").addresses == LOCAL


def test_a_silent_server_is_asked_twice_and_given_up_in_time() -> None:
    with DnsServer({"": Zone(silent=True)}) as silent:
        began = time.monotonic()
        found = ask([silent.address], "a.test", seconds=1)
        assert 0.9 < time.monotonic() - began < 4
        assert kind_of(found) is FailureKind.DNS_FAILED
        assert silent.asked.count("a.test A") == 2


def test_a_late_answer_to_the_first_question_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "AGAIN_SECONDS", 0.1)
    with DnsServer({"": Zone(LOCAL, delay=0.4)}) as slow:
        asking = gevent.spawn(ask, [slow.address], "a.test")
        while len(slow.asked) < 2:
            gevent.sleep(0.01)
        slow.zones[""] = Zone(LOCAL, silent=True)  # to all further questions
        assert asking.get().addresses == LOCAL
        assert slow.asked.count("a.test A") > 1


def test_a_truncated_answer_is_asked_for_again_over_tcp() -> None:
    turned: list[int] = []
    many = tuple(f"10.0.{n // 250}.{n % 250}" for n in range(100))
    with DnsServer({"a.test": Zone(many), "b.test": Zone(LOCAL, truncated=True)}) as server:
        asking = NameServers([server.address])
        found = asking.ask("a.test", 5, math.inf, lambda: turned.append(1))
        assert isinstance(found.addresses, tuple)
        assert sorted(found.addresses) == sorted(many)
        assert asking.ask("b.test", 5, math.inf, lambda: turned.append(1)).addresses == LOCAL
        assert server.by_tcp == ["a.test A", "b.test A", "b.test AAAA"]
        assert turned  # only those with a slow place may use TCP


@pytest.mark.parametrize("count", [300, 700])
def test_a_bounded_number_of_records_of_a_long_answer_is_taken(count: int) -> None:
    """700 records are more than 8 KiB."""
    many = tuple(f"10.0.{n // 250}.{n % 250}" for n in range(count))
    with DnsServer({"a.test": Zone(many)}) as server:
        found = NameServers([server.address]).ask("a.test", 5, math.inf, lambda: None)
        assert len(set(found.addresses)) == messages.MOST_RECORDS
        assert set(found.addresses) <= set(many)


def test_the_records_before_the_cut_of_a_truncated_answer_are_taken() -> None:
    name = b"\x3f" + b"a" * 63
    owner = name * 3 + b"\0"
    record = owner + struct.pack("!HHIH", A, 1, 60, 4) + bytes(4)
    mine = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 60, 4) + bytes((10, 0, 0, 1))
    wire = _answer(mine + record * 60, 61)
    assert len(wire) > messages.MOST_BYTES
    assert messages.read(wire[: messages.MOST_BYTES], A).addresses == ("10.0.0.1",)
    with pytest.raises(messages.BROKEN):
        messages.read(_answer(record * 60, 60)[: messages.MOST_BYTES], A)
    with pytest.raises(messages.BROKEN):
        messages.read(_answer(mine + record, 2)[:-1], A)


def test_a_server_that_drops_edns_queries_is_asked_without_edns_from_then_on() -> None:
    with DnsServer({"": Zone(LOCAL, drops_edns=True)}) as server:
        asking = NameServers([server.address])
        assert asking.ask("a.test", 5, math.inf, never).addresses == LOCAL
        heard = len(server.asked)
        assert asking.ask("b.test", 5, math.inf, never).addresses == LOCAL
        assert len(server.asked) == heard + 2


def test_a_server_without_edns_is_asked_without_it() -> None:
    with DnsServer({"": Zone(LOCAL, without_edns=True)}) as server:
        assert ask([server.address], "a.test").addresses == LOCAL


def test_forged_answers_are_ignored() -> None:
    with DnsServer({"": Zone(LOCAL, forged=("10.6.6.6",))}) as server:
        assert ask([server.address], "a.test").addresses == LOCAL


def test_a_server_that_is_silent_about_ipv6_delays_the_answer_only_briefly() -> None:
    with DnsServer({"": Zone(LOCAL, silent_for=("AAAA",))}) as server:
        began = time.monotonic()
        found = ask([server.address], "a.test", seconds=20)
        assert time.monotonic() - began < 5
        assert found == Found(LOCAL, 60)


def test_a_missing_name_for_ipv6_does_not_hide_an_ipv4_address() -> None:
    with DnsServer({"": Zone(LOCAL, missing_for=("AAAA",))}) as server:
        assert ask([server.address], "a.test").addresses == LOCAL


@pytest.mark.parametrize("name", ["a" * 64 + ".test", "a..test", ".test", "b." * 130, "ä.test"])
def test_an_impossible_name_is_not_asked_for(name: str) -> None:
    with DnsServer({"": Zone(LOCAL)}) as server:
        assert kind_of(ask([server.address], name)) is FailureKind.DNS_MISSING
        assert server.asked == []


def test_a_killed_look_up_closes_its_socket() -> None:
    with DnsServer({"": Zone(silent=True)}) as server:
        asking = gevent.spawn(ask, [server.address], "a.test")
        while not server.asked:
            gevent.sleep(0.01)
        before = len(open_files())
        asking.kill()
        assert len(open_files()) == before - 1


def open_files() -> list[str]:
    return [path.name for path in Path("/proc/self/fd").iterdir()]


def _answer(records: bytes, number: int) -> bytes:
    name = messages.wire_name("a.test")
    assert name is not None
    return (
        struct.pack("!6H", 1, 0x8180, 1, number, 0, 0) + name + struct.pack("!HH", A, 1) + records
    )


@given(st.binary(max_size=80), st.integers(0, 5))
def test_a_broken_answer_raises_what_is_expected_and_nothing_else(
    records: bytes, number: int
) -> None:
    for kind in (A, AAAA):
        with suppress(*messages.BROKEN):
            messages.read(_answer(records, number), kind)


def test_aliases_that_go_round_have_no_addresses() -> None:
    pointer = b"\xc0\x0c"
    loop = pointer + struct.pack("!HHIH", 5, 1, 60, 2) + pointer
    assert messages.read(_answer(loop, 1), A) == messages.Answer((), True, 0)


def test_the_most_expensive_answer_takes_little_time() -> None:
    """Each record has names of 120 labels; it takes a millisecond, or 20 if each name is read."""
    labels = b"\1a" * 120 + b"\0"
    record = struct.pack("!HHIH", A, 1, 60, 4) + bytes(4)
    first = labels + record
    at = len(_answer(b"", 0))
    records = first + (struct.pack("!H", 0xC000 | at) + record) * (messages.MOST_RECORDS - 1)
    wire = _answer(records, messages.MOST_RECORDS)
    assert len(wire) < messages.MOST_BYTES
    took = []
    for _ in range(3):
        began = time.thread_time()
        assert len(messages.read(wire, A).addresses) == 0
        took.append(time.thread_time() - began)
    assert min(took) < 0.008
