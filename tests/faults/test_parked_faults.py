"""Two workers, one of which is killed, and a Redis that comes back older, with parked and released
URLs.

``host_pages`` parks most of the site, so that no verdict decides what is parked.
"""

from __future__ import annotations

import shutil
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.effort import LONG
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, alive, wait_until

HOSTS = tuple(f"127.0.0.{n}" for n in range(2, 8))
PAGES, MOST = 800, 40
"""The pages of a host besides its first, and how many of them a crawl may fetch."""


def site(request: Request) -> Answer:
    """A first page that leads to all others; these differ in every word."""
    if request.target == "/":
        return Answer(body=html("All", [f"/p/{n}" for n in range(PAGES)]))
    if not request.target.startswith("/p/"):
        return Answer(404, b"<title>Not found</title>")
    number = request.target.rpartition("/")[2]
    words = " ".join(f"word{number}x{n}" for n in range(60))
    return Answer(body=f"<title>Page {number}</title><p>{words}".encode())


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis whose disk has everything that was answered."""
    server = RedisServer(tmp_path / "redis", None, "--appendfsync", "always").start()
    yield server
    server.stop()


def parked(system: System) -> int:
    return int(system.stats()["parked"])


def done(system: System) -> bool:
    try:
        return bool(system.stats()["state"] == "done")
    except urllib.error.HTTPError:  # Redis is getting what it missed
        return False


@pytest.mark.skipif(
    not LONG, reason="a Redis that comes back older rests for a quarter of a minute"
)
def test_parked_urls_stay_parked_or_are_fetched_and_released_urls_are_fetched(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    copy, now = tmp_path / "copy", tmp_path / "now"
    with (
        SiteServer(site, HOSTS) as server,
        System(
            tmp_path / "system", [redis_server.url], processes=2, lease_seconds="2",
            request_seconds="1",
        ) as system,
    ):  # fmt: skip
        urls = {server.url(f"/p/{n}", host) for host in HOSTS for n in range(PAGES)}
        starts = [server.url("/", host) for host in HOSTS]
        system.start_broker()
        system.start_worker(f"worker.after_store@{now}")  # between the commit and its report
        first: list[psutil.Process] = system.children()
        system.crawl(starts, delay=0, scope="any", host_pages=MOST)
        wait_until(lambda: parked(system) > 20, 60, "something is parked", every=0.02)
        shutil.copytree(redis_server.folder, copy)
        now.touch()
        wait_until(lambda: not all(map(alive, first)), 60, "a worker died", every=0.01)
        now.unlink()
        wait_until(lambda: parked(system) > 500, 60, "more is parked", every=0.02)
        before = read_stored(system.folder / "data")
        redis_server.kill()
        shutil.rmtree(redis_server.folder)
        shutil.copytree(copy, redis_server.folder)
        redis_server.start()
        wait_until(lambda: done(system), 120, "the crawl ends", every=0.1)
        after = read_stored(system.folder / "data")
        assert after.pages | after.parked == urls | set(starts), "nothing is lost"
        assert not after.pages & after.parked
        assert before.pages <= after.pages
        assert before.parked <= after.parked | after.pages
        again = before.parked & after.pages
        assert len(again) <= len(before.parked) / 4, "what was parked is parked"
        print(len(before.parked), "parked;", len(again), "of them fetched after the loss")

        added = system.call("POST", "/v1/parked/release", {"crawl": "test", "all": True})["added"]
        assert added == len(after.parked)
        system.wait_done(90)
        end = read_stored(system.folder / "data")
        assert end.pages == urls | set(starts)
        assert (end.parked, end.dead) == (set(), set())
