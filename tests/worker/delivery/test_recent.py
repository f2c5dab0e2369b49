"""Recent admissions, and which of several admissions of a URL counts."""

from __future__ import annotations

from itertools import permutations

from greencrawl.schema.records import Admission, TaskKind
from greencrawl.worker.delivery.recent import Recent

URL = "http://h/sitemap.xml"


def test_a_url_found_as_several_kinds_of_task_is_admitted_as_the_kind_that_finds_most() -> None:
    ways = [Admission(URL, 1, kind=kind) for kind in TaskKind if kind.has_row]
    for order in permutations(ways):
        assert [link.kind for link in Recent().fresh(order)] == [TaskKind.SITEMAP]
    page, guess = Admission(URL, 1), Admission(URL, 1, kind=TaskKind.SITEMAP_GUESS)
    assert Recent().fresh([guess, page]) == [guess]
    image = Admission(URL, 0, kind=TaskKind.REQUISITE)
    assert Recent().fresh([page, image]) == [page]


def test_each_url_is_fresh_once() -> None:
    recent = Recent()
    links = [Admission("http://h/a"), Admission("http://h/b"), Admission("http://h/a")]
    assert {link.url for link in recent.fresh(links)} == {"http://h/a", "http://h/b"}
    recent.add(links)
    assert recent.fresh(links) == []


def test_recent_urls_beyond_a_smaller_size_are_forgotten() -> None:
    recent = Recent(size=4)
    recent.add(Admission(f"http://h/old{n}") for n in range(5))
    recent.add(Admission(f"http://h/new{n}") for n in range(3))
    assert len(recent) == 8
    recent.fit(3)
    assert len(recent) == 3, "of both generations the older had more"
    recent.fit(2)
    assert len(recent) == 0
