"""The rigs themselves: a judge that cannot find a fault proves nothing."""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path

import gevent
from gevent.monkey import get_original

from tests.support import oracle
from tests.support.site_server import Answer, Hit, Request, SiteServer
from tests.support.sites import GBK_LINKS, direct, folder_site, gbk_site, graph_site
from tests.support.walk import http_fetch, links, walk

original_sleep = get_original("time", "sleep")


def hit(address: str, target: str, arrived: float, ended: float) -> Hit:
    return Hit(address, target, 200, arrived, ended, "")


def test_requests_closer_than_the_delay_are_found() -> None:
    log = [hit("127.0.0.2", "/a", 0.0, 0.01), hit("127.0.0.2", "/b", 0.15, 0.16)]
    assert oracle.impolite(log, 0.1) == []
    assert len(oracle.impolite(log, 0.2)) == 1
    assert oracle.closest(log) == 0.15


def test_two_requests_in_flight_are_found_even_behind_a_shorter_one() -> None:
    log = [
        hit("127.0.0.2", "/long", 0.0, 5.0),
        hit("127.0.0.2", "/short", 1.0, 1.1),
        hit("127.0.0.2", "/late", 2.0, 2.1),
    ]
    assert len(oracle.impolite(log, 0.5)) == 2


def test_the_delay_is_judged_for_each_host_separately() -> None:
    log = [hit("127.0.0.2", "/a", 0.0, 1.0), hit("127.0.0.3", "/a", 0.0, 1.0)]
    assert oracle.impolite(log, 10.0) == []


def test_a_url_fetched_twice_or_never_or_wrongly_is_found() -> None:
    log = [hit("h", "/twice", 0, 0), hit("h", "/twice", 1, 1), hit("h", "/robots.txt", 2, 2)]
    requests = oracle.requests_of(log, 80)
    assert oracle.refetched(requests) == 1
    expected = {"http://h:80/twice", "http://h:80/never"}
    assert len(oracle.not_once(requests, expected)) == 2
    assert oracle.differences({"a"}, {"b"}, "stored") == [
        "b not stored",
        "a stored, but the walk did not find it",
    ]


def test_the_log_holds_arrival_and_end_of_overlapping_requests() -> None:
    def site(request: Request) -> Answer:
        return Answer(body=b"x", wait=0.2 if request.target == "/slow" else 0.0)

    with SiteServer(site, ("127.0.0.2", "127.0.0.3")) as server:
        fetches = [gevent.spawn(http_fetch(), server.url("/slow", "127.0.0.2"))]
        gevent.sleep(0.05)  # it has arrived when the next one is sent
        fetches += [
            gevent.spawn(http_fetch(), server.url("/", address))
            for address in ("127.0.0.2", "127.0.0.3")
        ]
        gevent.joinall(fetches, timeout=5, raise_error=True)
        log = {(h.address, h.target): h for h in server.log()}
    slow = log["127.0.0.2", "/slow"]
    assert 0.2 <= slow.ended - slow.arrived < 0.4
    assert log["127.0.0.2", "/"].ended < slow.ended
    assert len(oracle.impolite(log.values(), 0.0)) == 1


def test_arrivals_are_stamped_by_the_kernel_however_late_the_server_wakes() -> None:
    with SiteServer(graph_site(1)) as server:
        sent = []
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            for _ in range(3):
                sent.append(time.monotonic())
                connection.sendall(b"GET /p/0 HTTP/1.1\r\nHost: h\r\n\r\n")
                original_sleep(0.2)  # the whole process sleeps: the server cannot read meanwhile
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        late = [hit.arrived - at for hit, at in zip(server.log(), sent, strict=True)]
    assert -0.01 < min(late) <= max(late) < 0.1


def test_a_kept_connection_logs_each_request_and_refuses_other_methods() -> None:
    with SiteServer(graph_site(3)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        statuses = []
        for method, target in (("GET", "/p/0"), ("HEAD", "/p/1"), ("GET", "/p/9"), ("POST", "/")):
            connection.request(method, target)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        assert statuses == [200, 200, 404, 405] == [h.status for h in server.log()]


def test_the_walk_finds_all_of_a_graph_and_obeys_robots() -> None:
    site = graph_site(40)
    with SiteServer(site) as server:
        start = server.url("/p/0")
        over_http = walk([start], http_fetch(), agent="walk")
        assert (
            oracle.not_once(oracle.requests_of(server.hits, server.port), over_http.requested) == []
        )
        assert walk([start], direct(site), agent="walk") == over_http
    assert {url.rpartition("/")[2] for url in over_http.pages} == {str(i) for i in range(40)}
    assert over_http.redirects
    assert over_http.missing
    assert over_http.forbidden
    assert not any("/private/" in url for url in over_http.requested)


def test_the_walk_reads_links_as_documented() -> None:
    page = b"""<base href="/b/"><a href="1#x">1</a><area href="2"><iframe src="3"></iframe>
      <link rel="next" href="4"><link rel="stylesheet" href="no.css"><img src="no.png">
      <a href="mailto:a@b"></a><a href="http://[/"></a><a name="no"></a><a href=" /s p "></a>
      <meta http-equiv="Refresh" content="3; URL='5'">"""
    assert links("http://h/x/y", page) == [
        "http://h/b/1", "http://h/b/2", "http://h/b/3", "http://h/b/4", "http://h/s%20p", "http://h/b/5",
    ]  # fmt: skip


def test_a_folder_is_served_and_no_file_outside_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.html").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    site = folder_site(tmp_path / "in")
    assert site(Request("", "/a%20b.html?x=1", {})).body == b"inside"
    assert site(Request("", "/../secret", {})).status == 404
    assert site(Request("", "/", {})).status == 404


def test_the_expected_gbk_targets_follow_from_the_encoding() -> None:
    assert "中文".encode("gbk") == b"\xd6\xd0\xce\xc4"
    page = gbk_site()(Request("", "/", {})).body
    assert "词=新闻&amp;page=2".encode("gbk") in page
    assert b"q=&#128512;" in page
    assert all(target.isascii() for target in GBK_LINKS.values())
