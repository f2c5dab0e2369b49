"""Extraction: from the bytes of a page to title, text, language, links and directives."""

from greencrawl.worker.extract.hostile import TooDear
from greencrawl.worker.extract.media import is_html
from greencrawl.worker.extract.page import add_links, extract, outline, pool_trees

__all__ = ["TooDear", "add_links", "extract", "is_html", "outline", "pool_trees"]
