"""Generated sites with traps, and honest ones that look similar: their own verdicts are right."""

from __future__ import annotations

import datetime
import re
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

import pytest

from bench.traps.crawl import Result
from bench.traps.kinds.discourse import Discourse
from bench.traps.kinds.discuz import Discuz
from bench.traps.kinds.figures import Screws, Timetable, Weather
from bench.traps.kinds.honest import Archive, Catalogue, Pages
from bench.traps.kinds.opencart import OpenCart
from bench.traps.kinds.phpbb import PhpBB
from bench.traps.kinds.shop import Shop
from bench.traps.kinds.sites import Log, Site
from bench.traps.kinds.synthetic import TRAPS, Synthetic
from bench.traps.kinds.wordpress import WordPress
from bench.traps.wiki import WikiHit, changed
from bench.traps.wiki_run import judge
from tests.support.effort import cases
from tests.support.site_server import Request
from tests.support.walk import links

TODAY = datetime.date(2026, 11, 23)
ORIGIN = "http://h"
SESSION = re.compile(r"\b(sid|SID|hash|PHPSESSID|jsessionid|form_key|OCSESSID|S)[=/(][0-9A-Fa-f]+")
SITES: dict[str, Callable[[], Site]] = {
    "six": partial(Synthetic, 1, TRAPS, TODAY),
    "phpbb": lambda: PhpBB(1, topics=40),
    "discourse": lambda: Discourse(1, topics=30),
    "shop": lambda: Shop(1, products=60),
    "discuz": lambda: Discuz(1, threads=40),
    "opencart": lambda: OpenCart(1, products=60),
    "wordpress": lambda: WordPress(1, posts=50),
    "archive": lambda: Archive(1, size=60),
    "catalogue": lambda: Catalogue(1, size=120),
    "items": lambda: Catalogue(1, size=120, by="query"),
    "pages": lambda: Pages(1, threads=25, most=30),
    "screws": lambda: Screws(1, size=120),
    "screws-query": lambda: Screws(1, size=120, by="query"),
    "weather": lambda: Weather(1, days=60),
    "weather-lists": lambda: Weather(1, days=60, ways="lists"),
    "weather-chain": lambda: Weather(1, days=60, ways="chain"),
    "timetable": lambda: Timetable(1, lines=6, stops=10),
}
BY_DAY = ["six", "discuz", "shop", "catalogue", "weather-chain"]
TRIED = cases(BY_DAY, [name for name in SITES if name not in BY_DAY])
HONEST = (
    "archive", "catalogue", "items", "pages", "screws", "screws-query", "weather",
    "weather-lists", "weather-chain", "timetable",
)  # fmt: skip


def guided(site: Site) -> tuple[Log, Counter[str]]:
    """Request only links that are worth it, like a visitor who knows them; return what was
    found."""
    log, met = Log(site), Counter[str]()
    queue, keys, seen = deque([site.start]), set[str](), set[str]()
    while queue:
        target = queue.popleft()
        if SESSION.sub("", target) in seen:
            continue
        seen.add(SESSION.sub("", target))
        reply = site.target(target)
        met[reply.worth if reply.kind != "missing" else "missing"] += 1
        if reply.worth == "trap" or reply.key in keys:
            continue
        keys.add(reply.key)
        log(Request("h", target, {}))
        found = links(ORIGIN + target, reply.body.encode())
        queue += [one.removeprefix(ORIGIN) for one in dict.fromkeys(found)]
    return log, met


def unguided(site: Site, requests: int) -> Log:
    """Request every URL once, the nearest first, like a visitor who knows nothing."""
    log = Log(site)
    queue, seen = deque([site.start]), {ORIGIN + site.start}
    while queue and len(log.asked) < requests:
        target = queue.popleft()
        answer = log(Request("h", target, {}))
        for one in links(ORIGIN + target, answer.body):
            if one not in seen:
                seen.add(one)
                queue.append(one.removeprefix(ORIGIN))
    return log


@pytest.mark.parametrize("name", TRIED)
def test_all_content_of_a_site_can_be_found_without_entering_a_trap(name: str) -> None:
    log, met = guided(SITES[name]())
    assert log.missing == []
    assert len(log.found) == len(log.site.content) > 40
    assert log.wasted == Counter()
    assert met["missing"] == 0


@pytest.mark.parametrize("name", TRIED)
def test_a_crawler_that_follows_every_link_ends_in_traps_if_the_site_has_any(name: str) -> None:
    log = unguided(SITES[name](), 300)
    wasted = log.wasted.total() / len(log.asked)
    assert wasted == 0 if name in HONEST else wasted > 0.3


@pytest.mark.parametrize("trap", TRAPS)
def test_a_site_with_one_kind_of_trap_has_no_other_kind(trap: str) -> None:
    log = unguided(Synthetic(1, [trap], TODAY), 150)
    assert set(log.wasted) == {trap}


@pytest.mark.parametrize("name", ["six", "phpbb", "discourse", "opencart", "wordpress"])
def test_the_same_random_seed_makes_the_same_site(name: str) -> None:
    one, other = (unguided(SITES[name](), 60) for _ in range(2))
    assert [asked.target for asked in one.asked] == [asked.target for asked in other.asked]


def test_content_counts_once_under_whichever_url_it_is_found() -> None:
    log = Log(PhpBB(1, topics=40))
    for target in ("/viewtopic.php?t=1&sid=ab", "/viewtopic.php?t=1", "/viewtopic.php?p=1&sid=ac"):
        log(Request("h", target, {}))
    assert log.found == {"topic 0 0"}
    assert [asked.wasted for asked in log.asked] == ["", "topic again", "post"]


# -- the wiki


def test_requests_to_a_wiki_are_classified_as_useful_or_wasted() -> None:
    titles = ["Delete", "The_long_day"]
    log = """
    [200]: GET /index.php?title=Special:UserLogin
    [302]: POST /index.php?title=Special:UserLogin
    [200]: GET /index.php/Main_Page
    [200]: GET /index.php/Delete
    [200]: GET /index.php?title=Delete&action=history
    [200]: GET /index.php?title=Delete&oldid=7
    [200]: GET /index.php/Special:WhatLinksHere/Delete
    [200]: GET /index.php?title=Delete
    [404]: GET /index.php/Talk:Delete
    [200]: GET /index.php/Category:Handbook
    """
    hits = [
        WikiHit(int(row[1:4]), *row[7:].split()) for row in map(str.strip, log.split("\n")) if row
    ]
    result = Result("wiki")
    judge(result, hits, titles)
    assert (result.requests, result.content, result.missing) == (8, 1, ["The_long_day"])
    assert result.useful == {"index": 2, "private page": 1}
    assert result.wasted == {
        "history": 1,
        "oldid": 1,
        "Special:WhatLinksHere": 1,
        "again": 1,
        "other page": 1,
    }
    assert result.notes["fetches until the last private page"] == 2
    assert result.why_not == []


def test_a_table_with_changed_rows_is_named() -> None:
    assert changed({"page": ["a", "b"]}, {"page": ["b", "a"]}) == []
    assert changed({"page": ["a", "b"]}, {"page": ["b"]}) == ["page: 0 rows more, 1 less: a"]
