"""A small site, crawled into WARC files and exported from SQL, replays byte for byte."""

from __future__ import annotations

import gzip
from pathlib import Path

from greencrawl.store import open_store
from tests.support.archive import Archive, check
from tests.support.effort import by_night
from tests.support.redis_server import RedisServer
from tests.support.replayed import crawl_and_export
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import HTML, direct, graph_site, html
from tests.support.system import System, wait_until
from tests.support.walk import walk

PICTURE = bytes(range(256)) * 40


def site(request: Request) -> Answer:
    """Answer with pages in gzip and Chinese, two equal pages, a picture, a redirect and an empty
    page."""
    path = request.target
    if path == "/picture.png":
        return Answer(body=PICTURE, headers={"Content-Type": "image/png"})
    if path == "/moved":
        return Answer(302, headers={"Location": "/a?b=c%20d", "Content-Type": "text/plain"})
    if path == "/empty":
        return Answer(body=b"", headers={"Content-Type": "text/plain"})
    if path not in ("/", "/a?b=c%20d", "/twin", "/gbk"):
        return Answer(404)
    body = html("新闻 twins", []) if path != "/" else html("Start", ["/a?b=c%20d", "/twin", "/gbk"])
    if path == "/gbk":
        return Answer(body="新闻".encode("gbk"), headers={"Content-Type": "text/html; charset=gbk"})
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Answer(body=gzip.compress(body), headers={**HTML, "Content-Encoding": "gzip"})
    return Answer(body=body, headers=HTML)


def test_warc_files_of_a_crawl_and_of_an_export_play_back_what_the_site_serves(
    tmp_path: Path,
) -> None:
    redis = [RedisServer(tmp_path / f"redis{n}").start() for n in range(2)]
    try:
        with SiteServer(site) as server:
            base = server.url("").rstrip("/")
            paths = ["/", "/picture.png", "/moved", "/empty", "/missing"]
            live, kept = crawl_and_export(tmp_path, [one.url for one in redis], base, paths)
    finally:
        for one in redis:
            one.stop()
    assert (kept.kinds["revisit"], kept.kinds["response"]) == (1, 6)
    assert live.pages == kept.pages == 6


@by_night
def test_a_crawl_is_complete_though_workers_are_killed_between_warc_file_and_sql(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    pages, folder = graph_site(80), tmp_path / "warc"
    with (
        SiteServer(pages) as server,
        System(
            tmp_path, [redis_server.url], request_seconds="1.5", lease_seconds="5",
            bodies=f"warc:{folder}",
        ) as system,
    ):  # fmt: skip
        start = server.url("/p/0")
        expected = walk([start], direct(pages), agent="greencrawl")
        system.start_broker()
        system.start_worker(fault="warc.after_sync:2")
        system.crawl([start], delay=0, slots=4)
        # Each child dies when its second batch is in the file but not in SQL; its successor repairs
        # that.
        wait_until(lambda: len(list(folder.glob("*"))) >= 3, 60, "three children wrote files")
        system.kill("worker")
        system.start_worker()
        system.wait_done(90)
        system.stop()
    files = sorted(folder.glob("*.warc.gz"))
    assert not list(folder.glob("*.open"))
    assert check(files) == ""
    store = open_store(f"sqlite:///{tmp_path / 'data' / 'content.sqlite'}", f"warc:{folder}")
    stored = {
        page.url: page.body
        for _, page in store.pages(store.crawl("test").id, detail="body")
        if page.status == 200
    }
    store.close()
    assert set(stored) == expected.pages
    fetch = direct(pages)
    assert [url for url, body in stored.items() if fetch(url)[2] != body] == []
    answers = Archive(files).answers
    assert [url for url, body in stored.items() if answers[url].body != body] == []
