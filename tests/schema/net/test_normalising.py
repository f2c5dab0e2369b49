"""Rules by which URLs count as one: what each rewrites, and what none of them changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.normalising import RULES, normalise, queued_url, rewriter
from greencrawl.schema.net.urls import MAX_URL, canonicalise
from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.records.auth import Source
from tests.schema.net.test_url_properties import URLS, canonical_or_none
from tests.support.effort import examples

CASES = {
    "percent": [
        ("/%7Ea/%c3%A9", "/~a/%C3%A9"),
        ("/a%2fb?c=%26", "/a%2Fb?c=%26"),
        ("/a|b?c=[1]&d={}", "/a%7Cb?c=%5B1%5D&d=%7B%7D"),
        ("/100%", "/100%25"),
        ("/%zz?%4", "/%25zz?%254"),
    ],
    "host-dot": [("http://example.org./a", "http://example.org/a"),
                 ("http://example.org.:81/a", "http://example.org:81/a"),
                 ("http://[::1]/a.", "http://[::1]/a.")],
    "session-ids": [
        ("/a;jsessionid=0A1B?b=1", "/a?b=1"),
        ("/a;JSESSIONID=0A1B/c;v=1", "/a/c;v=1"),
        ("/x/..;jsessionid=1/a", "/a"),
        ("/(S(lit3py55t21z5v55vlm25s55))/a", "/a"),
        ("/a?PHPSESSID=1", "/a"),
        ("/a?b=1&sid=0123456789abcdef&c=2", "/a?b=1&c=2"),
        ("/a?sid=blue&s=tea", "/a?sid=blue&s=tea"),
        ("/a?ASPSESSIONIDQQ=X&x", "/a?x"),
    ],
    "slashes": [("//a///b//?c=//d", "/a/b/?c=//d"), ("/web/http://x.org//a", "/web/http://x.org/a")],
    "index": [
        ("/a/index.html", "/a/"), ("/INDEX.PHP?x=1", "/?x=1"), ("/default.aspx", "/"),
        ("/index.html/", "/index.html/"), ("/myindex.html", "/myindex.html"),
        ("/index.htmlx", "/index.htmlx"), ("/?/index.html", "/?/index.html"),
    ],
    "tracking": [
        ("/a?utm_source=x&UTM_Medium=y", "/a"), ("/a?b=1&gclid=2&c", "/a?b=1&c"),
        ("/a?utm=1&sgclid=2", "/a?utm=1&sgclid=2"), ("/a?x=utm_source=1", "/a?x=utm_source=1"),
    ],
    "empty": [("/a?", "/a"), ("/a?&b=&&c&=1", "/a?b&c"), ("/a?b==", "/a?b==")],
    "query-order": [
        ("/a?b=1&a=2&b=0", "/a?a=2&b=1&b=0"), ("/a?q=1;b=2", "/a?q=1;b=2"), ("/a?", "/a?"),
    ],
}  # fmt: skip
SAID = [(rule, url, want) for rule, cases in CASES.items() for url, want in cases]


def absolute(url: str) -> str:
    return url if url.startswith("http") else f"http://h{url}"


@pytest.mark.parametrize(("rule", "url", "want"), SAID)
def test_each_rule_rewrites_its_own_case_and_no_url_changes_without_rules(
    rule: str, url: str, want: str
) -> None:
    assert normalise(absolute(url), [rule]) == absolute(want)
    assert normalise(absolute(url), []) == canonicalise(absolute(url))


def test_each_rule_has_a_test_case() -> None:
    assert set(CASES) == set(RULES)


def test_rules_also_rewrite_what_another_rule_leaves() -> None:
    url = "HTTP://Example.org.//shop//index.php;jsessionid=1?utm_s=1&b=&%61=1&utm_source=x&&#top"
    assert normalise(url, RULES) == "http://example.org/shop/?a=1&b"


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(InvalidConfig, match="there is no rule 'www'"):
        normalise("http://h/", ["index", "www"])
    with pytest.raises(InvalidUrl):
        normalise("mailto:me@h", RULES)


def test_a_url_stays_as_it_is_if_its_rewritten_form_would_be_too_long() -> None:
    url = "http://h/" + "|" * (MAX_URL - 9)
    assert normalise(url, ["percent"]) == url


def test_the_own_url_of_a_source_is_not_rewritten() -> None:
    source = Source(url="http://h/list?b=1&a=2", items="items")
    options = CrawlOptions(normalise=("query-order",), sources=(source,))
    assert queued_url(options, "HTTP://h/list?b=1&a=2") == "http://h/list?b=1&a=2"
    assert queued_url(options, "HTTP://h/other?b=1&a=2") == "http://h/other?a=2&b=1"
    assert queued_url(CrawlOptions(), "HTTP://h/other?b=1&a=2") == "http://h/other?b=1&a=2"


@given(URLS, st.frozensets(st.sampled_from(RULES)))
@settings(max_examples=examples(300, 10_000), deadline=None)
def test_rules_make_canonical_urls_and_are_idempotent(url: str, rules: frozenset[str]) -> None:
    canonical = canonical_or_none(url)
    if canonical is None:
        return
    once = rewriter(rules)(canonical)
    assert canonicalise(once) == once
    assert rewriter(rules)(once) == once
