"""Scope: which links a crawl follows, why not, and how soon."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greencrawl.schema.net.scope import (
    Rules,
    check_options,
    compile,
    level_for,
    redirect_root,
    root_of,
    widened,
)
from greencrawl.schema.records import LEVELS, Crawl, CrawlOptions, Order, Scope, Task


def rules(scope: Scope, *roots: str, **options: object) -> Rules:
    return compile(crawl(scope, *roots, **options))


def crawl(scope: Scope, *roots: str, **options: object) -> Crawl:
    made = CrawlOptions(scope=scope, **options)  # type: ignore[arg-type]
    return Crawl(id=1, name="test", state="active", options=made, roots=roots)


@pytest.mark.parametrize(
    ("scope", "seed", "root"),
    [
        ("host", "https://example.org/docs/", "example.org"),
        ("host", "http://example.org:8080/", "example.org:8080"),
        ("domain", "https://www.example.co.uk:8080/a", "example.co.uk"),
        ("domain", "https://alice.github.io/a", "alice.github.io"),
        ("domain", "http://127.0.0.1:8080/", "127.0.0.1"),
        ("prefix", "https://example.org/docs/index.html", "example.org/docs/"),
        ("prefix", "https://example.org/docs/list?page=1", "example.org/docs/"),
        ("prefix", "https://example.org/docs", "example.org/docs"),
        ("prefix", "https://example.org/", "example.org/"),
        ("any", "https://example.org/", "*"),
    ],
)
def test_the_root_of_a_seed_depends_on_the_scope(scope: Scope, seed: str, root: str) -> None:
    assert root_of(scope, seed) == root
    assert rules(scope, root).excluded_by(seed, 0, seed=True) is None


@pytest.mark.parametrize(
    ("scope", "root", "url", "inside"),
    [
        ("host", "example.org", "http://example.org/x", True),
        ("host", "example.org", "https://example.org/x", True),
        ("host", "example.org", "https://example.org:8443/x", False),
        ("host", "example.org", "https://www.example.org/x", False),
        ("host", "example.org", "https://example.org.evil.example/x", False),
        ("domain", "example.org", "https://a.b.example.org:8443/x", True),
        ("domain", "example.org", "https://notexample.org/x", False),
        ("domain", "alice.github.io", "https://bob.github.io/", False),
        ("prefix", "example.org/docs/", "http://example.org/docs/a?b", True),
        ("prefix", "example.org/docs/", "http://example.org/doc", False),
        ("prefix", "example.org/docs/", "http://example.org:8080/docs/a", False),
        ("prefix", "example.org/docs/", "http://other.example/example.org/docs/", False),
        ("prefix", "example.org", "http://example.org/docs/", True),
        ("prefix", "example.org", "http://example.org.evil.example/", False),
        ("any", "*", "http://whatever.example/", True),
    ],
)
def test_scope_decides_by_host_domain_or_prefix(
    scope: Scope, root: str, url: str, inside: bool
) -> None:
    reason = rules(scope, root).excluded_by(url, 1)
    assert reason == (None if inside else f"scope {scope}: not one of {root}")


def test_the_reason_of_an_exclusion_names_the_first_roots_and_counts_the_rest() -> None:
    many = rules("host", "d.org", "b.org", "a.org", "c.org", "e.org")
    reason = many.excluded_by("http://x.org/", 0)
    assert reason == "scope host: not one of a.org, b.org, c.org and 2 more"
    assert rules("host").excluded_by("http://x.org/", 0) == "scope host: not one of none"


def test_a_url_beyond_the_depth_limit_is_excluded() -> None:
    shallow = rules("any", "*", depth=2)
    assert shallow.excluded_by("http://x.org/", 2) is None
    assert shallow.excluded_by("http://x.org/", 3) == "depth 3 > 2"


def test_patterns_search_the_whole_canonical_url_and_the_reason_names_one() -> None:
    both = rules(
        "any", "*", include=(r"/docs/", r"^https://a\."), exclude=(r"\.pdf$", r"(?i)SORT=")
    )
    assert both.excluded_by("http://x.org/docs/a", 1) is None
    assert both.excluded_by("https://a.org/", 1) is None
    assert both.excluded_by("http://x.org/other", 1) == "include: matches none"
    assert both.excluded_by("http://x.org/docs/a.pdf", 1) == r"exclude pattern '\\.pdf$'"
    assert both.excluded_by("http://x.org/docs/?sort=1", 1) == "exclude pattern '(?i)SORT='"


def test_a_seed_is_exempt_from_include_but_from_no_other_rule() -> None:
    strict = rules("host", "x.org", include=("/docs/",), exclude=("secret",))
    assert strict.excluded_by("http://x.org/", 0) == "include: matches none"
    assert strict.excluded_by("http://x.org/", 0, seed=True) is None
    assert strict.excluded_by("http://x.org/secret", 0, seed=True) == "exclude pattern 'secret'"
    assert strict.excluded_by("http://y.org/", 0, seed=True) == "scope host: not one of x.org"


@pytest.mark.parametrize(
    ("scope", "root", "from_url", "to_url", "added"),
    [
        (
            "host",
            "example.org",
            "http://example.org/",
            "https://www.example.org/",
            "www.example.org",
        ),
        ("host", "example.org", "http://example.org/", "https://example.org/", None),
        ("host", "example.org", "http://example.org/", "http://other.org/", None),
        ("host", "a.github.io", "http://a.github.io/", "http://b.github.io/", None),
        ("host", "localhost:1", "http://localhost:1/", "http://localhost:2/", "localhost:2"),
        ("domain", "example.org", "http://example.org/", "http://www.example.org/", None),
        ("any", "*", "http://example.org/", "http://www.example.org/", None),
        ("prefix", "a.org/d/", "http://a.org/d/", "http://www.a.org/d/en/", "www.a.org/d/"),
        ("prefix", "a.org/d/", "http://a.org/d/", "http://www.a.org/e/x.html", "www.a.org/e/"),
        ("prefix", "a.org/d/", "http://a.org/d/", "http://www.a.org/", None),
        ("prefix", "a.org/d/", "http://a.org/d/", "http://a.org/e/", None),
    ],
)
def test_a_redirected_seed_extends_the_scope_within_its_own_domain(
    scope: Scope, root: str, from_url: str, to_url: str, added: str | None
) -> None:
    assert redirect_root(rules(scope, root), from_url, to_url) == added
    if added is not None:
        assert rules(scope, root, added).excluded_by(to_url, 0) is None
        assert redirect_root(rules(scope, root, added), from_url, to_url) is None


def test_order_breadth_serves_near_urls_first_and_order_depth_far_urls() -> None:
    depths = range(LEVELS + 20)
    breadth = [level_for("breadth", depth, None, "http://x.org/") for depth in depths]
    assert breadth == [min(depth, LEVELS - 1) for depth in depths]
    deep = [level_for("depth", depth, None, "http://x.org/") for depth in depths]
    assert deep == [LEVELS - 1 - level for level in breadth]


@pytest.mark.parametrize("score", [0.0, 0.5, 1.0, -3.0, 7.0, math.inf, -math.inf, math.nan, None])
@pytest.mark.parametrize("order", ["breadth", "depth", "best"])
def test_the_level_of_a_url_is_always_one_that_exists(order: Order, score: float | None) -> None:
    for depth in (0, 1, 10_000):
        assert 0 <= level_for(order, depth, score, "http://x.org/a/b?c") < LEVELS


def test_order_best_serves_high_scores_first_and_guesses_if_there_is_no_score() -> None:
    url = "http://x.org/a/b"
    assert level_for("best", 5, 1.0, url) == 0
    assert level_for("best", 0, 0.0, url) == LEVELS - 1
    near, far = level_for("best", 0, None, url), level_for("best", 9, None, url)
    assert near < far
    assert near < level_for("best", 0, None, url + "/c/d/e?f=g")
    assert level_for("best", 0, math.nan, url) == near


def test_options_that_cannot_work_are_all_named() -> None:
    options = CrawlOptions(
        seeds=("http://example.org/", "mailto:a@example.org"),
        include=("fine", "(open"),
        exclude=("*", "a{2000}"),
        slots=4,
        delay=1.5,
    )
    problems = dict(check_options(options))
    assert list(problems) == ["seeds[1]", "include[1]", "exclude[0]", "exclude[1]", "slots"]
    assert "(open" in problems["include[1]"]
    assert "1.5" in problems["slots"]


def test_options_that_work_have_no_problems() -> None:
    assert check_options(CrawlOptions()) == []
    assert check_options(CrawlOptions(slots=4, delay=0, seeds=("http://a.org",))) == []


def test_target_of_a_redirect_is_judged_like_its_source() -> None:
    made = rules("host", "h", include=("/articles/",))
    assert made.judge(Task(1, "http://h/"), "http://h/start") is None, "a seed's"
    article = Task(2, "http://h/articles/1", depth=1)
    assert made.judge(article, "http://h/start") == "include: matches none"
    assert "scope host" in str(made.judge(article, "http://elsewhere/articles/"))


def test_only_patterns_of_old_crawls_may_backtrack() -> None:
    made = rules("host", "h", include=("/(a+)+$",), exclude=("secret", "private"))
    assert not made.backtracks
    endless = f"http://h/{'a' * 5000}!"
    assert made.excluded_by(endless, 1) == "include: matches none", "at once"
    old = rules("host", "h", exclude=("secret", "/(?=x)"))
    assert old.backtracks
    assert old.excluded_by("http://h/x", 1) == "exclude pattern '/(?=x)'"
    assert old.excluded_by("http://h/y", 1) is None


@pytest.mark.parametrize("pattern", ["/(?!en)", "(a)/\\1", "(?<=a)b", "a{1,2000}"])
def test_new_patterns_that_may_backtrack_are_refused_with_the_reason(pattern: str) -> None:
    ((field, what),) = check_options(CrawlOptions(exclude=("fine", pattern)))
    assert field == "exclude[1]"
    assert repr(pattern) in what
    assert "bounded time" in what


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"exclude": ("/a",)}, None),
        ({"exclude": ("/a",)}, {"exclude": ("/b", "/a")}, None),
        ({"exclude": ("/a",)}, {"exclude": ("/b",)}, "exclude"),
        ({"exclude": ("/a",)}, {}, "exclude"),
        ({}, {"include": ("/a",)}, None),
        ({"include": ("/a", "/b")}, {"include": ("/b",)}, None),
        ({"include": ("/a", "/b")}, {}, "include"),
        ({"include": ("/a",)}, {"include": ("/b",)}, "include"),
        ({"nofollow": "follow"}, {}, None),
        ({}, {"nofollow": "follow"}, "nofollow skip → follow"),
        ({"requisites": "on"}, {}, None),
        ({}, {"requisites": "on"}, "requisites off → on"),
        ({"links": ("iframe",)}, {"links": ("-iframe",)}, None),
        ({"links": ("-iframe",)}, {}, "links"),
        ({"follow_actions": ("/a", "/b")}, {"follow_actions": ("/a",)}, None),
        ({"follow_actions": ("/a",)}, {"follow_actions": ("/b",)}, "follow_actions"),
        ({"depth": 3}, {"depth": 2}, None),
        ({"depth": 2}, {"depth": 3, "exclude": ("/a",)}, "depth 2 → 3"),
    ],
)
def test_a_change_of_options_widens_a_crawl_only_if_more_links_may_be_followed(
    before: dict[str, Any], after: dict[str, Any], why: str | None
) -> None:
    found = widened(crawl("host", "h", **before), crawl("host", "h", **after))
    assert (found and found[1]) == why


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (("any", "*"), ("any", "*", "a.org"), None),
        (("any", "*"), ("host", "*", "a.org"), None),
        (("domain", "a.org"), ("host", "a.org", "www.a.org"), None),
        (("domain", "a.org"), ("host", "a.org", "b.org"), "seeds elsewhere"),
        (("domain", "a.org", "www.b.org"), ("host", "a.org", "www.b.org"), "seeds elsewhere"),
        (("domain", "a.org"), ("prefix", "a.org", "www.a.org/docs/"), None),
        (("host", "a.org"), ("prefix", "a.org", "a.org/docs/"), None),
        (("host", "a.org"), ("prefix", "a.org", "b.org/docs/"), "seeds elsewhere"),
        (("host", "a.org"), ("host", "a.org", "b.org"), "seeds elsewhere"),
        (("prefix", "a.org/"), ("host", "a.org/", "a.org"), "scope prefix → host"),
        (("host", "a.org"), ("any", "a.org", "*"), "scope host → any"),
    ],
)
def test_a_scope_widens_by_its_kind_and_by_its_roots(
    before: tuple[Scope, str], after: tuple[Scope, str], why: str | None
) -> None:
    found = widened(crawl(*before), crawl(*after))
    assert (found and found[1]) == why
