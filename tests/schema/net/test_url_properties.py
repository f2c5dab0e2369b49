"""Properties of URL identity over arbitrary and unusual input."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import (
    canonicalise,
    fingerprint,
    host_of,
    origin_of,
    resolved,
    respell,
    task_path,
    task_url,
)
from tests.support.effort import examples

ENCODINGS = st.sampled_from(
    ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc-jp", "iso-2022-jp", "euc-kr", "latin1"]
)
PIECES = st.one_of(
    st.sampled_from(
        [
            "http:",
            "https:",
            "mailto:",
            "ſ:",
            "//",
            "/",
            "\\",
            "..",
            ".",
            "%2e",
            "%",
            "%zz",
            "%E4",
            "?",
            "#",
            "@",
            ":",
            ":80",
            ":443",
            ":8080",
        ]
    ),
    st.sampled_from(
        [
            "example.org",
            "EXAMPLE",
            "xn--",
            "xn--fiqs8s",
            "例え.中国",
            "ß",
            "İ",
            "[::1]",
            "[",
            "]",
            "1.2.3.4",
        ]
    ),
    st.sampled_from(
        [
            "0x7f.1",
            "256",
            "。",
            "a",
            "index.html",
            "&amp;",
            "=",
            "'",
            '"',
            "<",
            ";",
            "|",
            "~",
            "_",
            "-",
            "中",
            "😀",
            "®",
        ]
    ),
    st.sampled_from([" ", "\t", "\n", "\x00", "\ud800", "\u00ad", "\u200d", "\u3000"]),
    st.text(max_size=5),
)
REFERENCES = st.lists(PIECES, max_size=10).map("".join)
URLS = st.tuples(
    st.sampled_from(["http://", "https://", "http:/", "https:"]),
    st.sampled_from(
        [
            "example.org",
            "a.b.co.uk:8080",
            "[::1]:80",
            "127.1",
            "例え.中国",
            "u:p@h",
            "H:443",
            "h:80",
        ]
    ),
    REFERENCES,
).map(lambda parts: f"{parts[0]}{parts[1]}/{parts[2]}")


def canonical_or_none(url: str, base: str | None = None, encoding: str = "utf-8") -> str | None:
    try:
        return canonicalise(url, base, encoding)
    except InvalidUrl:
        return None


@given(st.one_of(URLS, REFERENCES, st.text()), ENCODINGS)
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_canonicalise_is_idempotent(url: str, encoding: str) -> None:
    once = canonical_or_none(url, "http://base.example/x/y?z", encoding)
    if once is not None:
        assert once.isascii()
        assert "#" not in once
        assert canonicalise(once) == once
        assert canonicalise(once, "https://other.example/", "gbk") == once


@given(URLS, st.integers(0, 2**20))
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_respelling_a_url_is_idempotent_and_keeps_its_meaning(url: str, bits: int) -> None:
    once = canonical_or_none(url)
    if once is None:
        return
    spelling = respell(once)
    assert respell(spelling) == canonicalise(spelling) == spelling
    assert unquote_to_bytes(spelling) == unquote_to_bytes(once)
    assert host_of(spelling) == host_of(once)
    origin = origin_of(once)
    units = re.findall("%[0-9A-Fa-f]{2}|.", once.removeprefix(origin))
    if "%" in units:  # it encodes nothing, and must not begin to
        return
    odd = [
        f"%{ord(unit):02x}" if bits >> at % 20 & 1 and re.fullmatch(r"[\w.~-]", unit) else unit
        for at, unit in enumerate(units)
    ]
    assert fingerprint(origin + "".join(odd)) == fingerprint(once)


@given(URLS, REFERENCES, ENCODINGS)
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_resolved_agrees_with_canonicalise(base: str, reference: str, encoding: str) -> None:
    canonical = canonical_or_none(base, None, encoding)
    if canonical is None:
        return
    [found] = resolved([reference], canonical, encoding)
    assert (found or None) == canonical_or_none(reference, canonical, encoding)


@given(
    st.from_regex(
        r"(https?://(xn--)?[a-z.]{1,8}\.[a-z]{2,4})?/?[A-Za-z0-9/._~-]{0,12}(\?[a-z=%./]{0,8})?(#.*)?",
        fullmatch=True,
    )
)
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_plain_references_agree_with_the_parser(reference: str) -> None:
    base = "https://example.org/a/b/c?d"
    [found] = resolved([reference], base)
    assert (found or None) == canonical_or_none(reference, base)


@given(
    st.from_regex(
        r"https?://(xn--)?[a-z0-9_.-]{1,8}\.[a-z0-9]{2,4}(:80)?/[A-Za-z0-9/._~%-]{0,12}"
        r"(\?[a-z=%./]{0,8})?[#\n]?",
        fullmatch=True,
    )
)
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_plain_urls_agree_with_the_parser(url: str) -> None:
    """A URL that comes with a base always goes through the parser."""
    assert canonical_or_none(url) == canonical_or_none(url, "https://example.org/a")


@given(URLS)
@settings(deadline=None)
def test_task_path_and_host_rebuild_the_url(url: str) -> None:
    canonical = canonical_or_none(url)
    if canonical is not None:
        assert task_url(host_of(canonical), task_path(canonical)) == canonical
        assert canonical.startswith(origin_of(canonical) + "/")
