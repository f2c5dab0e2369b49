"""An archive with its pages' requisites: whole processes, and a loss of Redis in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest
from gevent.event import Event

from greencrawl.store import open_store
from tests.faults.test_redis_outages import _wait_done
from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

SITE, CDN = "127.0.0.1", "127.0.0.2"
IMAGE = bytes(range(256))


class Site:
    """Two pages on one host; their requisites are on another, which answers when the test lets
    it."""

    def __init__(self) -> None:
        self.cdn = ""
        self.may_answer = Event()

    def __call__(self, request: Request) -> Answer:
        target = request.target
        if request.address == SITE:
            if target == "/":
                return Answer(body=b"<a href=two>2</a><script src=/js></script>")
            if target == "/two":
                return Answer(body=f"<link rel=stylesheet href={self.cdn}/a.css>".encode())
            if target == "/js":
                return Answer(body=b"1", headers={"Content-Type": "text/javascript"})
        elif target == "/robots.txt":
            return Answer(body=b"User-agent: *\nDisallow: /secret", headers={})
        else:
            self.may_answer.wait()
            if target == "/a.css":
                body = b"@import 'b.css'; a{b:url(/i.png)} c{d:url(/secret.png)}"
                return Answer(body=body, headers={"Content-Type": "text/css"})
            if target == "/b.css":
                body = b"@font-face{src:url(f.woff2)}"
                return Answer(body=body, headers={"Content-Type": "text/css"})
            if target in ("/i.png", "/f.woff2"):
                return Answer(body=IMAGE, headers={"Content-Type": "image/png"})
        return Answer(status=404)


@pytest.mark.parametrize("empties", cases([True], [False]))
def test_all_requisites_of_pages_are_stored_even_if_redis_loses_its_data(
    tmp_path: Path, redis_server: RedisServer, empties: bool
) -> None:
    site = Site()
    with (
        SiteServer(site, (SITE, CDN)) as server,
        System(tmp_path, [redis_server.url], lease_seconds="2", request_seconds="5") as system,
    ):
        site.cdn = server.url("", CDN).rstrip("/")
        if not empties:
            site.may_answer.set()
        system.start()
        system.crawl([server.url("/", SITE)], delay=0, requisites="on", depth=1)
        if empties:
            wait_until(lambda: system.stats()["stored"] >= 3, 20, "the site is stored")
            redis_server.client.flushall()
            site.may_answer.set()
        _wait_done(system)
        found = read_stored(tmp_path / "data")
        home = [server.url(path, SITE) for path in ("/", "/two", "/js")]
        away = [server.url(path, CDN) for path in ("/a.css", "/b.css", "/i.png", "/f.woff2")]
        assert found.pages == {*home, *away}
        assert found.excluded == {server.url("/secret.png", CDN)}
        asked = {hit.target for hit in server.hits if hit.address == CDN}
        assert asked == {"/robots.txt", "/a.css", "/b.css", "/i.png", "/f.woff2"}
        [unmet] = system.call("GET", "/v1/urls?url=http://o.example/")
        assert unmet["why"].startswith("never seen: taken if a page needs it to be shown, but not")
        store = open_store(f"sqlite:///{tmp_path / 'data' / 'content.sqlite'}")
        try:
            pages = {page.url: page for _, page in store.pages(1, detail="body")}
        finally:
            store.close()
        assert pages[away[2]].body == pages[away[3]].body == IMAGE
        assert {pages[url].depth for url in away} == {1}
