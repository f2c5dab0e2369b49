"""Extraction: from the bytes of a page to title, text, language, links and directives."""

from greencrawl.worker.extract.directives import canonical_of, of_headers
from greencrawl.worker.extract.hostile import TooExpensive, is_doubtful
from greencrawl.worker.extract.media import is_html, is_plain, is_style, is_text
from greencrawl.worker.extract.page import (
    add_links,
    bound_parses,
    extract,
    outline,
    parsed,
    stops,
)

__all__ = [
    "TooExpensive",
    "add_links",
    "bound_parses",
    "canonical_of",
    "extract",
    "is_doubtful",
    "is_html",
    "is_plain",
    "is_style",
    "is_text",
    "of_headers",
    "outline",
    "parsed",
    "stops",
]
