"""Two stores that should have the same crawl: every row of both, and their differences.

Values that differ between any two runs are left out: times, names of processes, and values that
depend on the order of pages (a depth, a URL's place among others).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from greencrawl.store.base import Store

VOLATILE = frozenset({"date", "age", "last-modified", "etag", "expires", "set-cookie"})
"""Headers that a server may change for each answer."""


@dataclass
class Rows:
    """The rows of a crawl in a store, by URL."""

    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    finals: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    attempts: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    versions: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def rows(store: Store, name: str) -> Rows:
    """Read all of a crawl, with bodies."""
    crawl = store.crawl(name).id
    found = Rows(counts=store.counts(crawl))
    for _, page in store.pages(crawl, detail="body"):
        found.pages[page.url] = {
            "final_url": page.final_url,
            "status": page.status,
            "headers": {k: v for k, v in page.headers.items() if k not in VOLATILE},
            "body": page.body,
            "body_bytes": page.body_bytes,
            "truncated": page.truncated,
            "title": page.title,
            "text": page.text,
            "language": page.language,
            "encoding": page.encoding,
            "fields": page.fields,
            "digest": page.digest,
            "links": sorted(link.url for link in page.links),
        }
        found.versions[page.url] = [
            (version.status, version.changed, version.digest, version.body_bytes)
            for version in store.history(crawl, page.fingerprint)
        ]
        found.attempts[page.url] = _tries(store, crawl, page.fingerprint)
    for _, final in store.finals(crawl):
        found.finals[final.url] = (final.state, final.kind, final.detail, final.code)
        found.attempts[final.url] = _tries(store, crawl, final.fingerprint)
    return found


def _tries(store: Store, crawl: int, fingerprint: int) -> Counter[tuple[Any, ...]]:
    tries = store.attempts(crawl, fingerprint, 1000)
    return Counter((one.url, one.code, one.kind, one.errors, one.detail) for one in tries)


def differences(one: Rows, other: Rows) -> list[str]:
    """Return what is only in one of them, or differs; empty when they are equal."""
    found: list[str] = []
    for part in ("pages", "finals", "attempts", "versions"):
        left, right = getattr(one, part), getattr(other, part)
        found += [f"{part}: only the first has {url}" for url in _sorted(left.keys() - right)]
        found += [f"{part}: only the second has {url}" for url in _sorted(right.keys() - left)]
        for url in _sorted(left.keys() & right):
            if left[url] != right[url]:
                found.append(f"{part} of {url}: {_where(left[url], right[url])}")
    if one.counts != other.counts:
        found.append(f"counts: {one.counts} and {other.counts}")
    return found


def _sorted(urls: Iterable[str]) -> list[str]:
    return sorted(urls)


def _where(left: Any, right: Any) -> str:
    if isinstance(left, dict) and not isinstance(left, Counter):
        parts = [name for name in left if left[name] != right[name]]
        return ", ".join(f"{p} {left[p]!r:.80} and {right[p]!r:.80}" for p in parts)
    return f"{left!r:.150} and {right!r:.150}"
