"""Texts for people about a sitemap at the usual place, which nobody names."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.net.urls import SITEMAP_PLACE, origin_of
from greencrawl.schema.records import Attempt


def guessed_text(url: str, attempts: Sequence[Attempt]) -> str:
    """Say how the request for a guessed sitemap at a canonical ``url`` ended.

    The ``url`` has neither a page nor a final state. Returns "" if this is no place of a sitemap,
    or is still to be tried. ``attempts`` are its latest attempts, the last one first.
    """
    if url != origin_of(url) + SITEMAP_PLACE or (attempts and attempts[0].wait is not None):
        return ""
    if not attempts:
        return "a sitemap was looked for there: where none is, or may be asked for, nothing is kept"
    kind, detail = attempts[0].kind, attempts[0].detail
    why = f"{kind} ({detail})" if detail else kind
    return f"a sitemap was looked for there, once, since nobody names one: {why}"
