"""Which kernel handles a URL and an answer, and how rules match."""

from __future__ import annotations

import time

import pytest

from greencrawl.schema.net.scope import check_options
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, KernelRule, Task, TaskKind
from greencrawl.schema.records.auth import Source
from greencrawl.schema.text.kernel_rules import KernelRules, check_kernels, own_code, own_kernels
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.kernels import choosing
from greencrawl.worker.kernels.own import OwnKernel

LINES = "tests.support.own_kernels:Plain"
RSS = b"<rss><channel><item><link>http://h/a</link></item></channel></rss>"
MAP = b"<urlset><url><loc>http://h/a</loc></url></urlset>"


def rule(match: str, kernel: str = LINES) -> KernelRule:
    return KernelRule(match=match, kernel=kernel)


def context(*kernels: KernelRule, **options: object) -> CrawlContext:
    made = CrawlOptions(kernels=kernels, **options)  # type: ignore[arg-type]
    return context_of(Crawl(id=1, name="t", state="active", options=made, roots=("h",)))


def read_by(
    of: CrawlContext, url: str, kind: str = "", body: bytes = b"", task: Task | None = None
) -> str:
    fetched = Fetched(url, 200, {"content-type": kind} if kind else {}, body)
    way = choosing.reading(of, task or Task(1, url, 1), fetched)
    return way.kernel.name if way.reads else ""


@pytest.mark.parametrize(
    ("match", "url", "holds"),
    [
        ("http://h/a", "http://h/a", True),
        ("http://h/a", "http://h/ab", False),
        ("http://h/a", "http://g/?http://h/a", False),
        ("http://h/*", "http://h/a/b?c=d", True),
        ("http://h/*", "https://h/a", False),
        ("*://h/*.csv", "https://h/x.csv", True),
        ("*://h/*.csv", "https://h/xcsv", False),
        ("http*.json?page=*", "https://h/feed.json?page=2", True),
        ("http://h/a+b(c)", "http://h/a+b(c)", True),
        ("http://h/%C3%A9*", "http://h/%C3%A9t%C3%A9", True),
        ("*", "http://h/", True),
    ],
)
def test_the_pattern_of_a_kernel_rule_matches_a_whole_url_with_stars(
    match: str, url: str, holds: bool
) -> None:
    assert KernelRules((rule(match),)).named(url) == (LINES if holds else "")


def test_the_first_kernel_rule_that_matches_counts() -> None:
    rules = KernelRules((rule("http://h/a*", "http"), rule("http://h/*", "feed")))
    assert [rules.named(f"http://h/{name}") for name in ("ab", "b")] == ["http", "feed"]


def test_a_pattern_of_many_stars_is_matched_in_linear_time() -> None:
    rules = KernelRules((rule("http://" + "*a" * 500 + "*b"),))
    began = time.thread_time()
    assert rules.named("http://" + "a" * 8000) == ""
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        (rule("h/*"), "kernels[0].match", "must be a URL"),
        (rule("http://h/*", "json"), "kernels[0].kernel", "reads `sources`"),
        (rule("http://h/*", "browser"), "kernels[0].kernel", "module:Class"),
        (rule("http://h/*", "a b:C"), "kernels[0].kernel", "module:Class"),
        (rule("http://h/*", "a.b:"), "kernels[0].kernel", "module:Class"),
    ],
)
def test_an_invalid_kernel_rule_is_refused_with_its_field(
    given: KernelRule, field: str, says: str
) -> None:
    ((where, what),) = check_options(CrawlOptions(kernels=(given,)))
    assert (where, says in what) == (field, True)
    assert check_kernels((rule("*", "http"), rule("https://h/*", "feed"), rule("*"))) == []


def test_hook_and_kernels_of_a_crawl_have_one_short_name_together() -> None:
    def named(*kernels: KernelRule, hook: str = "") -> str:
        return own_code(CrawlOptions(hook=hook, kernels=kernels))

    assert named() == named(rule("*", "http")) == ""
    assert named(hook="shop") == "shop"
    assert named(rule("*"), rule("http://h/*"), hook="shop") == f"shop, {LINES}"
    long = [rule("*", f"module_{n}:Kernel") for n in range(40)]
    assert len(named(*long)) <= 256
    assert named(*long) != named(*long[:-1])
    assert own_kernels(CrawlOptions(kernels=(rule("*", "http"), rule("*")))) == (LINES,)


def test_the_content_chooses_the_kernel_if_no_rule_matches() -> None:
    of = context(sources=(Source(url="http://h/api", items="urls"),))
    assert read_by(of, "http://h/", "text/html") == "http"
    assert read_by(of, "http://h/a.txt", "text/plain") == "http"
    assert read_by(of, "http://h/i", "image/png") == ""
    assert read_by(of, "http://h/x", "text/xml", MAP) == "sitemap"
    assert read_by(of, "http://h/x", "text/xml", RSS) == "feed"
    assert read_by(of, "http://h/api?page=2", "text/html") == "json"
    asked = Task(1, "http://h/x", 1, kind=TaskKind.SITEMAP)
    assert read_by(of, "http://h/x", "image/png", task=asked) == ""
    assert choosing.fetching(of, asked).name == "sitemap"
    assert choosing.fetching(of, Task(1, "http://h/api", 1)).name == "json"
    assert choosing.fetching(of, Task(1, "http://h/", 1)).name == "http"


def test_a_kernel_rule_goes_before_content_and_before_a_source() -> None:
    source = Source(url="http://h/own/api", items="urls")
    rules = rule("http://h/own/*"), rule("http://h/f/*", "feed"), rule("http://h/p/*", "http")
    of = context(*rules, sources=(source,))
    assert read_by(of, "http://h/own/api", "application/json") == "lines"
    assert of.listing("http://h/own/api") is None
    assert read_by(of, "http://h/f/a", "text/html") == "feed"
    assert read_by(of, "http://h/p/a", "text/xml", RSS) == "", "the default kernel reads pages"
    assert read_by(of, "http://h/p/a", "text/html") == "http"
    assert choosing.fetching(of, Task(1, "http://h/f/a", 1)).name == "feed"


def test_a_kernel_without_a_fetch_of_its_own_is_not_asked_to_fetch() -> None:
    of = context(rule("http://h/a"), rule("http://h/b", "tests.support.own_kernels:Asking"))
    assert choosing.fetching(of, Task(1, "http://h/a")).name == "http"
    own = choosing.fetching(of, Task(1, "http://h/b"))
    assert isinstance(own, OwnKernel)
    assert of.kernels.fetching
    assert not context(rule("http://h/a")).kernels.fetching
