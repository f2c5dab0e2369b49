"""Rendezvous hashing: equal everywhere, even, and with few moves."""

from __future__ import annotations

from collections import Counter

from greencrawl.schema.logs.logger_choice import ranked

LOGGERS = [f"http://10.0.0.{n}:8766" for n in range(4)]
MEMBERS = [f"crawler-{n}-{m}" for n in range(100) for m in range(10)]


def test_each_logger_has_about_the_same_share() -> None:
    shares = Counter(ranked(member, LOGGERS)[0] for member in MEMBERS)
    assert set(shares) == set(LOGGERS)
    assert min(shares.values()) > 200
    assert max(shares.values()) < 300


def test_the_order_in_which_loggers_are_named_does_not_change_the_choice() -> None:
    for member in MEMBERS[:50]:
        assert ranked(member, LOGGERS) == ranked(member, [*reversed(LOGGERS), LOGGERS[0]])


def test_only_members_of_a_logger_that_goes_move_and_each_to_its_second_choice() -> None:
    for member in MEMBERS:
        first, second, *_ = ranked(member, LOGGERS)
        for gone in LOGGERS:
            left = ranked(member, [one for one in LOGGERS if one != gone])
            assert left[0] == (second if gone == first else first)
