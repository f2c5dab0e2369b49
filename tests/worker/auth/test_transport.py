"""A login's requests: ``requests`` makes them, our own downloads send them to a real server."""

from __future__ import annotations

import gzip
import ipaddress
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import requests
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.records import Crawl, CrawlOptions, Failure, FailureKind, Fetched, Session
from greencrawl.worker.auth.base import LoginFailed, LoginRefused
from greencrawl.worker.auth.transport import MAX_BODY_BYTES, MAX_REDIRECTS, refusals, session_over
from greencrawl.worker.crawls import context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.session.fetcher import Visit
from greencrawl.worker.session.held import HeldSession
from tests.support.raw_server import RawServer, answer

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
HEADERS = {"user-agent": "greencrawl/0.1 (+ops@example.org)", "accept": "text/html"}
Sent = tuple[str, str, dict[str, str], bytes]


class Way:
    """A visit's way to send; it remembers what it sent and waits ``delay`` seconds between two."""

    def __init__(self, downloader: Downloader, delay: float = 0.0) -> None:
        session = Session(
            session="1/h", token="0" * 16, crawl=1, revision=1, host="h", ttl=60, delay=delay,
            floor=delay, robots_known=True, tasks=(),
        )  # fmt: skip
        held = HeldSession(session, monotonic() + 60)
        context = context_of(Crawl(id=1, name="c", state="active", options=CrawlOptions()))
        self.visit = Visit(held, context, downloader, Event())
        self.sent: list[Sent] = []

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched | Failure:
        self.sent.append((method, url, dict(headers), body))
        return self.visit.send(method, url, headers, body, MAX_BODY_BYTES)


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    made = Downloader(LOOPBACK, 5)
    yield made
    made.close()


@pytest.fixture
def way(downloader: Downloader) -> Way:
    return Way(downloader)


def fields(head: str) -> dict[str, str]:
    """Return a request's header fields with lowered names; fail if one came twice."""
    found: dict[str, str] = {}
    for line in head.split("\r\n")[1:-2]:
        name, _, value = line.partition(": ")
        assert name.lower() not in found, head
        found[name.lower()] = value
    return found


def test_login_follows_redirects_and_gathers_cookies(way: Way) -> None:
    form = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: csrf=1; Path=/; HttpOnly\r\n"
    form += b"Set-Cookie: lang=de, at; Expires=Wed, 09 Jun 2100 10:18:14 GMT\r\n\r\nhello"
    seen: list[int] = []

    def first_form_then_welcome(sock: object) -> bool:
        seen.append(1)
        if len(seen) == 1:
            sock.sendall(form)  # type: ignore[attr-defined]
            return True
        welcome = answer(b"", "302 Found", Location="/home?x=%C3%A9#top", Set_Cookie="sid=s3")
        return bool(welcome(sock))  # type: ignore[arg-type]

    pages = {"/login": first_form_then_welcome, "/home?x=%C3%A9": answer(b"welcome")}
    with RawServer(pages) as server:
        session = session_over(way, HEADERS)
        page = session.get(server.url("/login"))
        assert (page.status_code, page.text) == (200, "hello")
        assert page.cookies.get_dict() == {"csrf": "1", "lang": "de, at"}
        page = session.post(server.url("/login"), data={"name": "ann", "password": "sesame"})
        assert page.text == "welcome"
        assert [found.status_code for found in page.history] == [302]
        assert session.cookies.get_dict() == {"csrf": "1", "lang": "de, at", "sid": "s3"}
        assert {c.name: c.expires for c in session.cookies}["lang"] == 4116219494
        lines = [head.partition(" HTTP")[0] for head in server.requests]
        assert lines == ["GET /login", "POST /login", "GET /home?x=%C3%A9"]
        assert server.bodies == [b"", b"name=ann&password=sesame", b""]
        sent = [fields(head) for head in server.requests]
    assert [found.get("cookie", "") for found in sent] == [
        "",
        "csrf=1; lang=de, at",
        "csrf=1; lang=de, at; sid=s3",
    ]
    assert {found["user-agent"] for found in sent} == {HEADERS["user-agent"]}
    assert sent[1]["content-type"] == "application/x-www-form-urlencoded"
    assert set(sent[2]) == {"host", "user-agent", "accept", "accept-encoding", "cookie"}
    assert len(way.sent) == 3
    assert way.visit.report().requests == 3


def test_requests_of_a_login_keep_the_delay_of_the_host(downloader: Downloader) -> None:
    way = Way(downloader, delay=0.2)
    pages = {"/a": answer(b"", "302 Found", Location="/b"), "/b": answer(b"ok")}
    with RawServer(pages) as server:
        began = monotonic()
        session_over(way, HEADERS).get(server.url("/a"))
        session_over(way, HEADERS).get(server.url("/b"))
        assert monotonic() - began >= 0.4


def test_login_is_refused_after_too_many_redirects(way: Way) -> None:
    with RawServer(answer(b"", "302 Found", Location="/again?token=secret")) as server:
        session = session_over(way, HEADERS)
        expected = f"^shop: TooManyRedirects 302 at {server.url('')}$"
        with pytest.raises(LoginRefused, match=expected), refusals("shop"):
            session.get(server.url("/again?token=secret"))
        assert len(server.requests) == MAX_REDIRECTS + 1


def test_login_fails_if_the_server_refuses_the_connection(way: Way) -> None:
    with RawServer(answer()) as server:
        url = server.url("/token")
    with pytest.raises(LoginFailed) as caught:
        session_over(way, HEADERS).post(url, data={"a": "b"})
    assert caught.value.failure.kind is FailureKind.REFUSED


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("429 Too Many Requests", FailureKind.RATE_LIMITED),
        ("503 Service Unavailable", FailureKind.UNAVAILABLE),
    ],
)
def test_retry_after_of_an_answer_is_kept_in_the_failure(
    way: Way, status: str, kind: FailureKind
) -> None:
    server = RawServer(answer(b"", status, Retry_After="77"))
    with server, pytest.raises(LoginFailed) as caught:
        session_over(way, HEADERS).get(server.url())
    assert caught.value.failure.kind is kind
    assert caught.value.failure.retry_after == 77


@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "500 Oops"])
def test_answers_with_other_statuses_are_left_to_the_login(way: Way, status: str) -> None:
    with RawServer(answer(b"no", status)) as server:
        found = session_over(way, HEADERS).get(server.url())
        assert (str(found.status_code), found.text) == (status[:3], "no")
        found = session_over(way, HEADERS).get(server.url("/?key=secret"))
        expected = f"^shop: HTTPError {status[:3]} at {server.url('')}$"
        with pytest.raises(LoginRefused, match=expected), refusals("shop"):
            found.raise_for_status()


def test_compressed_body_is_decompressed_once(way: Way) -> None:
    packed = gzip.compress("größer".encode())
    with RawServer(
        answer(packed, Content_Encoding="gzip", Content_Type="text/plain; charset=utf-8")
    ) as server:
        assert session_over(way, HEADERS).get(server.url()).text == "größer"


def test_redirect_with_an_undeclared_encoding_is_followed_byte_for_byte(way: Way) -> None:
    pages = {"/": answer(b"", "302 Found", Location="/gr\xfcn"), "/gr%FCn": answer(b"ok")}
    with RawServer(pages) as server:
        assert session_over(way, HEADERS).get(server.url("/")).text == "ok"


def test_body_is_not_taken_along_to_another_origin(way: Way) -> None:
    with RawServer(answer(b"thanks")) as thief:
        moved = answer(b"", "307 Temporary Redirect", Location=thief.url("/in?q=1"))
        with RawServer(moved) as server:
            with pytest.raises(LoginRefused, match=rf"sent on to {thief.url('')}, which"):
                session_over(way, HEADERS).post(server.url("/"), data={"password": "sesame"})
            assert thief.requests == []
            # it has no body that it could take along
            assert session_over(way, HEADERS).get(server.url("/")).text == "thanks"
        with RawServer({"/": answer(b"", "308 P", Location="/b"), "/b": answer(b"in")}) as server:
            found = session_over(way, HEADERS).post(server.url("/"), data={"password": "sesame"})
            assert found.text == "in"
            assert server.bodies == [b"password=sesame"] * 2


def test_credentials_are_not_sent_to_another_origin_after_a_redirect(way: Way) -> None:
    other = RawServer(answer(b"ok", Set_Cookie="theirs=1"))
    server = RawServer(answer(b"", "302 Found", Location=other.url("/")))
    with other, server:
        session = session_over(way, HEADERS)
        session.headers["X-Api-Key"] = "s3cret"
        session.headers["Cookie"] = "ours=1"
        session.get(server.url("/"), auth=("ann", "sesame"))
        ours = fields(server.requests[0])
        assert (ours["x-api-key"], ours["cookie"]) == ("s3cret", "ours=1")
        assert "authorization" in ours
        assert set(fields(other.requests[0])) == {"host", "user-agent", "accept", "accept-encoding"}
        session.headers.pop("Cookie")
        session.get(server.url("/"))
        assert fields(other.requests[1])["cookie"] == "theirs=1"
        assert "x-api-key" not in fields(other.requests[1])


def test_cookies_are_sent_without_tls_only_to_trusted_origins() -> None:
    sent: list[Sent] = []
    moved = {"https://a.test/": "http://a.test/1", "http://a.test/1": "http://a.test/2"}

    def send(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        sent.append((method, url, dict(headers), body))
        headers = {"location": moved[url]} if url in moved else {}
        return Fetched(url, 302 if headers else 200, headers, b"", cookies=("sid=s3cret",))

    for trusted in (False, True):
        sent.clear()
        session = session_over(send, HEADERS, lambda _, trusted=trusted: trusted)
        session.get("https://a.test/")
        assert [url for _, url, _, _ in sent] == ["https://a.test/", *moved.values()]
        assert ["Cookie" in headers for _, _, headers, _ in sent] == [False, trusted, trusted]


def test_unexpected_error_in_a_login_is_a_refusal_without_its_message(way: Way) -> None:
    moved = answer(b"", "302 Found", Location="http://[")
    shown = r"^x: ValueError \(\w+\.py, line \d+\)$"
    with RawServer(moved) as server, pytest.raises(LoginRefused, match=shown), refusals("x"):
        session_over(way, HEADERS).get(server.url("/"))
    with pytest.raises(InvalidUrl), refusals("x"):
        raise InvalidUrl("y", "z")


def test_body_and_headers_are_sent_on_to_trusted_origins(way: Way) -> None:
    with RawServer(answer(b"in")) as other:
        moved = answer(b"", "307 Temporary Redirect", Location=other.url("/in"))
        with RawServer(moved) as server:
            session = session_over(way, HEADERS, lambda url: url.startswith(other.url("")))
            session.headers["X-Api-Key"] = "s3cret"
            assert session.post(server.url("/"), data={"password": "sesame"}).text == "in"
        assert other.bodies == [b"password=sesame"]
        assert fields(other.requests[0])["x-api-key"] == "s3cret"


@pytest.mark.parametrize(
    "ask",
    [
        lambda s, url: s.get("ftp://example.org/"),
        lambda s, url: s.get("no url"),
        lambda s, url: s.get("http://[::1"),
        lambda s, url: s.get("http://a.example:99999/"),
        lambda s, url: s.request("TRACE", url),
        lambda s, url: s.request("GET /x HTTP/1.1\r\nX: y\r\n\r\nGET", url),
        lambda s, url: s.post(url, data=iter([b"a"])),
        lambda s, url: s.post(url, data=b"a" * (MAX_BODY_BYTES + 1)),
        lambda s, url: s.get(url, headers={"X": "a\r\nB: c"}),
    ],
)
def test_invalid_request_of_a_login_is_refused_and_not_sent(
    way: Way, ask: Callable[[requests.Session, str], object]
) -> None:
    with RawServer(answer()) as server:
        with pytest.raises(LoginRefused) as caught, refusals("shop"):
            ask(session_over(way, HEADERS), server.url("/?key=secret"))
        assert server.connections == 0
    assert "secret" not in str(caught.value)


def test_netrc_and_proxies_of_the_environment_are_ignored(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login ann password sesame\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with RawServer(answer(b"direct")) as server:
        session = session_over(way, HEADERS)
        assert session.get(server.url(), verify=False, timeout=1e-9).text == "direct"
        assert "authorization" not in fields(server.requests[0])


def test_answer_to_a_head_request_has_no_body(way: Way) -> None:
    with RawServer(
        {"/": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")}
    ) as s:
        assert session_over(way, HEADERS).head(s.url()).content == b""


def test_logins_in_two_threads_do_not_share_cookies(downloader: Downloader) -> None:
    found: list[dict[str, str]] = []

    def log_in(name: str) -> None:
        session = session_over(Way(downloader), HEADERS)
        session.get(server.url(f"/{name}"))
        found.append(session.cookies.get_dict())

    pages = {"/a": answer(Set_Cookie="who=a"), "/b": answer(Set_Cookie="who=b")}
    with RawServer(pages) as server:
        jobs = [threading.Thread(target=log_in, args=(name,)) for name in "ab"]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    assert sorted(cookies["who"] for cookies in found) == ["a", "b"]
