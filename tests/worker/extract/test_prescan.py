"""The encoding that a document declares, found as the HTML standard says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.worker.extract.charset import sniff
from greencrawl.worker.extract.encodings.prescan import LATE_BYTES, late, prescan

META = b"<meta charset=gbk>"
PIECES = [
    META, b"<meta charset=big5>", b"<meta charset='utf-8'", b"<META name=a content=b>", b"<meta ",
    b"http-equiv=content-type", b" content='text/html; charset=gbk'", b"charset=gbk", b" a='", b"'",
    b'"', b">", b"/>", b"<", b"<!--", b"-->", b"<!doctype html>", b"<p title=", b"</p>", b"<?x",
    b" ", b"=", b"x", b"\xff", b"charset", b"<meta charset=no-such>", b"\0",
]  # fmt: skip
PRAGMA = b"http-equiv=content-type content='text/html; charset=gbk'"


@pytest.mark.parametrize(
    "head",
    [
        META,
        b"<META\nCHARSET\t=\r'GB2312'>",
        b"<meta/charset=gbk />",
        b'<meta charset=" gbk\n">',
        b'<meta a=" charset=big5 " charset=gbk>',
        b"<meta a='>' b=x\" charset=gbk>",
        b"<meta charset=gbk charset=big5>",
        b"<meta a=b =c charset=gbk>",
        b"<meta " + PRAGMA + b">",
        b"<meta content='text/html; charset=gbk' http-equiv=CONTENT-TYPE>",
        b"<meta content='x charset charset = \"gbk\" x' http-equiv=Content-Type>",
        b"<meta content=charset=big5 charset=gbk>",
        b"<meta content=charset=gbk charset=gbk http-equiv=refresh>",
        b"<meta name=a content=b>" + META,
        b"<meta charset=no-such>" + META,
        b"<!-- <meta charset=big5> -->" + META,
        b"<!-->" + META,
        b"<!--->" + META,
        b"<!---->" + META,
        b"<!--a--b->c-->" + META,
        b"<!x <meta charset=big5>" + META,
        b"</ <meta charset=big5>" + META,
        b"<?x <meta charset=big5>" + META,
        b"<metacharset=big5>" + META,
        b"<p title='<meta charset=big5>'>" + META,
        b"</p title='<meta charset=big5>'>" + META,
        b"a < b <3" + META,
        b"<a\x00b c\xff>" + META,
        b"<script>var a = '" + META,
        b"<?xml version='1.0' encoding='big5'?>" + META,
    ],
)
def test_meta_is_found_where_the_standard_finds_it(head: bytes) -> None:
    assert prescan(head) == "gbk"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"<",
        b"<!",
        b"<!--",
        b"<meta",
        b"<meta charset",
        b"<meta charset=",
        b"<meta charset=gbk",
        b"<meta charset='gbk",
        b"<meta charset='gbk>" + META,
        b'<meta charset=gbk">',
        b"<meta a=' charset=gbk>" + META,
        b"<p title='x>" + META,
        b"<p title" + b"'" + b"x='>" + META.replace(b">", b""),
        b"<!-- " + META,
        b"<! " + META[:-1],
        b"<meta content='text/html; charset=gbk'>",
        b"<meta http-equiv='content-type ' content='text/html; charset=gbk'>",
        b"<meta http-equiv=refresh content='text/html; charset=gbk'>",
        b"<meta http-equiv=content-type content='text/html; charset=\"gbk'>",
        b"<meta http-equiv=content-type content='text/html; charset gbk'>",
        b"<meta http-equiv=content-type name=x value='charset=gbk'>",
        b"<meta http-equiv=refresh http-equiv=content-type content='charset=gbk'>",
        b"<meta charset=no-such content='charset=gbk' http-equiv=content-type>",
        b" <?xml encoding='gbk'?>",
        b"<?xml encoding='g bk'?>",
        b"<?xml encoding='gbk'",
        b"<?xml encoding='big5\"?>",
        b"<?xml version='1.0'><a encoding='gbk'>",
    ],
)
def test_no_encoding_is_found_where_the_standard_finds_none(head: bytes) -> None:
    assert prescan(head) is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"<?xml version='1.0' encoding = \"gbk\" ?><html>", "gbk"),
        (b"<?xml encoding='utf-16'?>", "utf-8"),
        (b"<\x00?\x00x\x00m\x00l\x00", "utf-16le"),
        (b"\x00<\x00?\x00x\x00m\x00l", "utf-16be"),
        (b"<meta charset=utf-16be>", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta http-equiv=content-type content='charset=utf-16'>", "utf-8"),
        (b"<meta charset=iso-2022-kr>", "replacement"),
    ],
)
def test_declared_encoding_is_mapped_to_the_one_that_the_standard_uses(
    head: bytes, name: str
) -> None:
    assert prescan(head) == name


FAR = b" " * 1024


@pytest.mark.parametrize(
    "body",
    [
        FAR + META,
        b"<!-- " + b"x" * 2000 + b" -->\n" + META,
        b"<!doctype html><html lang=zh><head>" + FAR + b"<title>a</title>" + META,
        b"<script>" + b"if (a < b) c('<p>');" * 99 + b"</script><meta " + PRAGMA + b">",
        b"<style>" + b"a > b {}" * 200 + b"</style><link href='a>b' rel=x>" + META,
        FAR + b"<title><meta charset=big5></title>" + META,
        FAR + b"<noscript><p><meta charset=big5></noscript>" + META,
        b"text" + FAR + b"</p>" + META,
        FAR + b"<!-->" + META,
        FAR + b"a < b <<3 <" + META,
        b"<head>" + b" " * (1024 - 6 - 9) + META,
    ],
)
def test_late_meta_in_the_head_declares_the_encoding(body: bytes) -> None:
    assert prescan(body[:1024]) is None
    assert late(body) == "gbk"
    assert sniff(body, "text/html") == ("gbk", 0)


@pytest.mark.parametrize(
    "body",
    [
        FAR + b"<body>" + META,
        FAR + b"</head>" + META,
        b"<p>" + FAR + META,
        FAR + b"<!-- " + META + b" -->",
        FAR + b"<!-- " + META,
        FAR + b"<script>" + META + b"</script>",
        FAR + b"<script>" + META,
        FAR + b"<title>" + META + b"</title>",
        FAR + b"</meta charset=gbk>",
        FAR + b"<meta name=x content='charset=gbk'>",
        FAR + b"<link title='x" + META,
        FAR + b"charset=gbk",
        b" " * LATE_BYTES + META,
    ],
)
def test_late_text_outside_of_a_meta_in_the_head_declares_no_encoding(body: bytes) -> None:
    assert late(body) is None


def test_hostile_head_is_scanned_in_bounded_time() -> None:
    for piece in (b"<", b"<!", b"<!-", b"<meta ", b"<meta a='", b"<a b=c ", b"<?xml ", b"charset",
                  b"<title>", b"</", b"<!--", b"-", b"<meta content=charset ", b"= "):  # fmt: skip
        for start in (b"", b"<", b"<meta ", b"<?xml ", b"<!--", b"<title>"):
            body = start + piece * ((LATE_BYTES - 20) // len(piece)) + b"charset"
            began = time.thread_time()
            prescan(body[:1024])
            late(body)
            assert time.thread_time() - began < 0.1, (start, piece)


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        (None, "gbk"),
        ("", "gbk"),
        ("text/html", "gbk"),
        ("application/xhtml+xml", "gbk"),
        ("application/xml", "big5"),
        ("text/xml; x=y", "big5"),
        ("application/rss+xml", "big5"),
        ("text/plain", "utf-8"),
        ("application/json", "utf-8"),
        ("text/css; charset=no-such", "utf-8"),
        ("application/json; charset=Shift_JIS", "shift_jis"),
    ],
)
def test_content_type_decides_where_the_encoding_is_declared(
    content_type: str | None, name: str
) -> None:
    body = b"<?xml version='1.0' encoding='big5'?><x>" + META + "é".encode() + b"</x>"
    assert sniff(body, content_type) == (name, 0)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_remembered_encoding_of_a_head_equals_a_new_scan(head: bytes) -> None:
    head = b"x" + head  # otherwise it may begin with an XML declaration
    assert prescan(head) == prescan(b"x" * 256 + head), "so far behind nothing is remembered"
    assert prescan(head) == prescan(head), "and now it is"
