"""The fields of a page and of a final state in an export, and the cells of a table."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from greencrawl.schema.records import Directives, Final, StoredPage
from greencrawl.store.bodies import has_body

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Characters that begin a formula in a spreadsheet, full-width ones too."""


def defused(value: object) -> object:
    """Return a cell's value, with an apostrophe before it if it would be taken for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def page_object(page: StoredPage, *, bodies: bool = False) -> dict[str, Any]:
    """Return a page as a JSON object; ``body`` in base64 only with ``bodies``, null if not kept."""
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
        "canonical": page.canonical,
        "directives": _directives_object(page.directives),
        "fields": page.fields,
        "links": [link.url for link in page.links],
    }
    if bodies:
        shown["body"] = base64.b64encode(page.body).decode("ascii") if has_body(page) else None
    return shown


def _directives_object(said: Directives | None) -> dict[str, Any] | None:
    if said is None:
        return None
    named: dict[str, Any] = to_builtins(said)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in named.items()
    }


def final_object(final: Final) -> dict[str, Any]:
    """Return a URL without a page as a JSON object: its final state, and why."""
    return {
        "url": final.url,
        "state": final.state,
        "kind": final.kind,
        "detail": final.detail,
        "status": final.code,
        "depth": final.depth,
        "at": iso8601(final.at_ms),
        **({"shape": final.shape} if final.state == "parked" else {}),
    }


def iso8601(epoch_ms: int) -> str | None:
    """Return UTC with milliseconds, as in 2026-03-01T12:00:00.250Z; None for a year beyond 9999."""
    try:
        moment = datetime.fromtimestamp(epoch_ms // 1000, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment.isoformat()}.{epoch_ms % 1000:03d}Z"
