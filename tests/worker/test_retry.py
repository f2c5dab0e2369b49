"""The table of failures, and the decisions from it."""

from __future__ import annotations

import dataclasses
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import Dead, Done, Failure, FailureKind, Fetched, Retry
from greencrawl.worker.retry import (
    MAX_RETRY_AFTER,
    MAX_WAIT,
    PATIENCE,
    TABLE,
    classify,
    decide,
    markdown_table,
)

NOW = 1_800_000_000


def fetched(status: int, **headers: str) -> Fetched:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fetched("http://a.example/", status, named, b"", fetched_ms=NOW * 1000)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, FailureKind.FORBIDDEN),
        (403, FailureKind.FORBIDDEN),
        (404, FailureKind.GONE),
        (407, FailureKind.FORBIDDEN),
        (408, FailureKind.REQUEST_TIMEOUT),
        (410, FailureKind.GONE),
        (418, FailureKind.CLIENT_ERROR),
        (425, FailureKind.REQUEST_TIMEOUT),
        (429, FailureKind.RATE_LIMITED),
        (451, FailureKind.GONE),
        (500, FailureKind.SERVER_ERROR),
        (503, FailureKind.UNAVAILABLE),
        (599, FailureKind.SERVER_ERROR),
        (101, FailureKind.BAD_STATUS),
        (300, FailureKind.BAD_STATUS),
        (304, FailureKind.BAD_STATUS),
        (600, FailureKind.BAD_STATUS),
        (999, FailureKind.BAD_STATUS),
    ],
)
def test_status_is_classified(status: int, kind: FailureKind) -> None:
    failure = classify(fetched(status))
    assert failure is not None
    assert (failure.kind, failure.code, failure.requests) == (kind, status, 1)


@pytest.mark.parametrize("status", [200, 203, 204, 206, 226])
def test_success_is_no_failure(status: int) -> None:
    assert classify(fetched(status)) is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_needs_a_target(status: int) -> None:
    assert classify(fetched(status, location="/b")) is None
    for answer in (fetched(status), fetched(status, location=" ")):
        failure = classify(answer)
        assert failure is not None
        assert failure.kind is FailureKind.REDIRECT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "120"}, 120),
        ({"retry_after": " 0 "}, 0),
        ({"retry_after": "9" * 5000}, MAX_RETRY_AFTER),
        ({"retry_after": formatdate(NOW + 90, usegmt=True)}, 90),
        ({"retry_after": formatdate(NOW - 90, usegmt=True)}, 0),
        ({"retry_after": formatdate(NOW + 10**8, usegmt=True)}, MAX_RETRY_AFTER),
        (
            {
                "retry_after": formatdate(NOW + 3690, usegmt=True),
                "date": formatdate(NOW + 3600, usegmt=True),
            },
            90,
        ),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "٣"}, None),
        ({"retry_after": "Fri, 99 Foo 9999 99:99:99 GMT"}, None),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    failure = classify(fetched(503, **headers))
    assert failure is not None
    assert failure.retry_after == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x_rate_limit_reset": str(NOW + 840)}, 840),
        ({"x_ratelimit_reset": str(NOW - 3)}, 0),
        ({"x_rate_limit_reset": str(NOW + 3840), "date": formatdate(NOW + 3000, usegmt=True)}, 840),
        ({"x_rate_limit_reset": str(NOW + 840), "retry_after": "5"}, 5),
        ({"x_rate_limit_reset": "60"}, None),
        ({"x_rate_limit_reset": "soon"}, None),
    ],
)
def test_the_end_of_a_rate_limit_is_read_if_there_is_no_retry_after(
    headers: dict[str, str], seconds: float | None
) -> None:
    failure = classify(fetched(429, **headers))
    assert failure is not None
    assert failure.retry_after == seconds
    unlimited = classify(fetched(503, **{**headers, "retry_after": "soon"}))
    assert unlimited is not None
    assert unlimited.retry_after is None


@given(st.text())
def test_no_retry_after_header_can_break_the_reading(text: str) -> None:
    failure = classify(fetched(429, retry_after=text))
    assert failure is not None
    assert failure.retry_after is None or 0 <= failure.retry_after <= MAX_RETRY_AFTER


def test_every_failure_kind_has_a_row() -> None:
    assert set(TABLE) == set(FailureKind)


def test_the_table_of_failures_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TABLE[FailureKind.GONE] = TABLE[FailureKind.RESET]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        TABLE[FailureKind.GONE].tries = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "final"),
    [
        (FailureKind.GONE, "gone"),
        (FailureKind.FORBIDDEN, "dead"),
        (FailureKind.ADDRESS_FORBIDDEN, "excluded"),
        (FailureKind.ROBOTS, "excluded"),
        (FailureKind.REDIRECT, "dead"),
    ],
)
def test_final_failure_is_not_tried_again(kind: FailureKind, final: str) -> None:
    decision = decide(Failure(kind), errors=0, max_tries=5)
    assert (decision.final, decision.wait, decision.block) == (final, None, None)
    assert decision.outcome == (Dead(kind) if final == "dead" else Done(kind=kind))
    assert decision.errors == 1


def test_server_error_waits_twice_as_long_each_time_and_ends_as_a_dead_letter() -> None:
    failure = Failure(FailureKind.SERVER_ERROR, code=500)
    waits = [decide(failure, errors, max_tries=5).wait for errors in range(5)]
    assert waits == [30, 60, 120, 240, None]
    last = decide(failure, 4, max_tries=5)
    assert (last.outcome, last.final, last.errors) == (Dead("server_error"), "dead", 5)


def test_the_tries_of_a_crawl_bound_every_failure_without_retry_after() -> None:
    for kind, policy in TABLE.items():
        if policy.tries > 1:
            assert decide(Failure(kind), errors=0, max_tries=2).final is None
        assert decide(Failure(kind), errors=1, max_tries=2).final == policy.final
        assert decide(Failure(kind), errors=0, max_tries=1).final == policy.final


@pytest.mark.parametrize("kind", [FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE])
def test_retry_after_blocks_the_host_for_that_long_and_gives_more_tries(kind: FailureKind) -> None:
    failure = Failure(kind, retry_after=120.0)
    decision = decide(failure, errors=5 * PATIENCE - 2, max_tries=5)
    assert decision.outcome == Retry(120.0, kind)
    assert (decision.block, decision.wait) == (120.0, 120.0)
    assert decide(failure, errors=5 * PATIENCE - 1, max_tries=5).final == "dead"


def test_week_long_retry_after_blocks_the_host_a_week_and_the_url_a_day() -> None:
    decision = decide(Failure(FailureKind.UNAVAILABLE, retry_after=MAX_RETRY_AFTER), 0, 5)
    assert (decision.block, decision.wait) == (MAX_RETRY_AFTER, MAX_WAIT)


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.REFUSED,
        FailureKind.UNREACHABLE,
        FailureKind.CONNECT_TIMEOUT,
        FailureKind.DNS_FAILED,
        FailureKind.RATE_LIMITED,
        FailureKind.UNAVAILABLE,
        FailureKind.ROBOTS_UNREACHABLE,
    ],
)
def test_host_failure_asks_for_the_hosts_back_off_also_with_the_last_try(
    kind: FailureKind,
) -> None:
    assert decide(Failure(kind), errors=0, max_tries=5).block == 0.0
    last = decide(Failure(kind), errors=4, max_tries=5)
    assert (last.block, last.final) == (0.0, "dead")


@pytest.mark.parametrize("kind", [FailureKind.RESET, FailureKind.TIMEOUT, FailureKind.DNS_MISSING])
def test_a_failure_of_a_url_does_not_block_its_host(kind: FailureKind) -> None:
    assert decide(Failure(kind), errors=0, max_tries=5).block is None


@given(
    st.sampled_from(FailureKind),
    st.integers(1, 100),
    st.none() | st.floats(0, MAX_RETRY_AFTER),
)
def test_every_failure_that_repeats_comes_to_an_end(
    kind: FailureKind, max_tries: int, retry_after: float | None
) -> None:
    errors, tries = 0, 0
    while (decision := decide(Failure(kind, retry_after=retry_after), errors, max_tries)).final is (
        None
    ):
        assert isinstance(decision.outcome, Retry)
        assert decision.wait is not None
        assert 0 < decision.wait <= MAX_WAIT
        errors, tries = decision.errors, tries + 1
        assert tries <= max_tries * PATIENCE
    assert decision.final == TABLE[kind].final


def test_markdown_has_a_row_of_six_cells_for_every_kind() -> None:
    head, rule, *rows = markdown_table().splitlines()
    assert len(rows) == len(FailureKind)
    assert {line.count("|") for line in (head, rule, *rows)} == {7}
    assert (
        "| `server_error` | another 5xx: the server failed | url | 5 | 30 s, 1 h | dead |" in rows
    )


def test_a_missing_host_name_is_final_at_once_only_if_the_crawl_starts_from_it_alone() -> None:
    missing = Failure(FailureKind.DNS_MISSING, "no such name", requests=0)
    assert decide(missing, 0, 5, typed=True).final == "dead"
    assert decide(missing, 0, 5).wait == 300
    silent = Failure(FailureKind.DNS_FAILED, "SERVFAIL", requests=0)
    assert decide(silent, 0, 5, typed=True).wait == 60
