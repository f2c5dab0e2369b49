"""What a browser asked for, by its log; and why a URL of the maze is not asked for."""

from __future__ import annotations

from bench.playback.browser import Asked, requests
from bench.suites.crawl_maze import why

TYPES = {
    "URL_REQUEST_START_JOB": 1,
    "HTTP_TRANSACTION_READ_RESPONSE_HEADERS": 2,
    "HTTP_CACHE_READ_INFO": 3,
    "OTHER": 4,
}


def event(kind: str, source: int, **params: object) -> dict[str, object]:
    return {"type": TYPES[kind], "source": {"id": source}, "params": params}


def test_requests_have_the_status_that_came_of_them_or_none() -> None:
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
        Asked("http://127.0.0.1/a", 404), Asked("http://elsewhere.example/b", 0),
        Asked("http://127.0.0.1/given-up-once", 200),
    ]  # fmt: skip


def test_reason_goes_by_the_path() -> None:
    assert why("/test/html/body/a/ping.found").startswith("browsers send it a POST")
    assert why("/test/html/body/img/src.found").startswith("a requisite")
