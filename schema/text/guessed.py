"""What a person is told about a sitemap at its usual place that nobody names."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.net.urls import SITEMAP_PLACE, origin_of
from greencrawl.schema.records import Attempt


def guessed_text(url: str, attempts: Sequence[Attempt]) -> str:
    """What became of the look at a canonical ``url`` that has neither a page nor a final state; ""
    if it is no such place, or is still to be tried. ``attempts`` are its latest, that one first.
    """
    if url != origin_of(url) + SITEMAP_PLACE or (attempts and attempts[0].wait is not None):
        return ""
    if not attempts:
        return "a sitemap was looked for there: where none is, or may be asked for, nothing is kept"
    kind, detail = attempts[0].kind, attempts[0].detail
    why = f"{kind} ({detail})" if detail else kind
    return f"a sitemap was looked for there, once, since nobody names one: {why}"
