"""Stored pages: the list, one page, its text and its body."""

from __future__ import annotations

from greencrawl.broker.api.messages import (
    BodyQuery,
    ChangesQuery,
    ChangesReply,
    PageReply,
    PagesQuery,
    PagesReply,
    Text,
)
from greencrawl.broker.service import changes, pages
from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared.queries import cursor, wanted_pages
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.text.moments import since_ms


def list_pages(service: Service, query: PagesQuery) -> PagesReply:
    """List stored pages of a crawl, in the order of storing, some at a time.

    A request reads a bounded number of pages: there may be few of them or none, with a ``next``.
    """
    crawl = service.store.crawl(query.crawl)
    wanted, pattern = wanted_pages(query.host, query.status, query.since, query.grep)
    with cursor():
        look = service.reader.look(crawl.id, wanted, pattern, limit=query.limit, after=query.after)
    return PagesReply(tuple(map(pages.listed, look.pages)), look.next, look.looked_at)


def get_page(service: Service, id: str) -> PageReply:
    """Get what is stored of a page, and the history of its fetches, the latest first."""
    return pages.reply(service.store, id)


def get_page_text(service: Service, id: str) -> Text:
    """Get the text of a page."""
    page = pages.stored(service.store, id, body=False)
    return Text("text/plain; charset=utf-8", page.text.encode("utf-8", "replace"), _INERT)


def get_page_body(service: Service, id: str, query: BodyQuery) -> Text:
    """Get a page's body as it was fetched, as a file to download and never as a page to show.

    The page's own headers give its type: see the page. An earlier version has a body if it is kept
    (``keep_versions`` of the crawl).
    """
    body = pages.body_at(service.store, id, query.at)
    attachment = {"Content-Disposition": f'attachment; filename="{id}.bin"'}
    return Text("application/octet-stream", body, {**_INERT, **attachment})


def list_changes(service: Service, crawl: str, query: ChangesQuery) -> ChangesReply:
    """List pages of a crawl that are new, changed or gone since a moment, some at a time.

    A page is changed if its body or its status is not the same as then. The histories of pages
    limit how far back this goes. A request reads a bounded number of rows: there may be few changes
    or none, with a ``next``.
    """
    found = service.store.crawl(crawl)
    try:
        since = since_ms(query.since)
    except ValueError as error:
        raise InvalidConfig([("since", str(error))]) from error
    with cursor():
        return changes.look(service.store, found.id, since, query.limit, query.after)


_INERT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers for strangers' content: no browser runs it under the broker's name."""
