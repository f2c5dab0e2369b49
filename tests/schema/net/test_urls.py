"""URL identity: the WHATWG standard's examples, the queries of legacy pages, hosts, partitions."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest

from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net import urls
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import canonicalise, host_of, origin_of, registrable_domain, site_of
from greencrawl.schema.text.encodings import decode, encode_query

BASE = "https://example.org/docs/guide/index.html?v=1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("HTTP://EXAMPLE.org:80", "http://example.org/"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org:80/", "https://example.org:80/"),
        ("http://example.org:8080/a", "http://example.org:8080/a"),
        ("http://example.org/A/b?B=2&a=1#part", "http://example.org/A/b?B=2&a=1"),
        ("http://example.org/index.html", "http://example.org/index.html"),
        ("http://example.org/?", "http://example.org/?"),
        ("http://example.org/%7ea%2fB", "http://example.org/%7ea%2fB"),
        ("http://example.org/a/./b/../c", "http://example.org/a/c"),
        ("http://example.org/a/%2e%2E/c", "http://example.org/c"),
        ("\x00 \thttp://exa\nmple.org/a\tb \x1f", "http://example.org/ab"),
        ("http:\\\\example.org\\a", "http://example.org/a"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://[0:0::1]:80/", "http://[::1]/"),
        (
            "http://例え.中国/路径?问=答",
            "http://xn--r8jz45g.xn--fiqs8s/%E8%B7%AF%E5%BE%84?%E9%97%AE=%E7%AD%94",
        ),
        ("http://BÜCHER.example/", "http://xn--bcher-kva.example/"),
        ("http://example.org/a b?c d'e\"", "http://example.org/a%20b?c%20d%27e%22"),
        ("http://user:secret@example.org/a@b", "http://example.org/a@b"),
        ("http://a@b@example.org", "http://example.org/"),
        ("http://example.org./", "http://example.org./"),
        ("http://example.org/\ud800", "http://example.org/%EF%BF%BD"),
        ("http://example.org/\ud83d\ude00", "http://example.org/%F0%9F%98%80"),
    ],
)
def test_canonical_form_is_the_whatwg_serialisation(given: str, expected: str) -> None:
    assert canonicalise(given) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("", "https://example.org/docs/guide/index.html?v=1"),
        ("#top", "https://example.org/docs/guide/index.html?v=1"),
        ("?v=2", "https://example.org/docs/guide/index.html?v=2"),
        ("a.html", "https://example.org/docs/guide/a.html"),
        ("../b/", "https://example.org/docs/b/"),
        ("a/../../c", "https://example.org/docs/c"),
        ("/d?e=f&g=%41#h", "https://example.org/d?e=f&g=%41"),
        ("//other.example/x", "https://other.example/x"),
        ("///other.example/x", "https://other.example/x"),
        ("https:e", "https://example.org/docs/guide/e"),
        ("http://xn--bcher-kva.example/x", "http://xn--bcher-kva.example/x"),
        ("https://www.example.com/x//y?z", "https://www.example.com/x//y?z"),
        (" f\n", "https://example.org/docs/guide/f"),
    ],
)
def test_references_resolve_against_the_base(reference: str, expected: str) -> None:
    assert canonicalise(reference, BASE) == expected
    assert urls.resolved([reference], BASE) == [expected]


@pytest.mark.parametrize(
    "given",
    [
        "javascript:alert(1)", "mailto:a@example.org", "data:text/html,x", "ftp://example.org/",
        "tel:+1", "http://", "https://?q", "http:///", "http://a b/", "http://a%00b/", "http://[::1/",
        "http://example.org:99999/", "http://1.2.3.256/", "", "/relative", "example.org",
    ],
)  # fmt: skip
def test_a_url_that_is_not_http_raises_a_typed_error(given: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        canonicalise(given)
    assert caught.value.url == given
    assert isinstance(caught.value, GreencrawlError)


def test_base_that_is_not_http_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        canonicalise("a", "mailto:x@example.org")


def test_the_length_of_a_url_is_limited_after_encoding() -> None:
    stem = "http://example.org/"
    longest = stem + "a" * (urls.MAX_URL - len(stem))
    assert canonicalise(longest) == longest
    for too_long in (longest + "a", stem + "é" * 3000, stem + "a" * 1_000_000):
        with pytest.raises(InvalidUrl, match="too long"):
            canonicalise(too_long)
        assert urls.resolved([longest, too_long], stem) == [longest, ""]
    fragment = "#" + "x" * 100_000  # it is removed anyway
    given = [longest + fragment, longest + "a" + fragment, "b" + fragment, fragment]
    assert urls.resolved(given, stem) == [longest, "", stem + "b", stem]


@pytest.mark.parametrize(
    ("encoding", "query", "expected"),
    [
        ("utf-8", "中", "%E4%B8%AD"),
        ("gbk", "中文", "%D6%D0%CE%C4"),
        ("GB2312", "q=中文&x=1", "q=%D6%D0%CE%C4&x=1"),
        ("gbk", "€", "%80"),
        ("gbk", "é€😀", "%A8%A6%80%26%23128512%3B"),
        ("gb18030", "😀", "%949%FC6"),
        ("gb18030", "\ue5e5ḿ", "%26%2358853%3B%A8%BC"),
        ("big5", "中文", "%A4%A4%A4%E5"),
        ("big5", "嘅", "%FBH"),
        ("big5", "～／＼€", "%A1%E3%A1%FE%A2@%A3%E1"),
        ("big5", "¢∼", "%26%23162%3B%26%238764%3B"),
        ("gbk", "龴︐", "%FEY%A6%D9"),
        ("shift_jis", "髙﨑①～－ｱ", "%FB%FC%FA%B1%87@%81`%81|%B1"),
        ("shift_jis", "¢〜", "%26%23162%3B%26%2312316%3B"),
        ("euc-jp", "髙～－ｱ", "%FC%E2%A1%C1%A1%DD%8E%B1"),
        ("euc-jp", "〜丂", "%26%2312316%3B%26%2319970%3B"),
        ("iso-2022-jp", "¥z①ｶ", "%1B(J\\z%1B$B-!%+%1B(B"),
        ("koi8-u", "Ўў╬", "%BE%AE%26%239580%3B"),
        ("windows-1252", "Ä\x8d", "%C4%8D"),
        ("shift_jis", "表¥", "%95\\\\"),
        ("euc-jp", "日本①", "%C6%FC%CB%DC%AD%A1"),
        ("iso-2022-jp", "aあb", "a%1B$B$%22%1B(Bb"),
        ("iso-2022-jp", "\x0eA\x1b", "%26%2365533%3BA%26%2365533%3B"),
        ("utf-8", "\x0eA\x1b.", "%0EA%1B."),
        ("iso-2022-jp", "あ中😀", "%1B$B$%22Cf%1B(B%26%23128512%3B"),
        ("euc-kr", "한글", "%C7%D1%B1%DB"),
        ("windows-1252", "é€", "%E9%80"),
        ("iso-8859-1", "é€中", "%E9%80%26%2320013%3B"),
        ("windows-1251", "привет", "%EF%F0%E8%E2%E5%F2"),
        ("koi8-r", "я", "%D1"),
        ("utf-16le", "中", "%E4%B8%AD"),
        ("iso-2022-kr", "中", "%E4%B8%AD"),
        ("no-such-label", "中", "%E4%B8%AD"),
        ("gbk", "a%20%D6 '\"<>中", "a%20%D6%20%27%22%3C%3E%D6%D0"),
    ],
)
def test_query_is_encoded_in_the_encoding_of_the_page(
    encoding: str, query: str, expected: str
) -> None:
    assert (
        canonicalise(f"/路?{query}#片", BASE, encoding)
        == f"https://example.org/%E8%B7%AF?{expected}"
    )


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("big5", "A145A1C2A1E3A1F2A1FEA240A246A3C0A3E1C6CFFB48"),
        ("gb18030", "A6D9A6F3A8BCFE59FEA0"),
        ("shift_jis", "5C7E8160817C8191FBFCFAB1FA408740B1"),
        ("euc-jp", "A1C1A1DDA1F1A2CCADA1FCE2F9D48EB1"),
        ("koi8-u", "AEBE"),
        ("windows-1252", "81C48D90"),
        ("windows-1255", "81CA"),
    ],
)
def test_the_query_of_a_link_keeps_the_bytes_that_stood_in_the_page(
    encoding: str, raw: str
) -> None:
    """Cases in which Python's codecs differ from the standard's; checked against Chromium."""
    text = decode(bytes.fromhex(raw), encoding)
    assert "\N{REPLACEMENT CHARACTER}" not in text
    query = encode_query(text, encoding)
    assert unquote_to_bytes(query).hex().upper() == raw


def test_fragment_of_a_legacy_page_never_becomes_part_of_the_query() -> None:
    assert canonicalise("/a#é?中", BASE, "gbk") == "https://example.org/a"
    assert canonicalise(" /a?\t中\n ", BASE, "gbk") == "https://example.org/a?%D6%D0"


def test_a_fingerprint_is_signed_and_depends_on_the_secret() -> None:
    values = {urls.fingerprint(f"http://example.org/{n}") for n in range(200)}
    assert len(values) == 200
    assert min(values) < 0 < max(values)
    assert all(-(2**63) <= value < 2**63 for value in values)
    assert urls.fingerprint("http://example.org/") == urls.fingerprint("http://example.org/", 0)
    assert urls.fingerprint("http://example.org/", 1) != urls.fingerprint("http://example.org/")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://h/%7Eme?a=%2d%2E%5F%41%7a%30", "http://h/~me?a=-._Az0"),
        ("http://h/%c3%a9%2f", "http://h/%C3%A9%2F"),
        ("http://h/%257E", "http://h/%257E"),
        ("http://h/a+b%2bc%20%26", "http://h/a+b%2Bc%20%26"),
        ("http://h/%%37E%7%45%", "http://h/%%37E%7%45%"),
        ("http://h/~me", "http://h/~me"),
    ],
)
def test_equivalent_spellings_share_a_fingerprint(url: str, same: str) -> None:
    assert urls.respell(url) == urls.respell(same) == same
    assert urls.fingerprint(url, 7) == urls.fingerprint(same, 7)
    assert urls.fingerprint(url, 7, 2) == urls.fingerprint(url, 7)
    assert canonicalise(url) == url, "what is requested stays as it was written"


def test_frontier_of_the_first_version_keeps_its_fingerprints() -> None:
    """Otherwise it would fetch everything again that it has fetched."""
    assert urls.fingerprint("http://example.org/~a", 5, 1) == -6488108868788577665
    assert urls.fingerprint("http://example.org/%7Ea", 5, 1) == 2488705831924416465
    assert urls.fingerprint("http://example.org/~a", 5) == urls.fingerprint(
        "http://example.org/%7Ea", 5
    )


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("http://example.org/a?b", "example.org", "h/a?b"),
        ("https://example.org/", "example.org", "s/"),
        ("http://example.org:8080/", "example.org:8080", "h/"),
        ("https://example.org:8443/", "example.org:8443", "s/"),
        ("http://example.org:443/x:80", "example.org", "H/x:80"),
        ("https://example.org:80/", "example.org", "S/"),
        ("http://[::80]/", "[::80]", "h/"),
        ("https://[::1]:80/:443", "[::1]", "S/:443"),
        ("http://[::1]:8080/", "[::1]:8080", "h/"),
    ],
)
def test_host_and_task_path_hold_the_whole_url(url: str, host: str, path: str) -> None:
    assert canonicalise(url) == url
    assert (host_of(url), urls.task_path(url)) == (host, path)
    assert urls.task_url(host, path) == url


def test_origin_has_scheme_and_port() -> None:
    assert origin_of("https://example.org/a//b") == "https://example.org"
    assert origin_of("http://[::1]:8080/") == "http://[::1]:8080"


@pytest.mark.parametrize(
    ("host", "domain", "site"),
    [
        ("example.org", "example.org", "example.org"),
        ("a.b.example.co.uk:8080", "example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk", "co.uk"),
        ("alice.github.io", "github.io", "alice.github.io"),
        ("www.xn--bcher-kva.xn--fiqs8s", "xn--bcher-kva.xn--fiqs8s", "xn--bcher-kva.xn--fiqs8s"),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1"),
        ("[::1]:8080", "[::1]", "[::1]"),
        ("[::1]", "[::1]", "[::1]"),
        ("localhost:8080", "localhost", "localhost"),
        ("host.no-such-suffix", "host.no-such-suffix", "host.no-such-suffix"),
    ],
)
def test_registrable_domain_follows_the_public_suffix_list(
    host: str, domain: str, site: str
) -> None:
    assert registrable_domain(host) == domain
    assert site_of(host) == site


def test_all_hosts_of_a_registrable_domain_are_in_one_partition() -> None:
    hosts = ["example.org", "www.example.org", "www.example.org:8080"]
    assert len({urls.partition_of(host, 64) for host in hosts}) == 1
    spread = {urls.partition_of(f"www.site{n}.org", 64) for n in range(2000)}
    assert spread == set(range(64))


def test_the_name_of_the_suffix_snapshot_has_a_prefix_and_a_fixed_length() -> None:
    assert SUFFIXES.startswith("psl-")
    assert len(SUFFIXES) == 20
