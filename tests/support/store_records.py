"""Records for tests of stores, distinguished by their fingerprints."""

from __future__ import annotations

import hashlib
from typing import Any

from greencrawl.schema.records import Admission, Attempt, Final, Overflow, StoredPage


def digest(body: bytes) -> bytes:
    """Return the digest that a worker notes for a body."""
    return hashlib.sha256(body).digest()[:16]


def page(crawl: int, fingerprint: int, fetched_ms: int = 1000, **more: Any) -> StoredPage:
    url = f"http://example.org/{fingerprint}"
    more.setdefault("final_url", url)
    more.setdefault("status", 200)
    if more.get("body"):
        more.setdefault("digest", digest(more["body"]))
    return StoredPage(crawl=crawl, fingerprint=fingerprint, url=url, fetched_ms=fetched_ms, **more)


def final(crawl: int, fingerprint: int, at_ms: int = 1000, state: str = "dead") -> Final:
    return Final(
        crawl=crawl,
        fingerprint=fingerprint,
        url=f"http://example.org/{fingerprint}",
        state=state,  # type: ignore[arg-type]
        kind="timeout",
        detail="after 5 tries",
        depth=2,
        level=3,
        at_ms=at_ms,
    )


def attempt(crawl: int, fingerprint: int, at_ms: int = 1000, **more: Any) -> Attempt:
    more = {"code": 200, "kind": "ok", "errors": 0, "elapsed_ms": 100, **more}
    more.setdefault("url", f"http://example.org/{fingerprint}")
    return Attempt(crawl=crawl, fingerprint=fingerprint, at_ms=at_ms, **more)


def beyond(levels: list[int], host: str, first: int = 10) -> list[Overflow]:
    """Return rows of partition 7 with fingerprints from ``first`` on."""
    return [
        Overflow(first + n, 7, Admission(f"http://{host}/{first + n}", level=level))
        for n, level in enumerate(levels)
    ]


def links(*urls: str, depth: int = 1) -> list[Admission]:
    return [Admission(url, depth) for url in urls]


def urls(stored: StoredPage | None) -> set[str]:
    assert stored is not None
    return {link.url for link in stored.links}
