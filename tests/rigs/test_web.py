"""The synthetic web of ``make faults`` has the promised pages, and its log shows what happened."""

from __future__ import annotations

import http.client
import socket
import time
from collections import Counter
from pathlib import Path

from tests.support import oracle
from tests.support.system import wait_until
from tests.support.walk import http_fetch, walk
from tests.support.web import ABANDONED, Web, WebSpec


def test_exactly_the_expected_pages_of_the_synthetic_web_can_be_reached(tmp_path: Path) -> None:
    with Web(WebSpec(hosts=7, pages=300), tmp_path / "log") as web:
        hosts = [
            web.url(page) for page in range(7)
        ]  # the walk stays on the hosts at which it starts
        found = walk(hosts, http_fetch(), agent="walk")
        all_of_them = 300 + len(hosts)  # a robots.txt each
        wait_until(lambda: web.requests() == all_of_them, 5, "the requests are in the log")
        requests = oracle.requests_of(web.hits(), web.port)
    assert found.pages == web.expected()
    assert found.missing | found.other | found.redirects == set()
    assert requests == Counter(web.expected())


def test_every_page_of_the_synthetic_web_except_the_first_is_linked() -> None:
    spec = WebSpec(hosts=9, pages=2000, fan_out=5)
    linked = {target for page in range(spec.pages) for target in spec.links(page)}
    assert linked | {0} == set(range(spec.pages))


def test_a_throttled_host_answers_429_as_often_as_told(tmp_path: Path) -> None:
    with Web(WebSpec(hosts=2, pages=10), tmp_path / "log") as web:
        web.throttle([1], retry_after=7, requests=2)
        fetch = http_fetch()
        answers = [fetch(web.url(1)) for _ in range(3)]
        assert [status for status, _, _ in answers] == [429, 429, 200]
        assert answers[0][1]["retry-after"] == "7"
        assert fetch(web.url(0))[0] == 200
        wait_until(lambda: web.requests() == 4, 5, "the requests are in the log")
        assert Counter(hit.status for hit in web.hits()) == {429: 2, 200: 2}


def test_a_tarpit_sends_a_byte_at_a_time(tmp_path: Path) -> None:
    with Web(WebSpec(hosts=1, pages=1, tarpits=1, drip_seconds=0.01), tmp_path / "log") as web:
        (url,) = web.tarpit_urls()
        began = time.monotonic()
        status, _, body = http_fetch()(url)
        assert (status, body) == (200, b"<title>tar</title>")
        wait_until(web.requests, 5, "the request is in the log")
        (hit,) = web.hits()
    assert began <= hit.arrived < hit.ended
    assert hit.ended - hit.arrived >= 0.01 * len(body)


def test_the_log_records_when_the_client_of_a_request_went_away(tmp_path: Path) -> None:
    with Web(WebSpec(hosts=1, pages=1, answer_seconds=30), tmp_path / "log") as web:
        sent = time.monotonic()
        with socket.create_connection((web.spec.addresses[0], web.port)) as client:
            client.sendall(b"GET /p/0 HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.2)
            still_there = time.monotonic()
        wait_until(web.requests, 5, "the request is in the log")
        (hit,) = web.hits()
    assert hit.status == ABANDONED
    assert sent <= hit.arrived <= hit.ended
    assert hit.ended >= still_there


def test_the_log_ends_an_answer_before_its_client_has_received_it(tmp_path: Path) -> None:
    with Web(WebSpec(hosts=1, pages=1, answer_seconds=0.05), tmp_path / "log") as web:
        client = http.client.HTTPConnection(web.spec.addresses[0], web.port)
        for number in range(20):
            sent = time.monotonic()
            client.request("GET", "/p/0")
            client.getresponse().read()
            had = time.monotonic()
            wait_until(lambda n=number: web.requests() > n, 5, "the request is in the log")
            hit = web.hits()[-1]
            assert sent <= hit.arrived
            assert hit.arrived + 0.05 <= hit.ended <= had


def test_sitemaps_requisites_and_traps_stand_where_they_are_expected(tmp_path: Path) -> None:
    spec = WebSpec(hosts=3, pages=2000, sitemaps=2, requisites=True, traps=7)
    with Web(spec, tmp_path / "log") as web:
        fetch = http_fetch()

        def body(host: int, path: str) -> str:
            status, _, found = fetch(web.at(host, path))
            assert status == 200, path
            return found.decode()

        assert fetch(web.at(1, "/robots.txt"))[0] == 404
        assert body(0, "/robots.txt") == "Sitemap: /m/0\n"
        index, files = body(0, "/m/0"), [body(0, "/m/1"), body(0, "/m/2")]
        assert index.count("<loc>") == 2
        assert {url for url in web.expected() if f">{url}<" in "".join(files)} == {
            web.url(page) for page in range(spec.pages)
        }
        assert fetch(web.at(1, "/m/0"))[0] == fetch(web.at(0, "/sitemap.xml"))[0] == 404
        first = body(0, "/p/0")
        for path in ("/r/0", "/s/0", "/t/0"):
            assert path in first
            assert body(0, path)
        assert "@import url(/s/2)" in body(0, "/p/10")
        assert "/s/1" in body(0, "/s/0")
        assert "/f/1" in body(0, "/s/1")
        assert web.at(0, "/f/1") in web.expected()
        assert body(1, "/t/1").count("/t/") == 3
        assert body(1, "/t/2").count("/t/") == 0
        assert fetch(web.at(1, "/t/7"))[0] == 404
        wait_until(lambda: web.requests() == 17, 5, "the requests are in the log")
        targets = {hit.target for hit in web.hits()}
        assert {"/robots.txt", "/sitemap.xml", "/m/0", "/s/1", "/t/7", "/p/10"} <= targets
