"""The rows about URLs that a crawl finds by itself fail if URLs are parked wrongly, or no longer
parked."""

from __future__ import annotations

from tests.support.foundrows import wrongly_parked

TRAPS = {f"http://h/t/{n}" for n in range(20)}
PARKED = dict.fromkeys(TRAPS, True)


def said(*found: str) -> list[str]:
    return [one.partition(",")[0] for one in found]


def test_parked_urls_stay_parked_except_for_a_few_that_were_requested() -> None:
    few, many = set(sorted(TRAPS)[:5]), set(sorted(TRAPS)[:6])
    assert wrongly_parked(TRAPS, PARKED, set(), TRAPS) == []
    left = dict.fromkeys(TRAPS - few, True)
    assert wrongly_parked(TRAPS, left, few, TRAPS) == []
    assert said(*wrongly_parked(TRAPS, left, set(), set())) == ["5 were parked and have no row"]
    left = dict.fromkeys(TRAPS - many, True)
    assert said(*wrongly_parked(TRAPS, left, many, TRAPS)) == ["6 parked ones were fetched"]


def test_every_url_of_a_trap_needs_a_row_and_only_such_urls_may_be_parked() -> None:
    more = TRAPS | {"http://h/t/99"}
    assert said(*wrongly_parked(TRAPS, PARKED, set(), more)) == ["1 that traps lead to have no row"]
    bare = {**PARKED, min(TRAPS): False}
    assert said(*wrongly_parked(TRAPS, bare, set(), TRAPS)) == ["1 are parked for no reason"]
    page = {**PARKED, "http://h/p/1": True}
    assert said(*wrongly_parked(TRAPS, page, set(), TRAPS)) == ["1 are parked and no traps"]
