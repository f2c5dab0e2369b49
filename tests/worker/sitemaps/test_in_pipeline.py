"""Sitemaps in the pipeline: which tasks fetch them, where they lead, and how they end."""

from __future__ import annotations

import gzip
from pathlib import Path

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.schema.net.scope import compile
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Crawl,
    CrawlOptions,
    Done,
    Failure,
    FailureKind,
    Fetched,
    Task,
    TaskKind,
)
from greencrawl.worker.kernels.sitemap import MAX_NESTED
from greencrawl.worker.retry import GIVE_UP_FAILURES
from greencrawl.worker.sitemaps.origins import MAX_ELSEWHERE, MAX_NAMED, Origins
from greencrawl.worker.sitemaps.unpacking import MAX_BYTES
from tests.worker.test_pipeline import World, html, status

SITEMAP = TaskKind.SITEMAP
LIST = b"<urlset><url><loc>/a</loc></url><url><loc>http://o/b</loc></url></urlset>"


def xml(body: bytes, kind: str = "application/xml") -> Fetched:
    return Fetched("", 200, {"content-type": kind}, body, wire_bytes=len(body))


def robots(*lines: str) -> Fetched:
    body = "\n".join(lines).encode()
    return Fetched("", 200, {"content-type": "text/plain"}, body, wire_bytes=len(body))


def asked(url: str = "http://h/s.xml", depth: int = 1, redirects: int = 0) -> Task:
    return Task(1, url, depth, redirects=redirects, kind=SITEMAP)


def guessed() -> Task:
    return Task(1, "http://h/sitemap.xml", 1, kind=TaskKind.SITEMAP_GUESS)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.set(sitemaps="on")
    return made


def links(world: World) -> list[Admission]:
    page = world.stores.results[-1].page
    assert page is not None
    return page.links


# --- which pages bring sitemaps
# --------------------------------------------------------------------------


def test_the_first_page_of_an_origin_brings_the_sitemaps_that_robots_txt_names(
    world: World,
) -> None:
    world.site.answers["http://h/robots.txt"] = robots(
        "Sitemap: http://cdn.other/s.xml", "sitemap: /t.xml", "Sitemap: mailto:x"
    )
    world.site.answers |= {"http://h/": html('<a href="/a">'), "http://h/b": html()}
    pipeline = world.pipeline()
    world.run("http://h/", pipeline=pipeline)
    assert links(world) == [
        Admission("http://cdn.other/s.xml", 1, 0, kind=SITEMAP),
        Admission("http://h/t.xml", 1, 0, kind=SITEMAP),
        Admission("http://h/a", 1, 1),
    ]
    world.run("http://h/b", pipeline=pipeline)
    assert links(world) == []
    world.run("http://h/b")  # another process does not know that
    assert len(links(world)) == 2


def test_sitemap_xml_is_tried_if_robots_txt_names_no_sitemap(world: World) -> None:
    world.site.answers["http://h/"] = html()
    world.run("http://h/")
    assert links(world) == [Admission("http://h/sitemap.xml", 1, 1, kind=TaskKind.SITEMAP_GUESS)]


def test_no_sitemap_comes_from_a_redirect_a_page_at_the_last_depth_or_a_crawl_without_sitemaps(
    world: World,
) -> None:
    world.site.answers |= {"http://h/": html(), "http://h/r": status(301, location="http://h/")}
    world.run("http://h/r")
    assert [link.kind for link in links(world)] == [TaskKind.PAGE]
    world.set(sitemaps="on", depth=3)
    world.run(Task(1, "http://h/", 3))
    assert links(world) == []
    world.set(sitemaps="off")
    world.run("http://h/")
    assert links(world) == []


def test_only_seeds_bring_sitemaps_in_a_crawl_with_scope_any(world: World) -> None:
    world.set(sitemaps="on", scope="any")
    world.site.answers["http://h/"] = html()
    world.run(Task(1, "http://h/", 1))
    assert links(world) == []
    world.run("http://h/")
    assert len(links(world)) == 1


def test_an_origin_brings_a_bounded_number_of_sitemaps() -> None:
    crawl = Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("h",))
    named = tuple(f"http://h/{n}.xml" for n in range(MAX_NAMED + 5))
    found = Origins().links(crawl, Task(1, "http://h/"), lambda _: named)
    assert len(found) == MAX_NAMED
    named = (*(f"http://other{n}.org/s.xml" for n in range(99)), "http://h/last.xml")
    found = Origins().links(crawl, Task(1, "http://h/"), lambda _: named)
    assert len(found) == MAX_ELSEWHERE + 1
    assert found[-1].url == "http://h/last.xml"
    origins = Origins()
    assert origins.links(crawl, Task(1, "http://h/"), lambda _: None) == []  # not known yet
    assert len(origins.links(crawl, Task(1, "http://h/"), lambda _: ())) == 1
    assert origins.links(crawl, Task(2, "http://h/other"), lambda _: ()) == []


def test_sitemaps_come_again_with_the_page_that_brought_them_first() -> None:
    """The page may have been beyond the limit; it is stored after somebody raised the limit."""
    crawl, origins = Crawl(id=1, name="t", state="active", options=CrawlOptions()), Origins()
    first = origins.links(crawl, Task(1, "http://h/"), lambda _: ("http://h/s.xml",))
    assert origins.links(crawl, Task(2, "http://h/x"), lambda _: ("http://h/s.xml",)) == []
    assert origins.links(crawl, Task(3, "http://h/"), lambda _: ("http://h/s.xml",)) == first


# --- where sitemaps lead ------------------------------------------------------------------------


def test_urls_of_a_sitemap_have_its_depth_and_meet_the_scope_of_the_crawl(
    world: World,
) -> None:
    world.site.answers["http://h/s.xml"] = xml(LIST)
    world.run(asked())
    assert links(world) == [Admission("http://h/a", 1, 1)]
    assert world.result.outcome == Done(stored=True, bytes=len(LIST))
    assert world.result.page is not None
    assert world.result.page.body == LIST


def test_urls_of_a_seed_that_is_a_sitemap_are_one_link_away(world: World) -> None:
    world.site.answers["http://h/s.xml"] = xml(LIST)
    for sitemaps in ("on", "off"):
        world.set(sitemaps=sitemaps)
        world.run("http://h/s.xml")
        assert links(world) == [Admission("http://h/a", 1, 1)], sitemaps
    world.set(sitemaps="on", depth=0)
    world.run("http://h/s.xml")
    assert links(world) == []


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/octet-stream", ""])
def test_a_seed_is_read_as_a_sitemap_whatever_its_content_type_says(
    world: World, kind: str
) -> None:
    world.site.answers["http://h/sitemap"] = xml(gzip.compress(LIST), kind)
    world.run("http://h/sitemap")
    assert links(world) == [Admission("http://h/a", 1, 1)]


def test_a_list_of_lines_counts_as_a_sitemap_only_by_its_name(world: World) -> None:
    world.site.answers["http://h/sitemap.txt"] = xml(b"http://h/a\n", "text/plain")
    world.site.answers["http://h/notes"] = xml(b"http://h/a\n", "text/plain")
    world.run("http://h/sitemap.txt")
    assert links(world) == [Admission("http://h/a", 1, 1)]
    world.run("http://h/notes")
    assert all(link.kind == TaskKind.SITEMAP_GUESS for link in links(world))


def test_a_sitemap_that_a_page_links_to_is_read_unless_sitemaps_are_off(world: World) -> None:
    world.site.answers["http://h/s.xml"] = xml(LIST)
    world.run(Task(1, "http://h/s.xml", 2))
    assert links(world) == [Admission("http://h/a", 3, 3)]
    world.set(sitemaps="off")
    world.run(Task(1, "http://h/s.xml", 2))
    assert links(world) == []


def test_an_index_leads_only_to_sitemaps_of_its_site_that_are_not_excluded(world: World) -> None:
    world.set(sitemaps="on", exclude=("secret",))
    names = ("/1.xml", "http://www.h/2.xml", "http://other/3.xml", "/secret.xml", "/s.xml")
    body = b"".join(f"<sitemap><loc>{name}</loc></sitemap>".encode() for name in names)
    world.site.answers["http://h/s.xml"] = xml(b"<sitemapindex>" + body + b"</sitemapindex>")
    world.run(asked())
    assert links(world) == [Admission("http://h/1.xml", 1, 1, INDEX_STEP, SITEMAP)]
    world.run("http://h/s.xml")
    assert links(world) == [Admission("http://h/1.xml", 1, 1, INDEX_STEP, SITEMAP)]


def test_nested_indexes_of_sitemaps_are_read_up_to_a_bound(world: World) -> None:
    body = b"<sitemapindex><sitemap><loc>/t.xml</loc></sitemap></sitemapindex>"
    world.site.answers["http://h/s.xml"] = xml(body)
    world.run(asked(redirects=(MAX_NESTED - 1) * INDEX_STEP + 7))
    assert [link.redirects for link in links(world)] == [MAX_NESTED * INDEX_STEP]
    world.run(asked(redirects=MAX_NESTED * INDEX_STEP))
    assert links(world) == []
    said = [attempt.detail for attempt in world.stores.results[-1].attempts]
    assert said[0] == f"1 sitemaps in more than {MAX_NESTED} indexes are not read"


def test_a_sitemap_that_is_redirected_within_its_site_stays_a_sitemap(world: World) -> None:
    world.site.answers["http://h/s.xml"] = status(301, location="/t.xml")
    world.run(asked(redirects=INDEX_STEP + 3))
    assert links(world) == [Admission("http://h/t.xml", 1, 0, INDEX_STEP + 4, SITEMAP)]
    world.site.answers["http://h/s.xml"] = status(301, location="http://other/t.xml")
    world.run(asked())
    assert links(world) == []
    world.site.answers["http://h/s.xml"] = status(301, location="/t.xml")
    world.run(asked(redirects=10))
    assert world.stores.results[-1].page is None


def test_a_sitemap_may_lie_outside_the_scope_but_not_be_excluded() -> None:
    crawl = Crawl(
        id=1, name="t", state="active", roots=("h",),
        options=CrawlOptions(include=("/docs/",), exclude=("private",), depth=2),
    )  # fmt: skip
    rules = compile(crawl)
    assert rules.judge(asked("http://o/s.xml"), "http://o/s.xml") is None
    assert rules.judge(asked("http://o/s.xml"), "http://www.o/s.xml") is not None
    assert rules.judge(asked("http://o.org/s.xml"), "http://www.o.org/s.xml") is None
    assert rules.judge(asked("http://o/s.xml"), "http://h/s.xml") is None
    assert rules.judge(asked("http://o/private.xml"), "http://o/private.xml") is not None
    assert rules.judge(asked(depth=3), "http://h/s.xml") == "depth 3 > 2"


def test_robots_txt_holds_for_sitemaps(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = robots("User-agent: *", "Disallow: /s")
    world.run(asked())
    assert world.site.pages == []
    assert [final.state for final in world.result.finals] == ["excluded"]


# --- how tasks of sitemaps end
# ---------------------------------------------------------------------


def test_a_guessed_sitemap_that_does_not_exist_leaves_no_row(world: World) -> None:
    place = "http://h/sitemap.xml"
    answers = [status(404), status(403), status(301, location=place), xml(b"{}", "text/json")]
    for answer in answers:
        world.site.answers[place] = answer
        world.stores.results.clear()
        world.run(guessed())
        result = world.result
        assert result.outcome == Done()
        assert (result.page, result.finals, result.attempts) == (None, [], [])
    world.site.answers["http://h/robots.txt"] = robots("User-agent: *", "Disallow: /")
    world.stores.results.clear()
    world.run(guessed())
    assert (world.result.outcome, world.result.finals) == (Done(), [])


def test_a_named_sitemap_at_the_usual_place_is_no_guess(world: World) -> None:
    world.site.answers["http://h/sitemap.xml"] = status(404)
    world.run(asked("http://h/sitemap.xml"))
    assert [final.kind for final in world.result.finals] == ["gone"]


@pytest.mark.parametrize("wait", ["", "20"])
def test_a_failed_guess_blocks_its_host_only_for_its_retry_after(world: World, wait: str) -> None:
    headers = {"retry-after": wait} if wait else {}
    world.site.answers["http://h/sitemap.xml"] = status(503, **headers)
    close = world.run(guessed())
    assert (world.result.outcome, world.result.finals) == (Done(), [])
    assert close is not None
    rests = ("unavailable", 20.0) if wait else ("", 0.0)
    assert (close.report.failed, close.report.block) == rests


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(502), ("server_error", "HTTP 502", 502, None)),
        (status(503, **{"retry-after": "9"}), ("unavailable", "HTTP 503", 503, None)),
        (Failure(FailureKind.TIMEOUT, "too late"), ("timeout", "too late", 0, None)),
    ],
)
def test_a_guess_that_fails_for_now_leaves_an_attempt_with_the_failure(
    world: World, answer: Fetched | Failure, said: tuple[object, ...]
) -> None:
    world.site.answers["http://h/sitemap.xml"] = answer
    world.run(guessed())
    assert (world.result.outcome, world.result.finals) == (Done(), [])
    [one] = world.result.attempts
    assert (one.kind, one.detail, one.code, one.wait) == said


def test_a_guess_at_a_host_that_is_given_up_leaves_an_attempt_with_the_reason(world: World) -> None:
    world.site.answers["http://h/a"] = Failure(FailureKind.REFUSED, "refused")
    world.run(Task(1, "http://h/a", 1), replace(guessed(), number=2), failures=GIVE_UP_FAILURES)
    _, guess = world.stores.results
    assert (guess.outcome, guess.finals) == (Done(), [])
    assert [one.kind for one in guess.attempts] == ["refused"]


def test_a_page_at_the_usual_place_of_a_sitemap_is_read_as_a_page(
    world: World,
) -> None:
    world.site.answers["http://h/sitemap.xml"] = html("<a href=/only-here>all</a>")
    world.run(guessed())
    assert Admission("http://h/only-here", 2, 2) in links(world)


def test_a_dtd_cannot_add_attributes(world: World) -> None:
    many = b" ".join(b'a%d CDATA "x"' % number for number in range(2000))
    body = b"<!DOCTYPE urlset [<!ENTITY e '<urlset>'><!ATTLIST u " + many + b">]><urlset>"
    world.site.answers["http://h/s.xml"] = xml(body + b"<u/>" * 2000 + b"</urlset>")
    world.run(asked())
    assert [final.detail for final in world.result.finals] == ["its DTD declares attributes"]


def test_a_sitemap_that_takes_too_long_is_ended_and_its_urls_so_far_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.process.guarded.SITEMAP_SECONDS", 0.05)
    body = b"".join(b"<url><loc>/%d</loc></url>" % number for number in range(40_000))
    world.site.answers["http://h/s.xml"] = xml(b"<urlset>" + body + b"</urlset>")
    world.run(asked())
    said = " ".join(attempt.detail for attempt in world.result.attempts)
    assert "after 0.05 s of CPU no more was read" in said
    assert 0 < len(links(world)) < 40_000, "what was read counts"


def test_a_named_sitemap_that_cannot_be_read_is_a_dead_letter_with_its_reason(
    world: World,
) -> None:
    said = "neither a sitemap, nor a feed, nor a list of URLs"
    for answer, why in (
        (xml(b"{}", "application/json"), said),
        (xml(b"<urlset><url></x>"), "its XML is broken in line 1: mismatched tag"),
    ):
        world.site.answers["http://h/s.xml"] = answer
        world.stores.results.clear()
        world.run(asked())
        assert [(f.state, f.kind, f.detail) for f in world.result.finals] == [
            ("dead", FailureKind.SITEMAP, why)
        ]


def test_a_named_sitemap_that_is_a_page_of_the_crawl_is_read_as_a_page(world: World) -> None:
    world.site.answers["http://h/home"] = html('<a href="/a">')
    world.run(asked("http://h/home", redirects=1))
    assert Admission("http://h/a", 2, 2) in links(world)
    world.site.answers["http://o/home"] = html('<a href="/a">')
    world.stores.results.clear()
    world.run(asked("http://o/home", redirects=1), host="o")
    assert [final.kind for final in world.result.finals] == [FailureKind.SITEMAP]


def test_the_fault_of_a_sitemap_that_was_read_in_part_is_noted(world: World) -> None:
    world.site.answers["http://h/s.xml"] = xml(b"<urlset><url><loc>/a</loc></url></nothing>")
    world.run(asked())
    assert links(world) == [Admission("http://h/a", 1, 1)]
    noted = world.result.attempts[0]
    assert (noted.kind, noted.detail) == (
        "sitemap", "its XML is broken in line 1: mismatched tag",
    )  # fmt: skip
    assert world.result.outcome == Done(stored=True, bytes=42, kind="sitemap")


def test_a_page_with_a_broken_feed_is_kept_as_a_page(world: World) -> None:
    world.site.answers["http://h/feed"] = xml(b"<rss><channel></x>")
    world.run(Task(1, "http://h/feed", 1))
    assert world.result.page is not None
    assert world.result.attempts[0].detail == "its XML is broken in line 1: mismatched tag"


def test_a_sitemap_may_be_larger_than_a_page_but_no_more_of_it_is_kept(world: World) -> None:
    world.set(sitemaps="on", max_body_bytes=2000)
    caps = []
    fetch = world.site.fetch

    def noting(url: str, headers: object, **given: object) -> object:
        caps.append(given["max_body_bytes"])
        return fetch(url, headers, **given)  # type: ignore[arg-type]

    world.site.fetch = noting  # type: ignore[method-assign,assignment]
    body = b"<urlset>" + b" " * 3000 + b"<url><loc>/a</loc></url></urlset>"
    world.site.answers |= {"http://h/s.xml": xml(body), "http://h/": html("x" * 3000)}
    world.run(asked())
    assert links(world) == [Admission("http://h/a", 1, 1)]
    page = world.result.page
    assert page is not None
    assert (len(page.body), page.truncated) == (2000, True)
    world.run("http://h/sitemap.html", "http://h/")
    assert caps[1:] == [MAX_BYTES, MAX_BYTES, 2000]


def test_a_compressed_sitemap_is_read_and_kept_unpacked(world: World) -> None:
    world.set(sitemaps="on", max_body_bytes=2000, scope="host")
    plain = b"<urlset>" + b" " * 3000 + b"<url><loc>/a</loc></url></urlset>"
    page = b"<a href=/b>b</a><p>" + b"x" * 3000
    world.site.answers |= {
        "http://h/s.xml": replace(xml(gzip.compress(plain)), packed=len(plain)),
        "http://h/t.xml": replace(html(), body=gzip.compress(page), packed=len(page)),
    }
    world.run(asked())
    row = world.result.page
    assert row is not None
    assert (row.body, row.truncated) == (plain[:2000], True)
    assert links(world) == [Admission("http://h/a", 1, 1)]
    world.run(asked("http://h/t.xml"))
    row = world.stores.results[-1].page
    assert row is not None
    assert (row.body, row.truncated) == (page[:2000], True)
    assert Admission("http://h/b", 2, 2) in links(world)
    assert world.memory_budget.bytes == 0


def test_sitemaps_are_not_judged_as_traps(world: World) -> None:
    world.set(sitemaps="on", traps="on", shape_pages=1, depth=5)
    world.site.answers |= {f"http://h/{n}.xml": xml(LIST) for n in range(60)}
    world.run(*(replace(asked(f"http://h/{n}.xml"), number=n) for n in range(60)))
    assert [result.finals for result in world.stores.results] == [[]] * 60


def test_sitemaps_may_use_half_of_the_host_pages_of_their_host(
    world: World,
) -> None:
    world.set(sitemaps="on", host_pages=5, depth=5)
    urls = [f"http://h/{n}.xml" for n in range(5)]
    world.site.answers |= {url: xml(LIST) for url in urls}
    world.site.answers |= {f"http://h/{n}": html() for n in range(3)}
    seed, index = Task(1, urls[0], 0, kind=SITEMAP), [asked(url) for url in urls[1:]]
    pages = [Task(1, f"http://h/{n}", 1) for n in range(3)]
    tasks = [seed, *index, guessed(), *pages]
    world.run(*(replace(task, number=n) for n, task in enumerate(tasks)))
    states = [[final.state for final in result.finals] for result in world.stores.results]
    parked = ["parked"]
    assert states == [[], [], [], parked, parked, [], [], [], parked]
    assert "http://h/sitemap.xml" not in world.site.pages, "nor is a guess made"
    [final] = world.stores.results[3].finals
    assert (final.task, final.shape) == (SITEMAP, "http://h/{all}")
    assert final.detail == "3 URLs of this host were fetched (half of host_pages)"


def test_sitemaps_of_a_released_host_are_fetched_beyond_host_pages(world: World) -> None:
    world.set(sitemaps="on", host_pages=1, depth=5)
    world.stores.crawl_ = replace(world.stores.crawl_, released=("http://h/{all}",))
    urls = [f"http://h/{n}.xml" for n in range(3)]
    world.site.answers |= {url: xml(LIST) for url in urls}
    world.run(*(replace(asked(url), number=n) for n, url in enumerate(urls)))
    assert [result.finals for result in world.stores.results] == [[], [], []]


def test_a_sitemap_that_is_a_suspect_is_read_in_quarantine(world: World) -> None:
    world.site.answers["http://h/s.xml"] = xml(LIST)
    world.run(Task(1, "http://h/s.xml", 1, kind=SITEMAP, deliveries=4))
    assert world.quarantine.read_ == ["http://h/s.xml"]


def test_a_host_is_charged_for_a_bomb_and_not_for_an_honest_sitemap(world: World) -> None:
    bomb = gzip.compress(b"<urlset><url><loc>/a</loc></url>" + b"<a></a>" * 700_000 + b"</urlset>")
    honest = b"".join(b"<url><loc>http://o/%d</loc></url>" % n for n in range(20_000))
    honest = gzip.compress(b"<urlset>" + honest + b"</urlset>")
    world.site.answers |= {"http://h/s.xml": xml(bomb), "http://h/t.xml": xml(honest)}
    world.run(asked("http://h/t.xml"))
    assert world.result.outcome == Done(stored=True, bytes=len(honest))
    world.stores.results.clear()
    close = world.run(asked(), asked("http://h/t.xml"))
    assert [result.outcome.kind for result in world.stores.results] == ["costly", "ok"]  # type: ignore[union-attr]
    assert "were granted" in world.stores.results[0].attempts[0].detail
    assert close is not None
    assert close.report.delay >= 1, "its next request comes so much later after the last"


def test_other_greenlets_run_while_a_sitemap_is_read(world: World) -> None:
    body = b"".join(b"<url><loc>/%d</loc></url>" % n for n in range(20_000))
    world.site.answers["http://h/s.xml"] = xml(b"<urlset>" + body + b"</urlset>")
    reading = gevent.spawn(world.run, asked())
    turns = 0
    while not reading.ready():
        turns += 1
        gevent.sleep(0)
    assert len(links(world)) == 20_000
    assert turns > 10
