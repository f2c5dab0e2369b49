"""Judging addresses, and resolving names to judged ones."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Sequence

import gevent
import pytest
from gevent.event import Event
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import Failure, FailureKind
from greencrawl.worker.http.addresses import Lookup, Resolver, forbidden, system_lookup


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.9",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:c0a8:101::1",
        "2a00:1450:4001:800:0:5efe:10.0.0.1",
        "2a00:1450:4001:800:200:5efe:127.0.0.1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_special_address_is_forbidden(address: str) -> None:
    assert forbidden(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001:800::200e",
    ],
)
def test_global_unicast_address_is_allowed(address: str) -> None:
    assert forbidden(address) is None


def test_allow_list_admits_what_it_holds_and_its_ipv4_mapped_form_and_nothing_else() -> None:
    allow = [ipaddress.ip_network("127.0.0.0/29"), ipaddress.ip_network("::1/128")]
    assert forbidden("127.0.0.2", allow) is None
    assert forbidden("::1", allow) is None
    assert forbidden("::ffff:127.0.0.2", allow) is None
    assert forbidden("127.0.0.9", allow)
    assert forbidden("::ffff:127.0.0.9", allow)
    assert forbidden("10.0.0.1", allow)


@given(st.ip_addresses(v=4))
def test_ipv4_is_judged_alike_in_every_form_that_carries_it(
    address: ipaddress.IPv4Address,
) -> None:
    number = int(address)
    plain = forbidden(str(address)) is None
    for carrier in (
        ipaddress.IPv6Address((0xFFFF << 32) + number),
        ipaddress.IPv6Address((0x0064FF9B << 96) + number),
        ipaddress.IPv6Address((0x2002 << 112) + (number << 80) + 1),
    ):
        assert (forbidden(str(carrier)) is None) == plain


@given(st.ip_addresses())
def test_nothing_is_allowed_that_the_standard_library_knows_as_private(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_multicast or address.is_reserved:
        carried = isinstance(address, ipaddress.IPv6Address) and (
            address.ipv4_mapped or address in ipaddress.ip_network("64:ff9b::/96")
        )
        assert carried or forbidden(str(address))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def answering(answers: Sequence[str], asked: list[str]) -> Lookup:
    def lookup(name: str) -> Sequence[str]:
        asked.append(name)
        return answers

    return lookup


def failing(number: int) -> Lookup:
    def lookup(name: str) -> Sequence[str]:
        raise socket.gaierror(number, "said the resolver")

    return lookup


def test_forbidden_answers_are_left_out_and_public_ones_kept() -> None:
    lookup = answering(["10.0.0.1", "93.184.216.34", "::1", "2606:4700::1111"], [])
    answer = Resolver(lookup=lookup).resolve("rebind.example", 5)
    assert answer == ("93.184.216.34", "2606:4700::1111")


def test_only_forbidden_answers_refuse_the_name_and_say_which() -> None:
    answer = Resolver(lookup=answering(["10.0.0.1", "::1"], [])).resolve("inner.example", 5)
    assert isinstance(answer, Failure)
    assert answer.kind is FailureKind.ADDRESS_FORBIDDEN
    assert answer.requests == 0
    assert answer.detail == "inner.example is 10.0.0.1 (private), ::1 (loopback)"


def test_literal_address_is_judged_without_a_look_up() -> None:
    asked: list[str] = []
    resolver = Resolver(lookup=answering(["8.8.8.8"], asked))
    assert resolver.resolve("1.1.1.1", 5) == ("1.1.1.1",)
    assert isinstance(resolver.resolve("127.0.0.1", 5), Failure)
    assert asked == []


def test_answer_is_kept_five_minutes_and_then_asked_for_again() -> None:
    asked: list[str] = []
    clock = Clock()
    resolver = Resolver(lookup=answering(["8.8.8.8"], asked), clock=clock)
    resolver.resolve("a.example", 5)
    clock.now += 299
    resolver.resolve("a.example", 5)
    assert len(asked) == 1
    clock.now += 2
    resolver.resolve("a.example", 5)
    assert len(asked) == 2


def test_failure_is_kept_half_a_minute() -> None:
    asked: list[str] = []
    clock = Clock()
    resolver = Resolver(lookup=answering([], asked), clock=clock)
    first = resolver.resolve("empty.example", 5)
    assert isinstance(first, Failure)
    assert first.kind is FailureKind.DNS_MISSING
    clock.now += 29
    assert resolver.resolve("empty.example", 5) == first
    clock.now += 2
    resolver.resolve("empty.example", 5)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (socket.EAI_NONAME, FailureKind.DNS_MISSING),
        (socket.EAI_NODATA, FailureKind.DNS_MISSING),
        (socket.EAI_AGAIN, FailureKind.DNS_FAILED),
        (socket.EAI_FAIL, FailureKind.DNS_FAILED),
        (socket.EAI_SYSTEM, FailureKind.DNS_FAILED),
    ],
)
def test_resolver_error_tells_a_missing_name_from_a_silent_server(
    number: int, kind: FailureKind
) -> None:
    answer = Resolver(lookup=failing(number)).resolve("a.example", 5)
    assert isinstance(answer, Failure)
    assert answer.kind is kind
    assert "a.example" in answer.detail
    assert answer.requests == 0


def test_many_who_ask_at_once_cause_one_look_up() -> None:
    asked: list[str] = []
    resolver = Resolver(lookup=answering(["8.8.8.8"], asked))
    greenlets = [gevent.spawn(resolver.resolve, "a.example", 5) for _ in range(20)]
    gevent.joinall(greenlets)
    assert {greenlet.value for greenlet in greenlets} == {("8.8.8.8",)}
    assert len(asked) == 1


def test_hanging_resolver_fails_in_time_and_lets_other_greenlets_run() -> None:
    release = threading.Event()
    ticks: list[int] = []

    def lookup(name: str) -> Sequence[str]:
        # A thread of the pool has no hub of its own: this blocks the thread, and it alone.
        release.wait(5)
        return ["8.8.8.8"]

    def tick() -> None:
        while True:
            ticks.append(1)
            gevent.sleep(0.01)

    ticker = gevent.spawn(tick)
    answer = Resolver(lookup=lookup).resolve("slow.example", 0.1)
    ticker.kill()
    release.set()
    assert isinstance(answer, Failure)
    assert answer.kind is FailureKind.DNS_FAILED
    assert len(ticks) >= 3


def test_killed_asker_does_not_take_the_others_answer_along() -> None:
    asked: list[str] = []
    resolver = Resolver(lookup=answering(["8.8.8.8"], asked))
    started = Event()

    def ask() -> object:
        started.set()
        return resolver.resolve("a.example", 5)

    first = gevent.spawn(ask)
    started.wait()
    second = gevent.spawn(resolver.resolve, "a.example", 5)
    first.kill()
    assert second.get(timeout=5) == ("8.8.8.8",)


def test_table_of_names_is_bounded_and_the_least_used_goes_first() -> None:
    asked: list[str] = []
    resolver = Resolver(lookup=answering(["8.8.8.8"], asked), max_names=2)
    for name in ("a.example", "b.example", "a.example", "c.example", "a.example", "b.example"):
        resolver.resolve(name, 5)
    assert asked == ["a.example", "b.example", "c.example", "b.example"]


def test_system_resolver_knows_localhost_and_refuses_overlong_labels() -> None:
    assert set(system_lookup("localhost")) <= {"127.0.0.1", "::1"}
    answer = Resolver().resolve("a" * 70 + ".example", 20)
    assert isinstance(answer, Failure)
    assert answer.kind in (FailureKind.DNS_MISSING, FailureKind.DNS_FAILED)
