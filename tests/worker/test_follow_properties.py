"""Links of a page without hooks take a shorter path, which must give the same result."""

from __future__ import annotations

from contextlib import suppress
from html import escape

from hypothesis import example, given, settings
from hypothesis import strategies as st

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.scope import level_for
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Admission, Crawl, CrawlOptions, Fetched, Link, Page, Task
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import extract
from greencrawl.worker.kernels.http import read
from tests.support.effort import examples

URL = "https://h.example.org/docs/a/page.html?q=1"

REFERENCES = st.one_of(
    st.sampled_from(
        [
            "", "#", "#top", "?", "?x=1", "?中", "/", "/x", "/x#y", "/x?#", "//h.example.org/x",
            "x", "../x", "./x", "..", "/docs/a/x", "/docs/./x", "x?y=%2e", "x%2e/y", "http:x",
            "https:x", "https:", "https:?z", "http://h.example.org/x", "https://h.example.org/docs/a/x",
            "HTTPS://H.EXAMPLE.ORG/x", "https://u:p@h.example.org/x", "https://example.org/x",
            "https://h.example.org:8080/x", "https://h.example.org.evil.example/x", "mailto:a@b.c",
            "https://other.example/", "javascript:void(0)", "ht\ttps:?x", " /x ", "ſ:x", "https://[",
        ]
    ),
    st.text("/.?#%:&=ax中 \t", max_size=6),
)  # fmt: skip
RELS = st.sampled_from(
    [None, "", "nofollow", "NoFollow ugc", "noopener", "sponsored nofollow", "next", "prev x"]
)
ELEMENTS = st.one_of(
    *[st.tuples(st.just("a"), REFERENCES, RELS)] * 5,
    st.tuples(
        st.sampled_from(["area", "link", "frame", "iframe", "meta", "img"]), REFERENCES, RELS
    ),
)
BASES = st.one_of(
    st.none(), st.none(), st.sampled_from(["/docs/b/", "//other.example/", "mailto:x", "?", ""])
)
ROOTS = {
    "any": "*",
    "host": "h.example.org",
    "domain": "example.org",
    "prefix": "h.example.org/docs/",
}
PATTERNS = st.sampled_from([(), (), ("x$",), (r"\?",)])


def markup(tag: str, reference: str, rel: str | None) -> str:
    value = escape(reference)
    if tag == "meta":
        return f'<meta http-equiv="refresh" content="0;url={value}">'
    name = "src" if tag in ("frame", "iframe", "img") else "href"
    beside = "" if rel is None else f' rel="{rel}"'
    return f'<{tag} {name}="{value}"{beside}>x' + ("</a>" if tag == "a" else "")


def plainly(context: CrawlContext, page: Page, depth: int) -> list[Admission]:
    """Return the admissions for a page's links, one after the other, without any memory."""
    order = context.options.order
    if not page.follow or depth + 1 > context.options.depth:
        return []
    return [
        Admission(link.url, depth + 1, level_for(order, depth + 1, None, link.url))
        for link in page.links
        if "nofollow" not in link.rel.split()
        and context.rules.excluded_by(link.url, depth + 1) is None
    ]


def merged(references: list[tuple[str, str]], base: str) -> list[Link]:
    """Merge links as ``collect`` does: the first one stays and keeps the rel words that all
    have."""
    rels: dict[str, list[list[str]]] = {}
    for reference, rel in references:
        with suppress(InvalidUrl):  # it is not a link
            rels.setdefault(canonicalise(reference, base), []).append(rel.lower().split())
    return [
        Link(url, rel=" ".join(word for word in first if all(word in rest for rest in others)))
        for url, (first, *others) in rels.items()
    ]


@given(
    st.lists(ELEMENTS, max_size=12),
    BASES,
    st.sampled_from(sorted(ROOTS)),
    PATTERNS,
    PATTERNS,
    st.sampled_from(["breadth", "depth", "best"]),
    st.integers(0, 3),
    st.booleans(),
)
@example([("a", "/x", "nofollow"), ("a", "/y", None), ("a", "/x", None)], None, "any", (), (),
         "breadth", 0, True)  # fmt: skip
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_the_reading_of_a_page_follows_the_same_links_as_a_plain_check(
    elements: list[tuple[str, str, str | None]],
    base: str | None,
    scope: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    order: str,
    depth: int,
    follow: bool,
) -> None:
    body = "<head>" if base is None else f'<head><base href="{base}">'
    body += "" if follow else "<meta name=robots content=nofollow>"
    body += "".join(markup(*element) for element in elements)
    options = CrawlOptions(
        scope=scope, include=include, exclude=exclude, order=order, depth=2  # type: ignore[arg-type]
    )  # fmt: skip
    context = context_of(
        Crawl(id=1, name="t", state="active", options=options, roots=(ROOTS[scope],))
    )
    fetched = Fetched(URL, 200, {"content-type": "text/html"}, body.encode())
    page = extract(body.encode(), URL, "text/html")
    expected = plainly(context, page, depth)
    for _ in range(2):  # verdicts may be remembered
        assert read(context, Task(1, URL, depth=depth), fetched).links == expected
    assert context.checker.check(page, page.links, depth) == expected


@given(st.lists(st.tuples(REFERENCES, RELS), max_size=12), st.sampled_from([None, "/docs/b/"]))
@settings(max_examples=examples(200, 10_000), deadline=None)
def test_extracted_links_equal_those_that_a_parser_reads_one_by_one(
    anchors: list[tuple[str, str | None]], base: str | None
) -> None:
    body = f'<base href="{base}">' if base else ""
    body += "".join(markup("a", *anchor) for anchor in anchors)
    page = extract(body.encode(), URL, "text/html; charset=utf-8", anchors=False)
    # The HTML parser drops some characters, too: for example, a tab at the end.
    wanted = [(text, rel or "") for text, rel in anchors if base or text[:1] not in ("", "#")]
    assert page.links == merged(wanted, canonicalise(base or URL, URL))
