"""Settled shapes: the judge need not look at their URLs."""

from __future__ import annotations

import pytest

from greencrawl.schema.records import Admission, Crawl, CrawlOptions
from greencrawl.worker.traps.evidence import Evidence
from greencrawl.worker.traps.hosts import DONE, LINKS, PROVEN, WARM, HostTraps
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.record import pack
from greencrawl.worker.traps.shapes import Shaper
from greencrawl.worker.traps.traps import Traps
from greencrawl.worker.traps.yields import Yields

NEW, POOR = Evidence(new=1.0), Evidence(new=0.0, own=3)


def settled(*urls: str) -> HostTraps:
    state = HostTraps(1, Shaper(2026), Yields())
    for url in urls:
        shape = state.shape(url)
        one = state.yields.begin(shape.name, shape.section, 0.0)
        for _ in range(10):
            state.yields.judge(one, shape.section, NEW)
    state.seen = WARM
    return state


def test_a_shape_that_has_yielded_often_is_settled() -> None:
    state = settled("https://h/a/one.html")
    for url in ("https://h/a/one.html", "https://h/a/two-more.html"):
        assert state.settled_shape(url) == state.shape(url)
    for url in ("https://h/a/one", "https://h/a/7.html", "https://h/a/one.html?y=1"):
        assert state.settled_shape(url) is None


def test_no_shape_is_settled_on_a_new_host_or_one_with_poor_shapes_or_session_ids() -> None:
    url, other = "https://h/a/one.html", "https://h/b/2"
    state = settled(url)
    shape = state.settled_shape(url)
    assert shape is not None
    state.seen = WARM - 1
    assert state.settled_shape(url) is None
    state.seen = WARM
    state.software = 7
    assert state.settled_shape(url) is None
    state.software = 0
    one = state.yields.sums[shape.name]
    while one.text > 0.5:
        state.yields.judge(one, shape.section, Evidence(new=0.3))
    assert state.settled_shape(url) is None
    state = settled(url)
    found = state.yields.begin(state.shape(other).name, "https://h/b", 0.0)
    while not found.is_poor:
        state.yields.judge(found, "https://h/b", POOR)
    assert state.settled_shape(url) is None
    state = settled(url)
    assert state.shape("https://h/c;jsessionid=0123456789ABCDEF").hint == "session"
    assert state.settled_shape(url) is None


def test_a_copy_waits_for_its_page_until_that_was_fetched() -> None:
    shown, state = Novelty(None, 1 << 14, 1 << 12), HostTraps(1, Shaper(2026), Yields())
    url = "https://h/a"
    assert not state.waits(shown, url)
    shown.fresh([url], 1 + LINKS)
    assert state.waits(shown, url)
    shown.fresh([url], 1 + DONE)
    assert not state.waits(shown, url)


def test_a_proven_shape_is_checked_only_now_and_then() -> None:
    url = "https://h/a/one.html"
    state = settled(url)
    shape = state.shape(url)
    one = state.yields.sums[shape.name]
    assert not state.passes(shape), "ten pages prove nothing"
    while one.yields < PROVEN:
        state.yields.judge(one, shape.section, NEW)
    shown, passed = Novelty(None, 1 << 14, 1 << 12), 0
    for n in range(40):
        passes = state.passes(shape)
        passed += passes
        if passes:
            state.pass_by(shown, shape, f"https://h/a/{n}.html", [])
        else:
            state.yields.judge(one, shape.section, NEW)
    assert passed == 30
    assert one.pages == PROVEN + 40
    one.pages = 1
    assert state.passes(shape)
    state.yields.judge(one, shape.section, Evidence(new=0.0))
    one.pages = 1
    assert not state.passes(shape), "one page that says nothing ends it"


def test_every_page_of_a_proven_shape_is_checked_if_its_links_have_queries() -> None:
    url = "https://h/a/one.html"
    state = settled(url)
    shape = state.shape(url)
    one = state.yields.sums[shape.name]
    one.yields, one.pages, one.text = PROVEN, PROVEN + 1, 1.0
    shown = Novelty(None, 1 << 14, 1 << 12)
    for link, passes in (("https://h/a/two.html", True), ("https://h/a/two.html?p=1", False)):
        assert state.passes(shape)
        state.pass_by(shown, shape, f"{url}/{passes}", [Admission(link, 1, 1)])
        one.pages = PROVEN + 1
        assert state.passes(shape) == passes


def test_an_unchecked_page_that_is_fetched_again_counts_once() -> None:
    url = "https://h/a/one.html"
    state = settled(url)
    shape = state.shape(url)
    shown = Novelty(None, 1 << 14, 1 << 12)
    pages = state.yields.sums[shape.name].pages
    for _ in range(2):
        state.pass_by(shown, shape, url, [])
    assert state.yields.sums[shape.name].pages == pages + 1


@pytest.mark.parametrize("asks", [True, False])
def test_the_record_of_a_host_says_whether_its_links_have_queries(asks: bool) -> None:
    state = settled("https://h/a/one.html")
    state.yields.pages = 10
    record = pack(state.yields, {}, 0, asks)
    crawl = Crawl(id=1, name="c", state="active", options=CrawlOptions(traps="on"))
    other = Traps().open(crawl, "h", record)
    assert other is not None
    assert (other.yields.pages, other.asks) == (10, asks)
