"""A whole crawl through MariaDB leaves the same rows as through SQLite."""

from __future__ import annotations

from pathlib import Path

from greencrawl.store import open_store
from tests.support import oracle
from tests.support.equality import Rows, differences, rows
from tests.support.mariadb import MariaDb
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import graph_site
from tests.support.system import System


def crawled(folder: Path, redis: RedisServer, server: SiteServer, store: str) -> Rows:
    redis.client.flushall()
    with System(folder, [redis.url], processes=2, store=store) as system:
        system.start().crawl([server.url("/p/0")], delay=0, slots=8)
        system.wait_done(60)
    opened = open_store(store)
    try:
        return rows(opened, "test")
    finally:
        opened.close()


def test_a_crawl_through_mysql_equals_one_through_sqlite(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    mariadb = MariaDb(tmp_path / "mariadb").start()
    try:
        with SiteServer(graph_site(150)) as server:
            file = f"sqlite:///{tmp_path / 'content.sqlite'}"
            sqlite = crawled(tmp_path / "sqlite", redis_server, server, file)
            mysql = crawled(tmp_path / "mysql", redis_server, server, mariadb.url)
    finally:
        mariadb.stop()
    assert len(sqlite.pages) > 100
    assert sqlite.finals
    assert oracle.shown(differences(sqlite, mysql)) == ""


def test_the_judge_names_each_difference_between_two_stores() -> None:
    def made(title: str, code: int) -> Rows:
        return Rows(
            pages={"u": {"title": title, "body": b""}},
            finals={"g": ("gone", "gone", "", code)},
            counts={"pages": 1},
        )

    assert differences(made("a", 404), made("a", 404)) == []
    found = differences(made("a", 404), made("b", 410))
    assert found == [
        "pages of u: title 'a' and 'b'",
        "finals of g: ('gone', 'gone', '', 404) and ('gone', 'gone', '', 410)",
    ]
    assert differences(Rows(pages={"u": {}}), Rows()) == ["pages: only the first has u"]
