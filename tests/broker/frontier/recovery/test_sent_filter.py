"""The filter of sent links may forget some, but never invents one."""

from __future__ import annotations

import random

import pytest

from greencrawl.broker.frontier.recovery.sent_filter import LEAST_SLOTS, SLOTS_A_PAGE, SentFilter
from greencrawl.schema.net.urls import CANONICALISERS, fingerprint
from greencrawl.schema.records import Admission

SECRET = 2**64 - 3


def link(number: int) -> Admission:
    return Admission(f"http://h{number % 7}.example/{number}", number % 5)


def test_the_filter_returns_each_link_once_with_its_fingerprint() -> None:
    known = SentFilter(SECRET, 10)
    links = [link(n) for n in (1, 2, 1, 3, 2)]
    found = known.unknown(1, links)
    assert [item for _, item in found] == [link(1), link(2), link(3)]
    assert [number for number, _ in found] == [fingerprint(item.url, SECRET) for _, item in found]
    assert known.unknown(1, links) == []


@pytest.mark.parametrize("version", CANONICALISERS)
def test_equivalent_spellings_are_one_link_if_they_have_one_fingerprint(version: int) -> None:
    known = SentFilter(SECRET, 10, version=version)
    links = [Admission(f"http://h.example/{path}") for path in ("~a", "%7Ea", "%7ea")]
    found = known.unknown(1, links)
    assert [number for number, _ in found] == [
        fingerprint(item.url, SECRET, version) for item in links[: len(found)]
    ]
    assert len(found) == (3 if version == 1 else 1)
    known.note(2, ["http://h.example/%c3"])
    assert len(known.unknown(2, [Admission("http://h.example/%C3")])) == (version == 1)


def test_crawls_do_not_know_each_others_links() -> None:
    known = SentFilter(SECRET, 10)
    known.unknown(1, [link(1)])
    assert len(known.unknown(2, [link(1)])) == 1


def test_a_noted_link_is_known_to_the_filter() -> None:
    known = SentFilter(SECRET, 10)
    known.note(3, [link(1).url])
    assert known.unknown(3, [link(1), link(2)])[0][1] == link(2)


def test_an_overfull_filter_knows_no_link_that_it_has_not_met() -> None:
    known, met, drawn = SentFilter(SECRET, 1), set(), random.Random(1)
    left_out = 0
    for _ in range(300):
        links = [link(int(drawn.expovariate(1 / 4000))) for _ in range(100)]
        found = {item.url for _, item in known.unknown(1, links)}
        for item in links:
            assert item.url in found or item.url in met
        left_out += sum(item.url not in found for item in links)
        met |= {item.url for item in links}
    assert len(met) > 2 * LEAST_SLOTS
    assert left_out > 5_000, "nor is all forgotten"


def test_no_slot_of_a_new_filter_matches_a_fingerprint() -> None:
    """Otherwise a fingerprint of 0 would count as known."""
    known = SentFilter(SECRET, 1)
    mask = len(known._slots) - 1
    assert all(key & mask != slot for slot, key in enumerate(known._slots))


def test_the_memory_of_the_filter_grows_with_the_replay_log_up_to_a_bound() -> None:
    assert SentFilter(SECRET, 0).bytes == 8 * LEAST_SLOTS
    assert SentFilter(SECRET, 4096).bytes == 8 * 4096 * SLOTS_A_PAGE
    for most_bytes in (1_000_000, 1 << 20):
        found = SentFilter(SECRET, 10**9, most_bytes).bytes
        assert most_bytes / 2 < found <= most_bytes
