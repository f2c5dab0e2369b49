"""Extraction: from the bytes of a page to title, text, language, links and directives."""

from greencrawl.worker.extract.hostile import TooDear, is_doubtful
from greencrawl.worker.extract.media import is_html
from greencrawl.worker.extract.page import (
    add_links,
    extract,
    outline,
    parsed,
    pool_trees,
    stops,
)

__all__ = [
    "TooDear",
    "add_links",
    "extract",
    "is_doubtful",
    "is_html",
    "outline",
    "parsed",
    "pool_trees",
    "stops",
]
