"""What an export says of a page and of a final state, and the plain export as JSON Lines."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

from schema import wire
from schema.records import Final, StoredPage
from store.base import Store
from store.bodies import has_body


def export_jsonl(store: Store, crawl: int, out: TextIO | BinaryIO, *, bodies: bool = False) -> int:
    """Write the crawl to ``out`` and return the number of lines; memory does not grow with it.

    Pages come first, in the order in which they were first stored, then final states (with a
    ``state`` of dead, gone or excluded) by fingerprint. Each line is one ``write`` of whole lines
    in UTF-8, so that an interrupt leaves none half written unless ``out`` itself splits writes.
    Raises UnknownCrawl, Unavailable, and what ``out`` raises.
    """
    store.crawl(crawl)
    text = hasattr(out, "encoding")
    lines = 0
    for line in _lines(store, crawl, bodies):
        out.write(line.decode() if text else line)  # type: ignore[arg-type]
        lines += 1
    return lines


def _lines(store: Store, crawl: int, bodies: bool) -> Iterator[bytes]:
    for _, page in store.pages(crawl, detail="body" if bodies else "text"):
        yield wire.to_json(page_object(page, bodies=bodies)) + b"\n"
    for _, final in store.finals(crawl):
        yield wire.to_json(final_object(final)) + b"\n"


def page_object(page: StoredPage, *, bodies: bool = False) -> dict[str, Any]:
    """The JSON object of a page; ``body`` in base64 only with ``bodies``, null if not kept."""
    shown: dict[str, Any] = {
        "url": page.url,
        "final_url": page.final_url,
        "state": "fetched",
        "status": page.status,
        "headers": page.headers,
        "fetched": iso8601(page.fetched_ms),
        "elapsed_ms": page.elapsed_ms,
        "depth": page.depth,
        "title": page.title,
        "text": page.text,
        "language": page.language,
        "encoding": page.encoding,
        "truncated": page.truncated,
        "fields": page.fields,
        "links": [link.url for link in page.links],
    }
    if bodies:
        shown["body"] = base64.b64encode(page.body).decode("ascii") if has_body(page) else None
    return shown


def final_object(final: Final) -> dict[str, Any]:
    """The JSON object of a URL without a page: what it came to, and why."""
    return {
        "url": final.url,
        "state": final.state,
        "kind": final.kind,
        "detail": final.detail,
        "status": final.code,
        "depth": final.depth,
        "at": iso8601(final.at_ms),
    }


def iso8601(epoch_ms: int) -> str | None:
    """UTC with milliseconds, as in 2026-03-01T12:00:00.250Z; None for a time no calendar has."""
    try:
        moment = datetime.fromtimestamp(epoch_ms // 1000, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment.isoformat()}.{epoch_ms % 1000:03d}Z"
