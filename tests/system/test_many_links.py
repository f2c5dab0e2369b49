"""A page with more links than are followed, in whole processes; and what a person sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent.pywsgi import WSGIServer

from greencrawl.store import open_store
from greencrawl.worker.http.response import MAX_LINK_BYTES
from greencrawl.worker.link_checker import MAX_LINKS
from tests.support.system import System, wait_until

BEYOND = 7


def listing(request: dict[str, Any], start: Any) -> list[bytes]:
    if request["PATH_INFO"] == "/header":
        link = ", ".join(f"</{number:06}>; rel=next" for number in range(9000))
        start("200 OK", [("Content-Type", "text/html"), ("Link", link)])
        return [b"<a href=/last>x</a>"]
    start("200 OK", [("Content-Type", "text/html")])
    # The comment makes the page long: these links take about as much CPU as a short page may.
    links = b"".join(b'<a href="/product-%d">p</a>\n' % i for i in range(MAX_LINKS + BEYOND))
    return [links, b"<!--", b" " * 1_000_000, b"-->"]


@pytest.fixture
def site() -> Iterator[str]:
    server = WSGIServer(("127.0.0.1", 0), listing, log=None)
    server.start()
    yield f"http://127.0.0.1:{server.server_port}/list"
    server.stop(timeout=1)


def test_links_beyond_the_limit_are_journalled_counted_and_explained(
    tmp_path: Path, site: str
) -> None:
    with System(tmp_path).start() as system:
        system.crawl([site], delay=0, max_pages=1)
        system.wait_done(60)
        wait_until(lambda: system.stats()["admitted"] == MAX_LINKS + 1, 10, "the rest is queued")
        assert system.stats()["failures"] == {"links": 1}
        [found] = system.call("GET", f"/v1/urls?url={site}")
        said = f"{BEYOND} links were left out: only {MAX_LINKS:,} of a page are followed"
        assert found["why"].endswith(f"status 200; {said}")
        [note] = [one for one in found["attempts"] if one["kind"] == "links"]
        assert note["detail"] == said


def test_a_page_whose_link_header_is_too_long_is_stored(tmp_path: Path, site: str) -> None:
    seed = site.replace("/list", "/header")
    with System(tmp_path).start() as system:
        system.crawl([seed], delay=0, max_pages=1)
        system.wait_done(60)
        assert (system.stats()["stored"], system.stats()["failures"]) == (1, {"links": 1})
        [found] = system.call("GET", f"/v1/urls?url={seed}")
        said = "its header Link is too long: links at its end were left out"
        assert found["why"].endswith(f"status 200; {said}")
    store = open_store(f"sqlite:///{tmp_path / 'data' / 'content.sqlite'}")
    [(_, page)] = store.pages(store.crawl("test").id)
    store.close()
    urls = {link.url for link in page.links}
    assert {site.replace("/list", "/000000"), site.replace("/list", "/last")} <= urls
    assert MAX_LINK_BYTES // 40 < len(urls) < 9000
