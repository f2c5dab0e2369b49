"""A browser's requests by its log; why URLs of the maze are not requested; revisits in pywb."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.playback import revisits
from bench.playback.browser import Exchange, requests
from bench.playback.revisits import CHANGING, REVISIT, TAGGED, Moment, Site
from bench.rig.report import Report
from bench.suites.crawl_maze import why
from bench.traps.debian import Missing
from tests.support.effort import by_night

TYPES = {
    "URL_REQUEST_START_JOB": 1,
    "HTTP_TRANSACTION_READ_RESPONSE_HEADERS": 2,
    "HTTP_CACHE_READ_INFO": 3,
    "OTHER": 4,
}


def event(kind: str, source: int, **params: object) -> dict[str, object]:
    return {"type": TYPES[kind], "source": {"id": source}, "params": params}


def test_requests_in_the_browsers_log_have_the_status_of_their_answer_or_zero() -> None:
    log = {
        "constants": {"logEventTypes": TYPES},
        "events": [
            event("URL_REQUEST_START_JOB", 1, url="http://127.0.0.1/a"),
            event("URL_REQUEST_START_JOB", 2, url="http://elsewhere.example/b"),
            event("URL_REQUEST_START_JOB", 3, url="data:text/plain,x"),
            event("URL_REQUEST_START_JOB", 4, url="https://update.googleapis.com/x"),
            event("OTHER", 1),
            event("URL_REQUEST_START_JOB", 5, url="http://127.0.0.1/given-up-once"),
            event("URL_REQUEST_START_JOB", 6, url="http://127.0.0.1/given-up-once"),
            event("HTTP_TRANSACTION_READ_RESPONSE_HEADERS", 6, headers=["HTTP/1.1 200 OK"]),
            event("HTTP_TRANSACTION_READ_RESPONSE_HEADERS", 1, headers=["HTTP/1.1 404 Not Found"]),
            {"type": 4, "source": {"id": 2}},
        ],
    }
    assert requests(log) == [
        Exchange("http://127.0.0.1/a", 404), Exchange("http://elsewhere.example/b", 0),
        Exchange("http://127.0.0.1/given-up-once", 200),
    ]  # fmt: skip


def test_the_reason_why_a_maze_url_is_not_requested_follows_from_its_path() -> None:
    assert why("/test/html/body/a/ping.found").startswith("browsers send it a POST")
    assert why("/test/html/body/img/src.found").startswith("a requisite")


def test_a_claim_of_playback_fails_if_a_capture_has_another_body_or_kind(tmp_path: Path) -> None:
    site = Site(1, {"/0": [b"a", b"a"], CHANGING: [b"b", b"c"], TAGGED: [b"d"]}, unchanged=1)
    response = "text/html"
    played = {
        "/0": [Moment(response, b"a"), Moment(REVISIT, b"a")],
        CHANGING: [Moment(response, b"b"), Moment(response, b"c")],
        TAGGED: [Moment(response, b"d")],
    }

    def holds(**changed: list[Moment]) -> list[bool]:
        report = Report("revisits", "revisits", tmp_path)
        revisits.judge(report, site, {**played, **{f"/{k}": v for k, v in changed.items()}})
        return [bool(claim["holds"]) for claim in report.claims]

    assert holds() == [True] * 4
    empty = {"0": [Moment(response, b"a"), Moment(REVISIT, b"")]}
    assert holds(**empty) == [False, True, True, True]
    again = {"0": [Moment(response, b"a")] * 2}
    assert holds(**again) == [True, False, True, True]
    kept = {"changing": [Moment(response, b"b"), Moment(REVISIT, b"b")]}
    assert holds(**kept) == [False, True, False, True]
    assert holds(tagged=[Moment(response, b"d")] * 2) == [False, True, True, False]


@by_night
def test_revisit_records_are_played_back_as_the_site_sent_them(tmp_path: Path) -> None:
    report = Report("revisits", "revisits", tmp_path)
    try:
        revisits.play_back(report, 10)
    except Missing as error:
        pytest.skip(str(error))
    assert report.finish() == 0
