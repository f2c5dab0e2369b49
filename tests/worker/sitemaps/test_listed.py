"""Odd and broken sitemaps, feeds and lists of URLs, and ones beyond a bound."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib

import pytest

from greencrawl.worker.process.steps import finish
from greencrawl.worker.sitemaps import listed as listed_module
from greencrawl.worker.sitemaps import unpacking
from greencrawl.worker.sitemaps.forms import form_of, is_named_so
from greencrawl.worker.sitemaps.listed import MAX_URL_BYTES, MAX_URLS, Listed, listed_steps
from greencrawl.worker.sitemaps.unpacking import MAX_MEMBERS, SLICE_BYTES
from greencrawl.worker.sitemaps.xml import MAX_DEPTH, MAX_TOKEN

AT = "http://h/sub/sitemap.xml"
URLSET = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">%s</urlset>'


def listed(body: bytes, *, cut: bool = False) -> Listed:
    return finish(listed_steps(body, AT, cut=cut))


def entry(url: str) -> bytes:
    return f"<url><loc>{url}</loc></url>".encode()


def urls(body: bytes) -> list[str]:
    found = listed(body)
    assert (found.failure, found.note) == ("", "")
    return found.urls


# --- forms ------------------------------------------------------------------------------------


def test_a_loc_is_trimmed_decoded_and_made_canonical() -> None:
    body = URLSET % entry("\n  HTTP://H:80/a?x=1&amp;y=&#50;#part\t")
    assert urls(body) == ["http://h/a?x=1&y=2"]


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset><url><loc>http://h/a</loc></url></urlset>",
        b'<urlset xmlns="http://other/"><url><loc>http://h/a</loc></url></urlset>',
        b'<s:urlset xmlns:s="urn:x"><s:url><s:loc>http://h/a</s:loc></s:url></s:urlset>',
        b"<s:urlset><s:url><s:loc>http://h/a</s:loc></s:url></s:urlset>",
        b"<URLSET><URL><LOC>http://h/a</LOC></URL></URLSET>",
        b"\xef\xbb\xbf\r\n <?xml version='1.0'?><urlset><url><loc>/a</loc></url></urlset>",
        b"<!-- <html> --><urlset><url><loc>http://h/a</loc></url></urlset>",
        b"<urlset><loc>http://h/a</loc></urlset>",
        b"<urlset><url><loc><![CDATA[http://h/a]]></loc></url></urlset>",
        b"<urlset><url><loc>../a</loc></url></urlset>",
        b"<urlset><url><loc><loc></loc>http://h/a<b>c</b></loc></url></urlset>",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_odd_forms_of_a_sitemap_are_read(body: bytes) -> None:
    assert urls(body) == ["http://h/a"]


def test_an_ampersand_that_begins_no_xml_reference_is_taken_as_it_stands() -> None:
    given = entry("http://h/a?x=1&y=2") + entry("http://h/b?x&copy;=3&amp;z")
    assert urls(URLSET % given) == ["http://h/a?x=1&y=2", "http://h/b?x&copy;=3&z"]
    literal = b"<url><loc><![CDATA[http://h/c?x=1&y=2&amp;z=3]]></loc></url>"
    assert urls(URLSET % literal) == ["http://h/c?x=1&y=2&z=3"]


def test_an_xml_reference_may_lie_across_two_slices() -> None:
    head = b"<urlset><url><loc>http://h/?"
    for shift in range(8):
        pad = b"p" * (SLICE_BYTES - len(head) - shift)
        found = urls(head + pad[:1000] + b"</loc></url>" + b" " * (len(pad) - 1040) + b"<url><loc>"
                     b"http://h/z?a=1&amp;b=2</loc></url></urlset>")  # fmt: skip
        assert found[1] == "http://h/z?a=1&b=2"
    body = b"<urlset><url><loc>http://h/?a&amp;b&c</loc></url></urlset>"
    for at in range(1, len(body)):
        reader = listed_module.XmlReader()
        reader.feed(body[:at].decode())
        reader.feed(body[at:].decode())
        reader.end()
        assert reader.urls == ["http://h/?a&b&c"]


@pytest.mark.parametrize(
    ("declared", "codec"),
    [("ISO-8859-1", "latin-1"), ("windows-1251", "cp1251"), ("GB2312", "gb18030"),
     ("Shift_JIS", "cp932"), ("utf-8", "utf-8")],
)  # fmt: skip
def test_a_declared_encoding_is_read(declared: str, codec: str) -> None:
    letter = {"windows-1251": "ж", "GB2312": "中", "Shift_JIS": "日"}.get(declared, "é")
    xml = f'<?xml version="1.0" encoding="{declared}"?>' + (
        URLSET.decode() % f"<url><loc>http://h/{letter}</loc></url>"
    )
    assert [url.encode().decode() for url in urls(xml.encode(codec))] == [
        "http://h/" + "".join(f"%{byte:02X}" for byte in letter.encode())
    ]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_by_its_mark_or_its_zeros(codec: str) -> None:
    body = "<urlset><url><loc>http://h/é</loc></url></urlset>".encode(codec)
    assert urls(body) == ["http://h/%C3%A9"]


def test_bytes_that_are_no_characters_cost_no_other_url() -> None:
    body = URLSET % (b"<url><loc>http://h/\xff\x0b</loc></url>" + entry("http://h/b"))
    assert urls(body) == ["http://h/%EF%BF%BD", "http://h/b"]


def test_alternates_are_listed_last_and_images_and_videos_are_not_listed() -> None:
    given = (
        b'<url><loc>http://h/en</loc><xhtml:link rel="alternate" hreflang="de" href="/de"/>'
        b"<image:image><image:loc>http://h/i.png</image:loc></image:image>"
        b"<video:video><video:player_loc>http://h/v</video:player_loc></video:video>"
        b'<xhtml:link rel="stylesheet" href="/s.css"/></url>'
    )
    assert urls(URLSET % (given + entry("/fr"))) == ["http://h/en", "http://h/fr", "http://h/de"]


def test_an_index_lists_sitemaps_each_once() -> None:
    body = (
        b"<sitemapindex><sitemap><loc>/a.xml</loc><lastmod>2020</lastmod></sitemap>"
        b"<sitemap>\n/b.xml?x=1&amp;y=2\n<lastmod>2020</lastmod></sitemap><sitemap><loc>/a.xml</loc></sitemap>"
        b"</sitemapindex>"
    )
    found = listed(body)
    assert found.sitemaps == ["http://h/a.xml", "http://h/b.xml?x=1&y=2"]
    assert found.urls == []


def test_feeds_list_their_items() -> None:
    rss = (
        b"<rss><channel><link>http://h/</link><item><link>http://h/1</link><guid>http://h/x</guid>"
        b"</item><item><guid>http://h/2</guid></item><item><guid isPermaLink='false'>http://h/3"
        b"</guid></item><item><guid>four</guid></item></channel></rss>"
    )
    assert urls(rss) == ["http://h/1", "http://h/2"]
    atom = (
        b'<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/><link rel="self" href="/f"/>'
        b'<entry><link href="/1"/><link rel="edit" href="/e"/><link rel="alternate" href="/2"/>'
        b"</entry></feed>"
    )
    assert urls(atom) == ["http://h/1", "http://h/2"]
    rdf = b'<rdf:RDF xmlns="p"><item about="x"><link>http://h/1</link></item></rdf:RDF>'
    assert urls(rdf) == ["http://h/1"]


def test_a_list_of_lines_is_read_as_urls() -> None:
    body = b"\xef\xbb\xbfhttp://h/a\r\n\r\nHTTPS://H/b  \r\nnot a url\nhttp://h/a\nhttp://h/c"
    assert urls(body) == ["http://h/a", "https://h/b", "http://h/c"]
    assert urls(body.decode("utf-8-sig").encode("utf-16")) == urls(body)
    assert urls(b"# ours\n\n" + body[3:]) == urls(body)
    assert form_of(b"http://h/a is a page\n") == ""
    long = b"http://h/a\n" + b"x" * 200_000 + b"\nhttp://h/b\n"
    assert urls(long) == ["http://h/a", "http://h/b"]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html><body>no</body></html>", b"not found", b"{}", b"<!DOCTYPE html><p>x", b"\x1f\x8b",
     b"\x1f\x8b\x08broken", gzip.compress(b"<html>"), b"<rich/>"],
    ids=repr,
)  # fmt: skip
def test_a_body_that_is_no_sitemap_feed_or_list_is_refused_with_that_reason(body: bytes) -> None:
    assert form_of(body) == ""
    assert listed(body).failure == "neither a sitemap, nor a feed, nor a list of URLs"


def test_the_form_of_any_body_is_determined_in_little_time() -> None:
    heads = (b"#x" + b"\n" * 4000, b"# \n" * 1300, b"<!--" * 1000, b"<" * 4000, b"\n\r" * 2000,
             b"<!-- -->" * 500, b"<a" + b":a" * 2000)  # fmt: skip
    for head in heads:
        began = time.thread_time()
        assert form_of(head) == ""
        assert time.thread_time() - began < 0.02, head[:9]


def test_names_of_sitemaps_are_recognised() -> None:
    for name in ("sitemap", "sitemap.xml", "sitemap_index.xml.gz", "Sitemap-1.txt", "feed.rss",
                 "a.xml", "sitemap.jss?x=1"):  # fmt: skip
        assert is_named_so(f"http://h/x/{name}"), name
    for name in ("", "a.html", "xml", "sitemap/a"):
        assert not is_named_so(f"http://h/x/{name}"), name


# --- what breaks off --------------------------------------------------------------------------


def test_urls_before_a_fault_in_the_xml_count() -> None:
    broken = b"<urlset>" + entry("http://h/a") + b"\n<url><loc>http://h/b</url>" + entry("/c")
    found = listed(broken)
    assert found.urls == ["http://h/a"]
    assert found.note == "its XML is broken in line 2: mismatched tag"
    ends = listed(b"<urlset>" + entry("http://h/a") + b"<url>")
    assert ends.urls == ["http://h/a"]
    assert ends.note.startswith("its XML is broken")
    assert listed(b"<urlset><url></x>").failure == "its XML is broken in line 1: mismatched tag"


def test_urls_before_a_fault_in_the_gzip_count() -> None:
    whole = gzip.compress(URLSET % b"".join(entry(f"http://h/{n}") for n in range(5000)), 1)
    found = listed(whole[: len(whole) // 2])
    assert 1000 < len(found.urls) < 4000
    assert found.note == "its gzip ends too early"
    bad = bytearray(whole)
    bad[len(bad) // 2 : len(bad) // 2 + 40] = b"\xff" * 40
    found = listed(bytes(bad))
    assert 1000 < len(found.urls) < 5000
    assert "gzip" in found.note or "XML" in found.note
    assert len(urls(whole)) == 5000


def test_a_cut_of_the_body_is_noted() -> None:
    body = b"<urlset>" + entry("http://h/a") + entry("http://h/b")[:9]
    found = listed(body, cut=True)
    assert found.urls == ["http://h/a"]
    assert found.note == f"it is cut after {len(body):,} bytes"
    packed = gzip.compress(body)[:-12]
    assert listed(packed, cut=True).note.startswith("it is cut after ")


def test_gzip_of_several_members_is_one_body() -> None:
    whole = URLSET % entry("http://h/a")
    assert urls(gzip.compress(whole[:20]) + gzip.compress(whole[20:]) + b"\0\0") == ["http://h/a"]
    many = gzip.compress(b"<urlset>" + entry("/a")) + gzip.compress(b"") * (MAX_MEMBERS + 1)
    assert listed(many).note == f"its gzip has more than {MAX_MEMBERS} members"


# --- bounds -----------------------------------------------------------------------------------


def test_a_file_lists_no_more_than_fifty_thousand_urls() -> None:
    found = listed(URLSET % b"".join(entry(f"/{n}") for n in range(MAX_URLS + 10)))
    assert len(found.urls) == MAX_URLS
    assert found.note.startswith("more than 50,000 URLs")
    assert len(urls(URLSET % b"".join(entry(f"/{n}") for n in range(MAX_URLS)))) == MAX_URLS


def test_alternates_take_no_place_of_a_page() -> None:
    other = b"".join(b'<xhtml:link rel="alternate" href="/o%d"/>' % n for n in range(60_000))
    body = URLSET % (b"<url><loc>/a</loc>" + other + b"</url>" + entry("/b"))
    found = urls(body)
    assert found[:3] == ["http://h/a", "http://h/b", "http://h/o0"]
    assert len(found) == MAX_URLS


def test_short_references_at_a_long_base_url_take_bounded_memory() -> None:
    long = f"http://h/{'x' * 8000}/s.xml"
    body = URLSET % b"".join(entry(f"{n}") for n in range(MAX_URLS))
    found = finish(listed_steps(body, long))
    assert sum(map(len, found.urls)) <= MAX_URL_BYTES
    assert "bytes of them" in found.note


def test_no_more_than_fifty_mebibytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for the bomb below, the tests use a hundredth of the bound."""
    monkeypatch.setattr(unpacking, "MAX_BYTES", 500_000)
    body = b"<urlset>" + entry("/a") + b" " * 500_000 + entry("/b") + b"</urlset>"
    for given in (body, gzip.compress(body)):
        found = listed(given)
        assert found.urls == ["http://h/a"]
        assert found.note == "it is cut after 500,000 bytes"


def test_a_gzip_bomb_takes_a_bounded_time_and_next_to_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "MAX_BYTES", 5_000_000)
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(b"<urlset>" + entry("/a"))]
    parts += [packer.compress(b"<a></a>" * 150_000) for _ in range(20)]  # 20 MB
    bomb = b"".join([*parts, packer.flush()])
    assert len(bomb) < 200_000
    tracemalloc.start()
    began, longest, steps = time.thread_time(), 0.0, listed_steps(bomb, AT)
    found = None
    while found is None:
        at = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
        longest = max(longest, time.thread_time() - at)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.urls == ["http://h/a"]
    assert found.note == "it is cut after 5,000,000 bytes"
    assert peak < 4_000_000
    assert longest < 0.1, "nobody else has a turn meanwhile"
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    "inside", [b"<!--" + b"x" * 3_000_000, b'<a b="' + b"x" * 3_000_000, b"<a " + b"\n" * 3_000_000]
)
def test_a_tag_without_end_is_given_up_in_bounded_time(inside: bytes) -> None:
    began = time.thread_time()
    found = listed(b"<urlset>" + entry("/a") + inside)
    assert found.urls == ["http://h/a"]
    assert found.note == f"a tag or comment of more than {MAX_TOKEN:,} bytes"
    assert time.thread_time() - began < 2


def test_xml_texts_of_any_length_are_passed_over() -> None:
    body = b"<urlset><lastmod>" + b"x" * 3_000_000 + b"</lastmod>" + entry("/a") + b"</urlset>"
    assert urls(body) == ["http://h/a"]
    body = b"<urlset>" + entry("x" * 3_000_000) + entry("/a") + b"</urlset>"
    assert urls(body) == ["http://h/a"]


def test_the_depth_of_xml_elements_is_bounded() -> None:
    found = listed(b"<urlset>" + entry("/a") + b"<a>" * 100_000)
    assert found.urls == ["http://h/a"]
    assert found.note == f"more than {MAX_DEPTH} elements within each other"


@pytest.mark.parametrize(
    "entity",
    ['<!ENTITY a "http://evil/">', '<!ENTITY a SYSTEM "file:///etc/hostname">',
     '<!ENTITY b "bbbbbbbbbb"><!ENTITY a "&b;&b;&b;&b;&b;">'],
)  # fmt: skip
def test_entities_that_a_file_declares_are_not_expanded(entity: str) -> None:
    xml = f"<!DOCTYPE urlset [{entity}]><urlset><url><loc>/x&a;</loc></url></urlset>"
    assert urls(xml.encode()) == ["http://h/x&a;"]
