"""Files of TDMRep: which rule counts, which are none, and how much hostile ones may cost."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import Directives
from greencrawl.schema.text.declared import MAX_POLICY_CHARS
from greencrawl.worker.robots import tdmrep
from greencrawl.worker.robots.tdmrep import MAX_BODY_BYTES, MAX_RULES, parse

RESERVED, OPEN = Directives(tdm="reserved"), Directives(tdm="open")
POLICY = "https://p.example/policy.json"


def rule(location: str, reservation: object = 1, **more: Any) -> dict[str, Any]:
    return {"location": location, "tdm-reservation": reservation, **more}


def of(url: str, *rules: Any) -> Directives | None:
    return parse(json.dumps(rules).encode()).of(f"http://h{url}")


@pytest.mark.parametrize(
    ("location", "matching", "others"),
    [
        ("/", ["/", "/a", "/a?b"], []),
        ("/a/", ["/a/", "/a/b"], ["/a", "/b", "/A/"]),
        ("/a/*.jpg", ["/a/x.jpg", "/a/b/c.jpg?x"], ["/a/x.png", "/b/x.jpg"]),
        ("/a$", ["/a"], ["/a/", "/a?b"]),
        ("/a*b$", ["/ab", "/axb"], ["/abc", "/b"]),
        ("/*/then", ["/x/then", "/x/y/then/z"], ["/then"]),
        ("*", ["/", "/x"], []),
        ("/a*", ["/a", "/ab"], ["/b"]),
        ("/a*$", ["/a", "/ab"], ["/b"]),
        ("/a**b*c", ["/abc", "/a1b2c3"], ["/ab", "/acb"]),
        ("a", ["/a"], ["/b"]),
        ("http://h/a", ["/a"], ["/b"]),
        ("/%7Ex", ["/~x", "/%7ex"], ["/x"]),
        ("/foo-%24", ["/foo-$"], ["/foo-"]),
        ("/ä", ["/%C3%A4"], ["/a"]),
    ],
)
def test_a_location_is_matched_as_a_rule_of_robots(
    location: str, matching: list[str], others: list[str]
) -> None:
    assert [url for url in matching + others if of(url, rule(location))] == matching


def test_the_first_rule_of_tdmrep_json_that_matches_counts() -> None:
    rules = rule("/a/open/", 0), rule("/a/", 1, **{"tdm-policy": POLICY}), rule("/", 0)
    assert of("/a/open/x", *rules) == OPEN
    assert of("/a/x", *rules) == Directives(tdm="reserved", tdm_policy=POLICY)
    assert of("/x", *rules) == OPEN
    assert of("/x", *rules[:2]) is None


def test_a_policy_counts_only_if_rights_are_reserved_and_it_is_a_url() -> None:
    for policy in (1, None, "x" * (MAX_POLICY_CHARS + 1), "http://ä/"):
        assert of("/", rule("/", 1, **{"tdm-policy": policy})) == RESERVED
    assert of("/", rule("/", 0, **{"tdm-policy": POLICY})) == OPEN


@pytest.mark.parametrize("value", [2, -1, True, None, 1.0, "yes", [1], {"a": 1}, "01"])
def test_invalid_values_of_tdm_reservation_are_ignored(value: object) -> None:
    assert of("/", rule("/", value)) is None
    assert of("/", rule("/", value), rule("/", "1")) == RESERVED


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"null", b"[1, null, []]", b"[{}]", b"\xff\xfe", b'["\xff"]', b"<html>",
        b"[" * 100_000,
        b'[{"location": 1, "tdm-reservation": 1}]', b'[{"location": "/"}]',
        json.dumps([rule("/" + "x" * 1000)]).encode(),
        b" " * MAX_BODY_BYTES + json.dumps([rule("/")]).encode(),
    ],
)  # fmt: skip
def test_a_file_without_valid_rules_reserves_no_rights(body: bytes) -> None:
    assert parse(body).of("http://h/") is None


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse(b"\xef\xbb\xbf" + json.dumps([rule("/")]).encode()).of("http://h/") == RESERVED


def test_rules_beyond_a_bound_are_not_read() -> None:
    rules = [rule(f"/{n}$") for n in range(MAX_RULES)]
    assert of(f"/{MAX_RULES - 1}", *rules) == RESERVED
    assert of("/last", *rules, rule("/last")) is None


@given(st.lists(st.text("/ab*$", max_size=12), max_size=6), st.text("/ab", max_size=12))
def test_any_location_is_accepted_and_a_plain_prefix_matches(
    locations: list[str], path: str
) -> None:
    said = of(f"/{path}", *map(rule, locations), rule("/" + path.replace("*", "")))
    assert said == RESERVED


@pytest.mark.parametrize("location", ["/*a*a*a*a*a*a*b", "/" + "*x" * 400, "/*" + "ab" * 200 + "c"])
def test_hostile_rules_cost_little_and_reserve_what_they_leave_undecided(location: str) -> None:
    file = parse(
        json.dumps([rule(location + str(n % 10), 0) for n in range(MAX_RULES)])[
            :MAX_BODY_BYTES
        ].encode()
    )
    if file is tdmrep.NOTHING:
        file = parse(json.dumps([rule(location + str(n % 10), 0) for n in range(200)]).encode())
    url = "http://h/" + "a" * 4000 + "xab" * 1000
    began = time.thread_time()
    said = [file.of(url) for _ in range(20)]
    assert (time.thread_time() - began) / 20 < 0.005, "0.3 ms are granted"
    assert set(said) <= {RESERVED, None}
