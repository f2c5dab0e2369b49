"""A page with more links than are followed: whole processes, and what a person is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent.pywsgi import WSGIServer

from greencrawl.worker.link_checker import MAX_LINKS
from tests.support.system import System, wait_until

BEYOND = 7


def listing(_: dict[str, Any], start: Any) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/html")])
    return [b"".join(b'<a href="/product-%d">p</a>\n' % i for i in range(MAX_LINKS + BEYOND))]


@pytest.fixture
def site() -> Iterator[str]:
    server = WSGIServer(("127.0.0.1", 0), listing, log=None)
    server.start()
    yield f"http://127.0.0.1:{server.server_port}/list"
    server.stop(timeout=1)


def test_the_rest_is_journalled_counted_and_explained(tmp_path: Path, site: str) -> None:
    with System(tmp_path).start() as system:
        system.crawl([site], delay=0, max_pages=1)
        system.wait_done(60)
        wait_until(lambda: system.stats()["admitted"] == MAX_LINKS + 1, 10, "the rest is queued")
        assert system.stats()["failures"] == {"links": 1}
        [found] = system.call("GET", f"/v1/urls?url={site}")
        said = f"{BEYOND} links were left out: of a page {MAX_LINKS:,} are followed"
        assert found["why"].endswith(f"status 200; {said}")
        [note] = [one for one in found["attempts"] if one["kind"] == "links"]
        assert note["detail"] == said
