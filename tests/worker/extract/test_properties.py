"""Extraction returns a well-formed page from any bytes."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.extract import extract
from greencrawl.worker.extract.hostile import flatten, has_attribute_bomb
from tests.support.effort import examples

PIECES = st.one_of(
    st.sampled_from(
        [
            b"<a href=",
            b"/x",
            b"'",
            b'"',
            b">",
            b"</a>",
            b"<p>",
            b"<base href=//b/>",
            b"<!--",
            b"-->",
        ]
    ),
    st.sampled_from(
        [
            b"<script>",
            b"</script>",
            b"<title>",
            b"<meta charset=",
            b"gbk",
            b"utf-16",
            b"<html lang=",
        ]
    ),
    st.sampled_from(
        [b"\x00", b"\xff", b"\xd6\xd0", b"\xe4\xb8", b"&#0;", b"&#xd800;", b"&", b"<svg>"]
    ),
    st.sampled_from(
        [b"<?xml ", b"]]>", b"<![CDATA[", b"<meta http-equiv=refresh content=0;url=/r>"]
    ),
    st.text(string.printable, max_size=6).map(str.encode),
    st.binary(max_size=6),
)
BODIES = st.lists(PIECES, max_size=20).map(b"".join)
TYPES = st.sampled_from([None, "text/html", "text/html; charset=gbk", "text/html; charset=utf-16"])


@given(BODIES, TYPES)
@settings(max_examples=examples(300, 10_000), deadline=None)
def test_any_bytes_give_a_page_with_canonical_links(body: bytes, content_type: str | None) -> None:
    page = extract(body, "https://example.org/a/", content_type)
    page.text.encode()
    page.title.encode()
    for link in page.links:
        assert canonicalise(link.url) == link.url
        assert len(link.anchor) <= 200
        link.anchor.encode()
    assert len({link.url for link in page.links}) == len(page.links)
    assert "  " not in page.text


@given(BODIES)
@settings(deadline=None)
def test_flattening_any_bytes_ends(body: bytes) -> None:
    assert not has_attribute_bomb(flatten(body))
    assert not has_attribute_bomb(body)
