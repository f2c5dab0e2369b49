"""The result of a crawl in the store, as plain sets for comparison."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from greencrawl.store import open_store


@dataclass
class Stored:
    """URLs by their final place.

    ``tries`` counts journalled attempts of each URL that has a final state.
    """

    pages: set[str] = field(default_factory=set)
    redirects: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    parked: set[str] = field(default_factory=set)
    tries: Counter[str] = field(default_factory=Counter)
    rows: int = 0


def read_stored(data: Path, name: str = "test") -> Stored:
    """Read the SQLite store below the data folder ``data``."""
    store = open_store(f"sqlite:///{data / 'content.sqlite'}")
    result = Stored()
    try:
        crawl = store.crawl(name).id
        for _, page in store.pages(crawl):
            result.rows += 1
            (result.redirects if 300 <= page.status < 400 else result.pages).add(page.url)
        for _, final in store.finals(crawl):
            getattr(result, final.state).add(final.url)
            result.tries[final.url] = len(store.attempts(crawl, final.fingerprint, 1000))
    finally:
        store.close()
    return result
