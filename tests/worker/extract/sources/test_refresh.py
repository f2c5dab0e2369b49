"""The target of a refresh, in all the ways in which browsers read it."""

from __future__ import annotations

from time import process_time

import pytest

from greencrawl.worker.extract.refresh import refresh_reference

LEADS = {
    "0;url=/x": "/x",
    "0; URL = /x": "/x",
    "5 , url='/x' ": "/x",
    '0;url="/x"tail': "/x",
    "0;url='/x": "/x",
    "0;/x": "/x",
    "0 /x": "/x",
    "0,/x": "/x",
    " \t\n5\f;\r url=/x ": "/x",
    "1.5;url=/x": "/x",
    ".5;url=/x": "/x",
    "...;url=/x": "/x",
    "5...;url=/x": "/x",
    "0;'/x'": "/x",
    '0;"/x" tail': "/x",
    "0;uRl=/x": "/x",
    "0;url=/x?a=1;b=2": "/x?a=1;b=2",
    "0;url=x y": "x y",
    "0;;/x": ";/x",
    "0;url": "url",
    "0;urls=/x": "urls=/x",
    "0;url:/x": "url:/x",
    "0;u=/x": "u=/x",
    "0;url==/x": "=/x",
    "0;url='a\"b'c": 'a"b',
}
NOWHERE = [
    "", " ", "0", "30 ", "5.", ";url=/x", "url=/x", "/x", "x;url=/x", "-1;url=/x", "0x;url=/x",
    "0url=/x", "0;", "0;url=", "0;url=''", '0;url=""x', "\u0665;url=/x", "\xa00;url=/x",
    "0\x0b;url=/x", "+0;url=/x",
]  # fmt: skip


@pytest.mark.parametrize("content", LEADS)
def test_refresh_leads_where_browsers_go(content: str) -> None:
    assert refresh_reference(content) == LEADS[content]


@pytest.mark.parametrize("content", NOWHERE)
def test_refresh_without_a_valid_target_leads_nowhere(content: str) -> None:
    assert refresh_reference(content) is None


@pytest.mark.parametrize("piece", ["0", ".", " ", ";", "0;", "0;url", "0;url ", "0;url='", "0;u="])
def test_hostile_refresh_is_read_in_bounded_time(piece: str) -> None:
    began = process_time()
    refresh_reference(piece * (1_000_000 // len(piece)))
    refresh_reference("0" + piece * (1_000_000 // len(piece)))
    assert process_time() - began < 0.5
