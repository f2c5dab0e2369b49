"""The meaning of a link's ``rel``, in a ``link`` element as in a ``Link`` header."""

from __future__ import annotations

from typing import NamedTuple


class Relation(NamedTuple):
    """A reference, its ``rel`` as written, and the media type that it names."""

    reference: str
    rel: str
    type: str = ""


_FEEDS = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml"}
)
_REQUISITES = frozenset(
    {
        "stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon",
        "preload", "modulepreload", "prefetch", "manifest",
    }
)  # fmt: skip


def source_of(relation: Relation) -> str:
    """Return the source of links that ``relation`` belongs to, "" if there is none."""
    words = relation.rel.lower().split()
    if "next" in words or "prev" in words:
        return "paging"
    if "feed" in words:
        return "feeds"
    if "alternate" in words and "stylesheet" not in words:
        kind = relation.type.partition(";")[0].strip().lower()
        return "feeds" if kind in _FEEDS else "alternate"
    return next((word for word in words if word in ("canonical", "amphtml")), "")


def is_requisite(relation: Relation) -> bool:
    """Return whether a page needs this file to be shown, or a browser loads the file with the
    page."""
    return not _REQUISITES.isdisjoint(relation.rel.lower().split())
