"""Links of known software: named where its mark was seen, and guessed with care."""

from __future__ import annotations

import pytest

from greencrawl.worker.traps.known import known
from greencrawl.worker.traps.shapes import Shaper

KNOWN = known()
NUMBERS = {entry.name: entry.number for entry in KNOWN.software.values()}


def named(path: str, software: str = "") -> str:
    url = f"https://h.example{path}"
    return KNOWN.names(Shaper(2026).shape(url).params, url, NUMBERS.get(software, 0))


def test_each_entry_of_known_software_names_its_source_and_its_marks() -> None:
    assert len(KNOWN.software) >= 25
    for entry in KNOWN.software.values():
        assert len(entry.source) > 15, entry.name
        assert entry.generators or entry.marks, entry.name
        assert entry.params or entry.url, entry.name


@pytest.mark.parametrize(
    ("path", "software"),
    [
        ("/index.php?title=Foo&action=edit", "MediaWiki"),
        ("/index.php?title=Foo&oldid=12", "MediaWiki"),
        ("/w/Special:WhatLinksHere/Foo", "MediaWiki"),
        ("/index.php?title=Special%3AWhatLinksHere%2FFoo", "MediaWiki"),
        ("/w/Special:RecentChanges?limit=50", "MediaWiki"),
        ("/viewtopic.php?t=1&view=print", "phpBB"),
        ("/posting.php?mode=quote&p=7", "phpBB"),
        ("/t/a-topic/12/7", "Discourse"),
        ("/u/somebody/activity", "Discourse"),
        ("/shop/?add-to-cart=7", "WooCommerce"),
        ("/pub/?C=N;O=D", "mod_autoindex"),
    ],
)
def test_views_forms_and_lists_of_known_software_are_recognised(path: str, software: str) -> None:
    assert named(path, software)


@pytest.mark.parametrize(
    ("path", "software"),
    [
        ("/index.php?title=Delete", "MediaWiki"),
        ("/wiki/Edit", "MediaWiki"),
        ("/w/Special:AllPages?from=B", "MediaWiki"),
        ("/w/Special:RecentChanges", "MediaWiki"),
        ("/w/Special:Logarithms", "MediaWiki"),
        ("/viewtopic.php?f=1&t=2&start=15", "phpBB"),
        ("/t/a-topic/12", "Discourse"),
        ("/t/a-topic/12?page=2", "Discourse"),
        ("/u/somebody", "Discourse"),
        ("/product/search-light/", "WooCommerce"),
        ("/commit/?id=0a1b2c", "cgit"),
        ("/index.php?title=Foo&action=edit", "Discourse"),
    ],
)
def test_content_of_known_software_is_not_taken_for_a_view(path: str, software: str) -> None:
    assert named(path, software) == ""


def test_a_name_in_a_url_is_not_enough_without_a_mark_of_the_software() -> None:
    assert named("/index.php?title=Foo&action=edit")
    assert named("/index.php?oldid=12") == ""
    assert named("/list?order=name") == ""
    assert named("/w/Special:WhatLinksHere/Foo") == ""


@pytest.mark.parametrize(
    ("head", "software"),
    [
        (b'<meta name="generator" content="MediaWiki 1.39.7">', "MediaWiki"),
        (b"<meta content='Discourse 3.2 - https://github.com' name=generator>", "Discourse"),
        (b'<META NAME="Generator" CONTENT="WordPress 6.4"/>', "WordPress"),
        (b'<meta name="description" content="generator of MediaWiki">', ""),
        (b"<p>a generator</p>", ""),
        (b"", ""),
    ],
)
def test_the_software_of_a_page_is_read_from_its_generator(head: bytes, software: str) -> None:
    assert KNOWN.made_by(b"<html><head>" + head) == NUMBERS.get(software, 0)


def test_marks_of_several_kinds_of_software_in_one_page_are_ignored() -> None:
    assert KNOWN.marked(b"<body class=mw-content-text>") == NUMBERS["MediaWiki"]
    assert KNOWN.marked(b"<body class=mw-content-text> data-discourse-x") == 0


def test_software_is_recognised_by_a_combination_of_links() -> None:
    body = b'<a href="/latest">L</a><a href="/categories">C</a><a href="/c/a/1">A</a>'
    assert KNOWN.laid_out(body) == 0
    assert KNOWN.laid_out(body + b'<a href="/t/b/2">B</a>') == NUMBERS["Discourse"]
