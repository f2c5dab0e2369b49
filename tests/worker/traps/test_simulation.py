"""Whole crawls without a network: traps cost little, and sites that look like traps lose
nothing."""

from __future__ import annotations

from functools import cache

import pytest

from greencrawl.schema.records import CrawlOptions
from greencrawl.worker.traps.novelty import Novelty
from tests.support.effort import cases
from tests.worker.traps import pages, thin
from tests.worker.traps.pages import Site
from tests.worker.traps.simulation import Run, crawl

OFF = CrawlOptions(traps="off")

NORMAL: dict[str, Site] = {
    "manual": pages.manual(),
    "reference": pages.reference(),
    "archive": pages.archive(600),
    "catalogue": pages.catalogue(),
    "forum": pages.forum(),
    "forum in Chinese": pages.forum(language="zh"),
    "forum in Thai": pages.forum(language="th"),
    "photos": pages.photos(),
    "measurements": pages.weather(),
    "screws": pages.screws(),
    "screws that differ in their prices": pages.screws(figures=1),
    "screws whose lists have it all": pages.screws(listed=True),
    "weather by date": pages.days(chain=False),
    "weather by date in chains": pages.days(),
    "news": pages.good(400),
    "news in Chinese": pages.good(400, "zh"),
}


@cache
def unjudged(name: str) -> Run:
    return (
        crawl(NORMAL[name], options=OFF)
        if name in NORMAL
        else crawl(SEVERAL[name][0], 2500, options=OFF)
    )


WAYS = [(1, True, 16), (3, False, 1), (1, False, 1), (3, True, 1), (3, True, 16)]
"""(number of workers that take turns, whether near links come first, requests to the host at
once)"""


@pytest.mark.parametrize(
    ("name", "workers", "near", "slots"),
    cases(
        [(name, *WAYS[number % 2]) for number, name in enumerate(NORMAL)],
        [
            (name, *way)
            for number, name in enumerate(NORMAL)
            for way in (WAYS[1 - number % 2], *WAYS[2:])
        ],
    ),
)
def test_no_page_of_a_site_without_traps_is_parked(
    name: str, workers: int, near: bool, slots: int
) -> None:
    without = unjudged(name)
    session = 5 if slots == 1 else 32
    run = crawl(NORMAL[name], workers=workers, session=session, near=near, slots=slots)
    assert without.parked.total() == 0
    assert (run.wanted(), dict(run.parked)) == (without.wanted(), {})


@pytest.mark.parametrize("name", thin.HONEST)
def test_no_page_of_a_site_with_very_short_pages_is_parked(name: str) -> None:
    run = crawl(thin.HONEST[name], workers=3, session=5)
    without = crawl(thin.HONEST[name], options=CrawlOptions(traps="off"))
    assert (run.wanted(), dict(run.parked)) == (without.wanted(), {})


@pytest.mark.parametrize(
    ("name", "most"),
    [("tokens", 0.1), ("token folders", 0.2), ("facet folders", 0.45), ("soft missing", 0.1)],
)
def test_traps_of_unknown_software_are_found_by_their_yield(name: str, most: float) -> None:
    run = crawl(thin.NAMELESS[name], 2000)
    assert run.left == 0
    assert run.share <= most, dict(run.kinds)
    assert run.kinds["good"] == 226


def test_index_pages_are_not_parked_if_they_are_fetched_before_their_targets() -> None:
    run = crawl(NORMAL["manual"])
    assert (run.wanted(), dict(run.parked)) == (unjudged("manual").wanted(), {})


SEVERAL = {
    # name: (site, largest share of requests on traps)
    "six traps": (pages.six_traps(400), 0.25),
    "six traps in Chinese": (pages.six_traps(400, "zh"), 0.25),
    "six traps in Thai": (pages.six_traps(400, "th"), 0.25),
    "wiki": (pages.wiki(), 0.1),
    "board": (pages.board(), 0.25),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    cases(
        [(name, 3 - 2 * (number % 2)) for number, name in enumerate(SEVERAL)],
        [(name, 1 + 2 * (number % 2)) for number, name in enumerate(SEVERAL)],
    ),
)
def test_traps_take_a_bounded_share_of_requests_and_all_other_pages_are_fetched(
    name: str, workers: int
) -> None:
    site, most = SEVERAL[name]
    without = unjudged(name)
    run = crawl(site, 2500, workers=workers, session=8)
    assert run.left == 0, "the crawl ends"
    assert run.share <= most < without.share / 2, dict(run.kinds)
    good = {url for kind, url in without.fetched if not kind.startswith("trap")}
    assert good - run.wanted() == set()


@pytest.mark.parametrize("workers", cases([3], [1]))
def test_a_clock_and_a_counter_on_each_page_do_not_hide_traps(workers: int) -> None:
    run = crawl(pages.with_clock(pages.six_traps(400)), 2500, workers=workers, session=8)
    assert run.left == 0
    assert run.share <= 0.25, dict(run.kinds)
    assert run.kinds["good"] == 444


def test_a_clock_does_not_hide_a_trap_on_a_host_with_few_other_pages() -> None:
    def site(path: str, query: dict[str, str]) -> pages.Answer | None:
        if path == "/":
            return pages.page("good", "Home", pages.prose("home"), ["/calendar/2026/11/"])
        return pages.calendar(path, query) if path.startswith("/calendar") else None

    run = crawl(pages.with_clock(site), 500, session=8)
    assert run.left == 0
    assert run.traps < 40


def real(path: str) -> int:
    """Return the number of one of 300 pages; each links to two more and has no query."""
    last = path.rsplit("/", 1)[1]
    return int(last.removesuffix(".html")) if last else 0


def two_more(n: int, folder: str = "p") -> list[str]:
    return [f"/{folder}/{m}.html" for m in (2 * n + 1, 2 * n + 2)]


@pytest.mark.parametrize("workers", cases([3], [1]))
def test_a_proven_shape_is_parked_if_it_yields_nothing_later(workers: int) -> None:
    def site(path: str, query: dict[str, str]) -> pages.Answer | None:
        n = real(path)
        if n < 300:
            return pages.page("good", f"Page {n}", pages.prose(n), two_more(n))
        return pages.page("trap missing", "Not found", ["There is no such page."], two_more(n))

    run = crawl(site, 2000, workers=workers, session=8)
    assert run.left == 0
    assert run.kinds["good"] == 300
    assert run.share <= 0.25, dict(run.kinds)


@pytest.mark.parametrize("workers", cases([3], [1]))
def test_copies_of_unchecked_pages_count_as_new_once(workers: int) -> None:
    """Each print is in its own folder and links to other prints, without end."""

    def site(path: str, query: dict[str, str]) -> pages.Answer | None:
        n, folder = real(path), path.split("/")[1] if path != "/" else "p"
        there = two_more(n, folder) if n < 150 else []
        if n % 10 == 0 and n:
            there.append(f"/{folder}-print/{n}.html")
        kind = "good" if folder == "p" else "trap print"
        return pages.page(kind, f"Page {n}", pages.prose(n), there) if n < 300 else None

    run = crawl(site, 2000, workers=workers, session=8)
    assert run.kinds["good"] == 300
    assert run.share <= 0.5, dict(run.kinds)


def test_private_pages_of_a_wiki_come_within_120_requests() -> None:
    run = crawl(pages.wiki(), 120)
    assert run.kinds["private"] == 30
    run = crawl(pages.wiki(marked=False), 3000)
    assert (run.kinds["private"], run.left) == (30, 0)


def of(run: Run, part: str) -> list[str]:
    return [shape for shape in run.parked if part in shape]


def test_parked_urls_have_their_shape_and_the_reason() -> None:
    run = crawl(pages.six_traps())
    shape = f"{pages.ORIGIN}/item/{{n}}"
    assert shape in run.parked
    assert "brought nothing new but more links of its kind" in run.why[shape]
    assert any("with the id of another session" in why for why in run.why.values())
    assert max(map(len, run.why.values())) <= 300
    wiki = crawl(pages.wiki())
    assert "MediaWiki: action=edit" in wiki.why[of(wiki, "action=edit")[0]]


def test_a_released_shape_is_not_parked_again() -> None:
    shape = f"{pages.ORIGIN}/item/{{n}}"
    run = crawl(pages.six_traps(60), 1500, released=(shape,))
    assert run.kinds["trap equal"] > 300
    assert shape not in run.parked
    assert of(run, "/events")
    assert crawl(pages.six_traps(60), 1500, released=("*",)).parked.total() == 0


def test_a_host_and_a_shape_have_their_budgets() -> None:
    run = crawl(pages.good(300), options=CrawlOptions(host_pages=50), workers=2)
    assert sum(run.kinds.values()) == 50
    (shape,) = run.parked
    assert (shape, "host_pages" in run.why[shape]) == (f"{pages.ORIGIN}/{{all}}", True)
    run = crawl(pages.good(300), options=CrawlOptions(shape_pages=20, traps="off"))
    assert run.parked
    assert all("shape_pages" in why for why in run.why.values())
    assert max(run.parked.values()) > 20


def test_a_shape_is_no_longer_parked_when_it_yields_later() -> None:
    def site(path: str, query: dict[str, str]) -> pages.Answer | None:
        n = 0 if path == "/" else int(path.split("/")[2])
        there = [f"/entry/{m}" for m in range(20 * n + 1, 20 * n + 21)]
        text = [] if n < 60 else pages.prose(n, 100)
        return pages.page("content", "Entry", [*text, "An entry"], there)

    run = crawl(site, 1500)
    assert run.parked
    assert run.kinds["content"] > 1000
    assert run.parked.total() < 120, "what was parked until then stays so, until it is released"


def test_pages_shown_to_another_crawl_do_not_count_in_this_one() -> None:
    shown = Novelty(None, 1 << 18, 1 << 17)
    first, second = (
        crawl(pages.six_traps(60), 2000, shown=shown, created_ms=when) for when in (1, 2)
    )
    assert first.left == second.left == 0
    assert second.kinds == first.kinds


def test_pages_that_are_fetched_again_do_not_count_against_their_shapes() -> None:
    again = crawl(NORMAL["archive"], session=5, twice=True)
    assert (again.wanted(), dict(again.parked)) == (unjudged("archive").wanted(), {})


def test_a_record_is_short_however_a_host_looks() -> None:
    for site in (pages.six_traps(), pages.board(), pages.shop(), pages.wiki(marked=False)):
        run = crawl(site, 3000, workers=2, near=False)
        assert 0 < max(map(len, run.records)) <= 4096
