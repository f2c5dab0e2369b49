"""A login that leads over two hosts, with whole worker processes, a real broker and Redis."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from gevent.pywsgi import WSGIServer

from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System

PASSWORD = "open sesame 7f3a"
PAGES = [f"/p/{number}" for number in range(8)]


@dataclass(frozen=True)
class Hit:
    """A request: when it came, when it was answered, in seconds, and its cookies."""

    line: str
    began: float
    ended: float
    cookie: str


class Host:
    """It answers by ``site(environ)``: (status, headers, body), on an address of its own."""

    def __init__(self, address: str, site: Callable[[dict[str, Any]], Any]) -> None:
        self.hits: list[Hit] = []
        self._site = site
        self._server = WSGIServer((address, 0), self._answer, log=None)
        self._server.start()
        self.origin = f"http://{address}:{self._server.server_port}"

    def stop(self) -> None:
        self._server.stop(1)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Sequence[bytes]:
        began = time.monotonic()
        status, headers, body = self._site(environ)
        start(status, [("Content-Type", "text/html"), *headers])
        line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        self.hits.append(Hit(line, began, time.monotonic(), environ.get("HTTP_COOKIE", "")))
        return [body]


class Pair:
    """A shop and a second host with the login form, which sends users on to the shop's pages."""

    def __init__(self) -> None:
        self.shop = Host("127.0.0.2", self._shop)
        self.door = Host("127.0.0.3", self._door)
        self.tickets: list[str] = []

    def _shop(self, environ: dict[str, Any]) -> Any:
        path = environ["PATH_INFO"]
        if path == "/robots.txt":
            return "404 Not Found", [], b""
        if path == "/back":
            (ticket,) = parse_qs(environ["QUERY_STRING"])["t"]
            assert ticket == self.tickets[-1]
            return "200 OK", [("Set-Cookie", f"in={ticket}; HttpOnly")], b"welcome"
        if f"in={self.tickets[-1] if self.tickets else ''}" != environ.get("HTTP_COOKIE"):
            return "302 Found", [("Location", f"{self.door.origin}/login")], b""
        return "200 OK", [], html(path, PAGES)

    def _door(self, environ: dict[str, Any]) -> Any:
        if environ["PATH_INFO"] != "/login":
            return "404 Not Found", [], b""
        if environ["REQUEST_METHOD"] == "GET":
            form = (
                b"<form method=post><input type=hidden name=csrf value=c7>"
                b"<input name=user><input type=password name=secret></form>"
            )
            return "200 OK", [("Set-Cookie", "csrf=c7; HttpOnly")], form
        sent = parse_qs(environ["wsgi.input"].read().decode())
        assert environ["HTTP_COOKIE"] == "csrf=c7"
        assert sent == {"csrf": ["c7"], "user": ["ann"], "secret": [PASSWORD]}
        self.tickets.append(f"ticket{len(self.tickets)}")
        back = f"{self.shop.origin}/back?t={self.tickets[-1]}"
        return "302 Found", [("Location", back)], b""


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.shop.stop()
    made.door.stop()


@pytest.mark.parametrize("max_pages", cases([2], [0]))
def test_a_login_that_leads_over_two_hosts_keeps_the_delay_of_each_host(
    tmp_path: Path, redis_server: RedisServer, pair: Pair, max_pages: int
) -> None:
    secrets = {"auth_shop_username": "ann", "auth_shop_password": PASSWORD}
    system = System(tmp_path, [redis_server.url], processes=2, **secrets)
    login = f"{pair.door.origin}/login"
    with system.start():
        system.crawl(
            [f"{pair.shop.origin}{path}" for path in PAGES],
            delay=0.2,
            max_pages=max_pages,
            auth=[
                {
                    "kind": "form",
                    "name": "shop",
                    "hosts": [pair.shop.origin, pair.door.origin],
                    "login_url": login,
                }
            ],
        )
        system.wait_done(60)
    stored = read_stored(tmp_path / "data")
    everything = {f"{pair.shop.origin}{path}" for path in PAGES}
    if max_pages:
        assert len(stored.pages) == max_pages
        assert stored.pages < everything
    else:
        assert stored.pages == everything
    assert not stored.dead | stored.gone | stored.redirects
    assert [hit.line for hit in pair.door.hits] == ["GET /login", "POST /login"]
    asked = Counter(hit.line for hit in pair.shop.hits)
    assert asked["GET /back"] == 1
    assert all(hit.cookie for hit in pair.shop.hits if hit.line.startswith("GET /p/"))
    for hits in (pair.door.hits, pair.shop.hits):
        rests = [after.began - before.ended for before, after in itertools.pairwise(hits)]
        assert min(rests) >= 0.2, "each host is left alone between any two requests"
    for part in ("broker", "worker"):
        assert PASSWORD not in (tmp_path / f"{part}.log").read_text()
