"""Sitemaps with whole processes: found by themselves, given as a seed, and under kills."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from greencrawl.cli.commands.explain import in_store
from greencrawl.store import open_store
from tests.support.effort import cases, examples
from tests.support.redis_server import RedisServer
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until
from tests.system.test_worker_crawl import targets

FILES, EACH = 6, examples(100, 300)
ROBOTS = b"User-agent: *\nDisallow: /not/\nSitemap: /index.xml\nSitemap: /broken.xml\n"
XML = {"Content-Type": "application/xml"}


def urlset(urls: list[str]) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode()


def site(request: Request) -> Answer:
    """Answer with pages without links, and with an index of files, some gzipped; robots.txt names
    it."""
    path = request.target
    if path == "/robots.txt":
        return Answer(body=ROBOTS, headers={"Content-Type": "text/plain"})
    if path == "/index.xml":
        files = "".join(f"<sitemap><loc>/{n}.xml</loc></sitemap>" for n in range(FILES))
        return Answer(body=f"<sitemapindex>{files}</sitemapindex>".encode(), headers=XML)
    if path == "/broken.xml":
        return Answer(body=b"<urlset><url></loc>", headers=XML)
    if path.endswith(".xml"):
        number = int(path[1:-4])
        body = urlset([f"/{number}/{n}" for n in range(EACH)] + [f"/not/{number}"])
        return Answer(body=gzip.compress(body) if number % 2 else body, headers=XML)
    return Answer(body=html("page", []))


WANTED = {"/", "/index.xml", *(f"/{n}.xml" for n in range(FILES))} | {
    f"/{file}/{n}" for file in range(FILES) for n in range(EACH)
}


@pytest.mark.parametrize(
    "fault",
    cases(["worker.after_admit:4"], ["", "worker.after_store:3", "worker.before_finish:3"]),
)
def test_all_urls_of_sitemaps_are_fetched_even_if_a_worker_dies(
    tmp_path: Path, redis_server: RedisServer, fault: str
) -> None:
    with (
        SiteServer(site) as server,
        System(tmp_path, [redis_server.url], request_seconds="2", lease_seconds="3") as system,
    ):
        system.start_broker()
        system.start_worker(fault)
        system.crawl([server.url("/")], delay=0, slots=4, sitemaps="on")
        if fault:
            wait_until(lambda: not system.children(), 30, f"death at {fault}")
            system.kill("worker")
            system.start_worker()
        system.wait_done(120)
        stored = read_stored(tmp_path / "data")
        assert stored.pages == {server.url(path) for path in WANTED}
        assert stored.dead == {server.url("/broken.xml")}
        hits = targets(server)
        assert not any(path.startswith("/not/") for path in hits)
        assert sum(hits[path] for path in WANTED) <= len(WANTED) + (40 * 4 if fault else 0)
        (found,) = system.call("GET", f"/v1/urls?crawl=test&url={quote(server.url('/broken.xml'))}")
        assert "sitemap (its XML is broken in line 1: mismatched tag)" in found["why"]


def test_sitemaps_and_their_urls_come_back_after_redis_lost_all_data(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with (
        SiteServer(site) as server,
        System(
            tmp_path, [redis_server.url], request_seconds="1", lease_seconds="2"
        ).start() as system,
    ):
        without = ["/[2-9].xml", "/[2-9]/"]
        system.crawl([server.url("/")], delay=0.02, sitemaps="on", exclude=without)
        wait_until(lambda: targets(server)["/1.xml"], 20, "sitemaps are being read")
        redis_server.client.flushall()

        def done() -> bool:
            with suppress(HTTPError):  # 503 while the node is being filled again
                return bool(system.stats()["state"] == "done")
            return False

        wait_until(done, 120, "the crawl is done", every=0.1)
        stored = read_stored(tmp_path / "data")
        wanted = {path for path in WANTED if path[:2] in ("/", "/i", "/0", "/1")}
        assert stored.pages == {server.url(path) for path in wanted}
        assert stored.dead == {server.url("/broken.xml")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with shared_system(tmp_path_factory.mktemp("shared")) as system:
        yield system


def test_the_urls_of_a_sitemap_seed_have_depth_one(shared: System) -> None:
    with SiteServer(site) as server:
        shared.crawl([server.url("/3.xml")], "seed", delay=0, depth=1, sitemaps="on")
        shared.wait_done(60, "seed")
        stored = read_stored(shared.folder / "data", "seed")
        expected = {server.url("/3.xml"), *(server.url(f"/3/{n}") for n in range(EACH))}
        assert stored.pages == expected


def test_a_missing_sitemap_at_the_usual_place_is_no_failure(shared: System) -> None:
    def bare(request: Request) -> Answer:
        return Answer(body=html("page", [])) if request.target == "/" else Answer(404)

    with SiteServer(bare) as server:
        given = {"name": "bare", "seeds": [server.url("/")], "delay": 0}
        shared.call("POST", "/v1/crawls", given)  # with default options
        shared.wait_done(30, "bare")
        assert targets(server) == {"/": 1, "/robots.txt": 1, "/sitemap.xml": 1}
        stats = shared.stats("bare")
        assert (stats["failures"], stats["dead"], stats["stored"]) == ({}, 0, 1)
        (found,) = shared.call("GET", f"/v1/urls?crawl=bare&url={server.url('/sitemap.xml')}")
        assert found["state"] == "seen"
        assert found["why"] == (
            "admitted to the queue earlier; a sitemap was looked for there: where none is, or may "
            "be asked for, nothing is kept"
        )


def test_the_error_at_the_usual_place_of_a_sitemap_is_explained_afterwards(shared: System) -> None:
    def failing(request: Request) -> Answer:
        return Answer(502) if request.target == "/sitemap.xml" else site(request)

    def named_by_nobody(request: Request) -> Answer:
        return Answer(404) if request.target == "/robots.txt" else failing(request)

    said = "a sitemap was looked for there, once, since nobody names one: server_error (HTTP 502)"
    with SiteServer(named_by_nobody) as server:
        place = server.url("/sitemap.xml")
        given = {"name": "why", "seeds": [server.url("/")], "delay": 0}
        shared.call("POST", "/v1/crawls", given)
        shared.wait_done(30, "why")
        assert targets(server)["/sitemap.xml"] == 1
        stats = shared.stats("why")
        assert (stats["failures"], stats["dead"], stats["stored"]) == ({}, 0, 1)
        (found,) = shared.call("GET", f"/v1/urls?crawl=why&url={place}")
        assert (found["state"], found["attempts"][0]["code"]) == ("seen", 502)
        assert found["why"] == f"admitted to the queue earlier; {said}"
        store = open_store(f"sqlite:///{shared.folder / 'data' / 'content.sqlite'}")
        crawl, identity = store.crawl("why"), store.frontier()
        assert identity is not None
        state = in_store(store, crawl, place, identity)
        store.close()
        assert (state.state, state.why) == ("seen", f"A{said[1:]}.")
