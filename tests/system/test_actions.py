"""A logged-in crawl changes nothing, whatever the language of the site's links."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tests.support.django_site.rig import USERNAME, DjangoSite
from tests.support.effort import by_night
from tests.support.redis_server import RedisServer
from tests.support.stored import read_stored
from tests.support.system import System

ARTICLES = 10
WORDS = {
    "zh": ("文章", "删除", "退出", "gbk", "操作"),
    "ru": ("статьи", "удалить", "выход", "windows-1251", "действие"),
    "ar": ("مقالات", "حذف", "خروج", "utf-8", "عملية"),
}


def left(site: DjangoSite) -> int:
    with closing(sqlite3.connect(site.folder / "site.sqlite", timeout=30)) as db:
        return int(db.execute("SELECT COUNT(*) FROM django_site_article").fetchone()[0])


@by_night
def test_a_crawl_deletes_no_article_and_does_not_log_out_in_chinese_russian_or_arabic(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with (
        DjangoSite(tmp_path / "site", articles=ARTICLES) as site,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=2,
            secrets={"auth_club_username": USERNAME, "auth_club_password": site.password},
        ) as system,
    ):
        entry = {
            "kind": "form",
            "name": "club",
            "hosts": [site.origin()],
            "login_url": site.url("/members/login"),
        }
        seeds = [site.url(f"/{language}/") for language in WORDS]
        system.start().crawl(seeds, delay=0, slots=4, auth=[entry])
        system.wait_done(60)
        log = site.log()
        why = {}
        for language, (articles, delete, leave, encoding, operation) in WORDS.items():
            query = f"{quote(operation, encoding=encoding)}={quote(delete, encoding=encoding)}&id=3"
            for path in (
                f"/{quote(articles)}/3/{quote(delete)}/",
                f"/?{query}",
                f"/o/3-{3 * 7919 % 1000:03}",
                f"/{quote(leave)}/",
                "/bye",
            ):
                url = site.url(f"/{language}{path}")
                answer = system.call("GET", f"/v1/urls?url={quote(url, safe='')}")
                why[language, path] = str(json.dumps(answer, ensure_ascii=False))
        system.stop()
        remaining = left(site)
        done = read_stored(system.folder / "data")
    assert [one.status for one in site.logins()] == [302], "one login"
    assert remaining == ARTICLES, "no deletion"
    assert {one.session for one in log if one.user == USERNAME} == {site.logins()[0].made}
    asked = {one.path for one in log}
    assert [path for path in asked if path.endswith("/bye")] == []
    assert [path for path in asked if "/o/" in path and "-" in path] == []
    for language, (articles, *_) in WORDS.items():
        wanted = {f"/{language}/{quote(articles)}/{n}/" for n in range(1, ARTICLES + 1)}
        assert wanted <= asked, "all articles, that titled by the word among them"
    assert done.dead == set()
    for (_, path), said in why.items():
        assert "excluded" in said, (path, said)
        assert "auth club: action" in said, (path, said)
