"""Pages whose content is not kept, since they say so: their row stays without it."""

from __future__ import annotations

from msgspec.structs import replace

from greencrawl.schema.records import CrawlOptions, Directives, Fetched, StoredPage


def judged(said: Directives | None, options: CrawlOptions, fetched: Fetched) -> Directives | None:
    """Return what an answer ``said``, with the directive because of which its content is not
    kept."""
    if said is None:
        return None
    why = _why(said, options, fetched)
    return replace(said, withheld=why) if why else said


def _why(said: Directives, options: CrawlOptions, fetched: Fetched) -> str:
    if options.noindex == "drop":
        if "noindex" in said.robots:
            return "noindex"
        until = said.unavailable_after_ms
        if until is not None and until <= fetched.fetched_ms:
            return "unavailable_after"
    if options.tdm == "obey":
        if said.tdm == "reserved":
            return "tdm_reservation"
        if "noai" in said.robots:
            return "noai"
        if "noimageai" in said.robots and fetched.content_type.lower().startswith("image/"):
            return "noimageai"
    return ""


def withhold(page: StoredPage) -> None:
    """Remove title, text, body and the hook's results from a row; status, headers and links stay.

    The digest of the body stays, too: it tells whether the page has changed.
    """
    page.title, page.text, page.spans, page.body, page.body_bytes = "", "", b"", b"", 0
    page.fields, page.items = None, b""
