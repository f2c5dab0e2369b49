"""robots.txt by RFC 9309: groups, matching, limits, and hostile files."""

from __future__ import annotations

import time

import pytest

from greencrawl.worker.robots import parser
from greencrawl.worker.robots.parser import Kind, Verdict, parse, product_token

AGENT = "greencrawl/0.1 (+https://example.org/bot)"


def allowed(body: str | bytes, path: str, agent: str = AGENT) -> bool:
    raw = body.encode() if isinstance(body, str) else body
    return parse(raw).allowed(f"https://example.org{path}", agent)


def rules_for_all(*lines: str) -> str:
    return "\n".join(("User-agent: *", *lines))


# --- groups, RFC 9309 section 2.2.1 ----------------------------------------------------------


@pytest.mark.parametrize("written", ["greencrawl", "GreenCrawl", "GREENCRAWL/2.0", "greencrawl*"])
def test_product_token_matches_without_regard_to_case(written: str) -> None:
    body = f"User-agent: *\nDisallow: /\n\nUser-agent: {written}\nDisallow: /mine"
    assert allowed(body, "/theirs")
    assert not allowed(body, "/mine")


@pytest.mark.parametrize("written", ["green", "greencrawler", "crawl", "bot", "greencrawl-images"])
def test_a_group_of_another_product_token_does_not_apply_to_us(written: str) -> None:
    assert allowed(f"User-agent: {written}\nDisallow: /", "/")


def test_the_group_of_all_agents_holds_only_for_agents_without_a_group_of_their_own() -> None:
    body = "User-agent: greencrawl\nDisallow: /a\nUser-agent: *\nDisallow: /b"
    assert allowed(body, "/b")
    assert not allowed(body, "/a")
    assert not allowed(body, "/b", "other/1")
    assert allowed(body, "/a", "other/1")


def test_our_empty_group_frees_us_of_the_general_one() -> None:
    body = "User-agent: *\nDisallow: /\n\nUser-agent: greencrawl\nDisallow:\n"
    assert allowed(body, "/")
    assert not allowed(body, "/", "other")


def test_groups_may_name_several_agents() -> None:
    body = "User-agent: a\nUser-agent: greencrawl\n\nSitemap: x\nUser-agent: b\nDisallow: /x"
    for agent in ("a", "b", AGENT):
        assert not allowed(body, "/x", agent)
    assert allowed(body, "/x", "c")


def test_groups_of_one_agent_are_merged() -> None:
    body = (
        "User-agent: greencrawl\nDisallow: /a\nUser-agent: other\nDisallow: /b\n"
        "User-agent: GREENCRAWL\nDisallow: /c\n"
    )
    assert [allowed(body, path) for path in ("/a", "/b", "/c")] == [False, True, False]


def test_general_groups_are_merged_too() -> None:
    body = "User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b"
    assert [allowed(body, path) for path in ("/a", "/b", "/c")] == [False, False, True]


@pytest.mark.parametrize("line", ["User-agent:", "User-agent: ", "User-agent: # all"])
def test_a_user_agent_line_without_a_name_applies_to_no_agent(line: str) -> None:
    assert allowed(f"{line}\nDisallow: /", "/x")
    assert not allowed(f"User-agent: *\n{line}\nDisallow: /", "/x"), "nor does it end a group"


@pytest.mark.parametrize("written", ["bot2", "bot2.1", "bot,", "bot; x", "bot*"])
def test_a_user_agent_line_names_the_product_token_that_it_begins_with(written: str) -> None:
    """RFC 9309 allows only letters, - and _; a crawler with another name is matched by that
    name."""
    body = f"User-agent: {written}\nDisallow: /"
    assert not allowed(body, "/", "bot")
    assert not allowed(body, "/", written)
    assert allowed(body, "/", "bo")
    assert allowed(body, "/", "bot3")


def test_rules_before_any_user_agent_line_apply_to_no_agent() -> None:
    assert allowed("Disallow: /\nUser-agent: other\nDisallow: /", "/")


def test_crawl_delay_ends_no_group_and_is_for_the_agents_right_above_it() -> None:
    rules = parse(
        b"User-agent: a\nCrawl-delay: 5\nUser-agent: b\nUser-agent: c\nCrawl-delay: x\n"
        b"Crawl-delay: 7\nDisallow: /x\nUser-agent: d\nDisallow: /y"
    )
    for agent, delay in (("a", 5.0), ("b", 7.0), ("c", 7.0), ("d", None)):
        assert rules.allowed("http://example.org/x", agent) is (agent == "d")
        assert rules.allowed("http://example.org/y", agent) is (agent != "d")
        assert rules.crawl_delay(agent) == delay


def test_unknown_lines_have_no_effect_on_groups_and_rules() -> None:
    body = "User-agent: greencrawl\nNonsense: 1\n<html>\nUser-agent: b\nDisallow: /x\nHost: y"
    assert not allowed(body, "/x")
    assert not allowed(body, "/x", "b")


# --- matching, section 2.2.2 and 2.2.3 -------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        (("Disallow: /",), "/anything", False),
        (("Disallow:",), "/anything", True),
        (("Disallow: /fish",), "/fish.html?x", False),
        (("Disallow: /fish",), "/Fish", True),
        (("Disallow: /fish/",), "/fish", True),
        (("Allow: /p", "Disallow: /"), "/page", True),
        (("Disallow: /", "Allow: /p"), "/page", True),
        (("Allow: /folder", "Disallow: /folder"), "/folder/page", True),
        (("Disallow: /folder", "Allow: /folder"), "/folder/page", True),
        (("Allow: /page", "Disallow: /*.htm"), "/page.htm", False),
        (("Allow: /page", "Disallow: /*.ph"), "/page.php5", True),
        (("Allow: /*page", "Disallow: /page"), "/page", True),
        (("Allow: /$", "Disallow: /"), "/", True),
        (("Allow: /$", "Disallow: /"), "/page.htm", False),
        (("Allow: /example/page/", "Disallow: /example/page/disallowed.gif"),
         "/example/page/disallowed.gif", False),
        (("Disallow: /*.php$",), "/a/b.php", False),
        (("Disallow: /*.php$",), "/a/b.php?x", True),
        (("Disallow: /*.php$",), "/a.php/b.php", False),
        (("Disallow: /a*b*c",), "/a-c-b", True),
        (("Disallow: /a*b*c",), "/a-b-c-d", False),
        (("Disallow: /ab*ba$",), "/aba", True),
        (("Disallow: /ab*ba$",), "/abba", False),
        (("Disallow: *.gif",), "/x/y.gif", False),
        (("Disallow: /x***y",), "/x--y", False),
        (("Disallow: /price$list",), "/price$list/1", False),
        (("Disallow: /price%24",), "/price$list", False),
        (("Disallow: /star%2A",), "/star*", False),
        (("Disallow: /star%2A",), "/starlight", True),
        (("Disallow: /x$",), "/x%24", True),
        (("Disallow: *?sort=",), "/list?sort=up", False),
        (("Disallow: /private",), "/robots.txt", True),
        (("Disallow: /",), "/robots.txt", True),
        (("Disallow: /",), "/robots.txt?x", True),
        (("Disallow: /",), "/robots.txt.bak", False),
        (("Disallow: /",), "/a/robots.txt", False),
        (("Allow: /index.html", "Disallow: /"), "/", True),
        (("Allow: /x/index.htm$", "Disallow: /"), "/x/", True),
        (("Allow: /*/index.html", "Disallow: /"), "/a/b/", True),
        (("Allow: /index.html", "Disallow: /"), "/other", False),
        (("Allow: /index.html", "Disallow: /"), "/?x", False),
        (("Allow: /index.html5", "Disallow: /"), "/", False),
        (("Disallow: /index.html",), "/", True),
        (("Allow: /index.html", "Disallow: /$"), "/", True),
        (("Disallow: /*+*",), "/a%2Bb", True),
        (("Disallow: /*+*",), "/a+b", False),
        (("Disallow: /*%2b*",), "/a%2Bb", False),
        (("Disallow: /*%2b*",), "/a+b", True),
    ],
)  # fmt: skip
def test_most_specific_rule_decides(lines: tuple[str, ...], path: str, expected: bool) -> None:
    assert allowed(rules_for_all(*lines), path) is expected


@pytest.mark.parametrize(
    ("rule", "path", "same"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar", False),
        ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https%3a%2f%2ffoo.bar", True),
        ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
        ("/foo/bar/baz", "/foo/bar/%62%61%7a", True),
        ("/a b", "/a%20b", True),
        ("/a%3Db", "/a=b", False),
        ("/a%3db", "/a%3Db", True),
        ('/{a}|"<>\\\\^`', "/%7Ba%7d%7c%22%3C%3E%5c%5C%5E%60", True),
        ("/%7Ea%2D%2e%5f", "/~a-._", True),
        ("/a[1]", "/a%5B1%5D", False),
        ("/a%", "/a%", True),
        ("/a%2Fb", "/a/b", False),
        ("/a%3Fb", "/a?b", False),
        ("/a%2525", "/a%25", False),
        ("/A", "/a", False),
    ],
)
def test_percent_encoding_is_normalised_on_both_sides(rule: str, path: str, same: bool) -> None:
    assert allowed(rules_for_all(f"Disallow: {rule}"), path) is not same


def test_the_length_of_a_rule_counts_octets_after_normalising() -> None:
    body = rules_for_all("Allow: /%61%62%63", "Disallow: /abcd")
    assert not allowed(body, "/abcd")


def test_a_url_is_matched_with_or_without_host_path_and_fragment() -> None:
    rules = parse(b"User-agent: *\nDisallow: /a\nDisallow: /?q")
    assert not rules.allowed("/a#b", AGENT)
    assert not rules.allowed("http://example.org?q=1", AGENT)
    assert rules.allowed("http://example.org#/a", AGENT)
    assert rules.allowed("http://example.org", AGENT)
    assert not rules.allowed("http://example.org/a\udc80", AGENT)


@pytest.mark.parametrize(
    "rule", ["https://example.org", "https://example.org/", "http://example.org/*", "https://h/$"]
)
def test_a_rule_that_names_a_host_does_not_apply_to_the_whole_site(rule: str) -> None:
    assert allowed(rules_for_all(f"Disallow: {rule}"), "/x")
    assert not allowed(rules_for_all("Disallow: /", f"Allow: {rule}"), "/x")


@pytest.mark.parametrize(
    "line", ["Disalow: /x", "DISALLOW:/x", " disallow : /x ", "Disallow /x", "Disallow: x",
             "Disallow: https://example.org/x", "Disallow: /x # why", "disallow:\t/x"],
)  # fmt: skip
def test_common_mistakes_in_rules_are_read_as_their_owner_meant_them(line: str) -> None:
    assert not allowed(rules_for_all(line), "/x")
    assert allowed(rules_for_all(line), "/y")


# --- bytes and limits, sections 2.2 and 2.5 --------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\n\n"])
def test_any_end_of_line_is_accepted(end: str) -> None:
    assert not allowed(end.join(("User-agent: *", "Disallow: /x")), "/x")


def test_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert not allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /x", "/x")


RULES = "User-agent: *\nDisallow: /é\n"


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" * 2 + RULES.encode(),
        b"\xef\xbb" + RULES.encode(),
        b"\xef" + RULES.encode(),
        RULES.encode("utf-16"),
        b"\xfe\xff" + RULES.encode("utf-16-be"),
        b"\xff\xfe\xff\xfe" + RULES.encode("utf-16-le"),
        RULES.encode("utf-16-le"),
        RULES.encode("utf-16-be"),
    ],
)
def test_files_with_byte_order_marks_or_in_utf_16_are_read_as_text(body: bytes) -> None:
    assert not allowed(body, "/%C3%A9")
    assert allowed(body, "/e")


def test_a_long_file_in_utf_16_is_read_up_to_a_bound_as_any_file() -> None:
    text = "User-agent: *\nDisallow: /first\n" + "#\n" * parser.MAX_BODY_BYTES + "Disallow: /"
    assert not allowed(text.encode("utf-16"), "/first")
    assert allowed(text.encode("utf-16"), "/x")


def test_bytes_that_are_no_utf8_still_match_themselves() -> None:
    body = b"User-agent: *\nDisallow: /caf\xe9\nDisallow: /\xff\x00\x0b\x85z"
    assert not allowed(body, "/caf%E9")
    assert allowed(body, "/caf%C3%A9")
    assert not allowed(body, "/%FF%00%0B%85z")


@pytest.mark.parametrize("body", [b"", b"\x00" * 1000, bytes(range(256)) * 50, b"<!doctype html>"])
def test_garbage_forbids_nothing(body: bytes) -> None:
    assert allowed(body, "/x")


def test_only_the_first_500_kib_count_and_no_half_line() -> None:
    head = b"User-agent: *\nDisallow: /first\n"
    padding = b"#" * (parser.MAX_BODY_BYTES - len(head) - len(b"\nDisallow: /")) + b"\n"
    body = head + padding + b"Disallow: /cut\nDisallow: /late\n"
    assert len(body) > parser.MAX_BODY_BYTES
    assert not allowed(body, "/first")
    assert allowed(body, "/cut")
    assert allowed(body, "/late")
    assert allowed(body, "/")


def test_rules_of_many_wildcards_are_matched_in_little_time() -> None:
    body = rules_for_all("Disallow: /" + "*a" * 2000 + "b", "Disallow: /*a*a*a*a*a*a*a*a*b$")
    began = time.process_time()
    assert allowed(body, "/" + "a" * 8000)
    assert not allowed(body, "/" + "a" * 8000 + "b")
    assert time.process_time() - began < 0.5


def test_a_file_full_of_agents_and_rules_costs_little() -> None:
    half = parser.MAX_BODY_BYTES // 2
    agents = b"".join(b"User-agent: a%d\n" % n for n in range(half // 20))
    lines = b"".join(b"Disallow: /%d\n" % n for n in range(half // 20))
    began = time.process_time()
    rules = parse(agents + lines)
    assert not rules.allowed("http://example.org/12", "a7")
    for n in range(100):
        assert rules.allowed(f"http://example.org/x{n}", "a7")
    assert time.process_time() - began < 2


# --- crawl-delay, sitemaps, explanations -----------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("2", 2.0), ("0.5", 0.5), ("0", 0.0), ("-1", None), ("nan", None), ("inf", None), ("x", None)],
)
def test_crawl_delay_is_a_number_of_seconds(value: str, seconds: float | None) -> None:
    assert parse(f"User-agent: *\nCrawl-delay: {value}".encode()).crawl_delay(AGENT) == seconds


def test_crawl_delay_is_the_groups_own_and_the_largest() -> None:
    rules = parse(
        b"User-agent: *\nCrawl-delay: 9\nUser-agent: b\nCrawl-delay: 2\nCrawl-delay: 4\n"
        b"Crawl-delay: 3\nUser-agent: c\nDisallow: /"
    )
    assert rules.crawl_delay(AGENT) == 9
    assert rules.crawl_delay("b/1.0") == 4
    assert rules.crawl_delay("c") is None
    assert not rules.allowed("http://example.org/x", "b"), "all of them are one group"
    assert parse(b"").crawl_delay(AGENT) is None


def test_sitemaps_stand_outside_groups() -> None:
    body = b"Sitemap: https://a/s.xml\nUser-agent: *\nDisallow: /\nsite-map : https://a/t.xml # t"
    assert parse(body).sitemaps == ("https://a/s.xml", "https://a/t.xml")


def test_the_line_that_decides_on_a_url_is_named() -> None:
    rules = parse(b"User-agent: *\n  Disallow: /a # secret\nAllow: /a/b\nDisallow: /*.pdf$")
    assert rules.line_for("http://example.org/a/c", AGENT) == "Disallow: /a"
    assert rules.line_for("http://example.org/a/b", AGENT) == "Allow: /a/b"
    assert rules.line_for("http://example.org/x.pdf", AGENT) == "Disallow: /*.pdf$"
    assert rules.line_for("http://example.org/x", AGENT) is None


# --- what the engine asks --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "parse"), (204, "parse"), (304, "allow_all"), (301, "allow_all"), (401, "allow_all"),
        (403, "allow_all"), (404, "allow_all"), (410, "allow_all"), (429, "disallow_all_for_now"),
        (500, "disallow_all_for_now"), (503, "disallow_all_for_now"), (0, "disallow_all_for_now"),
    ],
)  # fmt: skip
def test_the_http_status_of_robots_txt_decides_by_its_class(status: int, verdict: Verdict) -> None:
    assert parser.verdict_for(status) == verdict


def test_the_product_token_is_the_part_before_the_version() -> None:
    assert product_token(AGENT) == "greencrawl"
    assert product_token(" Some-Bot_x ") == "some-bot_x"
    assert product_token("bot (contact)") == "bot"
    assert product_token("") == ""


@pytest.mark.parametrize(("kind", "open_"), [("rules", False), ("allow", True), ("deny", False)])
def test_cached_record_gives_the_same_rules(kind: Kind, open_: bool) -> None:
    body = b"User-agent: *\nDisallow: /x\n" + b"#" * 100_000
    record = parser.pack(kind, body, 1_700_000_000_123)
    assert len(record) < 1000
    cached = parser.unpack(record)
    assert cached is not None
    assert (cached.kind, cached.fetched_ms) == (kind, 1_700_000_000_123)
    assert cached.rules().allowed("http://example.org/x", AGENT) is open_
    assert cached.rules().allowed("http://example.org/y", AGENT) is (kind != "deny")
    assert cached.rules().allowed("http://example.org/robots.txt", AGENT)


def test_a_file_beyond_the_bound_gives_the_same_rules_after_caching() -> None:
    body = b"User-agent: *\n" + b"Disallow: /abcdef\n" * 40_000 + b"Disallow: /late"
    cached = parser.unpack(parser.pack("rules", body, 1))
    assert cached is not None
    assert len(cached.body) <= parser.MAX_BODY_BYTES + 1
    assert not cached.rules().allowed("http://example.org/abcdef", AGENT)
    assert cached.rules().allowed("http://example.org/", AGENT)


@pytest.mark.parametrize("damage", [b"", b"nonsense", parser.pack("rules", b"x" * 99, 1)[:-3]])
def test_a_damaged_record_of_the_cache_is_ignored(damage: bytes) -> None:
    assert parser.unpack(damage) is None
