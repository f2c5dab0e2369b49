"""Extraction: from the bytes of a page to title, text, language, links and directives."""

from worker.extract.media import is_html
from worker.extract.page import extract

__all__ = ["extract", "is_html"]
