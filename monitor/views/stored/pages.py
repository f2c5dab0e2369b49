"""Stored pages: lists that can be searched, and one page with its text."""

from __future__ import annotations

from urllib.parse import urlencode

from greencrawl.broker.service import pages as stored
from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.broker.service.shared.queries import cursor, wanted_pages
from greencrawl.monitor.page_request import Data, Download, File, PageRequest, View, whole
from greencrawl.monitor.views.choosing import chosen
from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.text.spans import blocks_of

SHOWN = 50
"""Pages of a list."""
TEXT_LETTERS = 200_000
"""At most this many characters of a page's text are shown; the file has all of them."""
FILTERS = ("host", "status", "since", "grep")


def pages(request: PageRequest) -> Data:
    """Return some pages of a crawl, the newest first, and where the list goes on."""
    crawl = chosen(request)
    asked = {name: request.asked(name) for name in FILTERS}
    data: Data = {
        "crawl": crawl, "crawls": request.figures.crawls(), "asked": asked, "found": None,
        "wrong": {}, "next": "", "first": request.asked("after") == "",
        "filtered": any(asked.values()),
    }  # fmt: skip
    if crawl is None:
        return data
    try:
        wanted, pattern = wanted_pages(**asked)
        with cursor():
            found = request.service.reader.look(
                crawl.id, wanted, pattern, limit=SHOWN, after=request.asked("after"), newest=True
            )
    except (InvalidConfig, InvalidUrl) as error:
        known = error_parts(error)
        return {**data, "wrong": dict(known[2]) if known else {"": str(error)}}
    more = {"crawl": crawl.name, **{k: v for k, v in asked.items() if v}, "after": found.next}
    return {**data, "found": found, "next": f"?{urlencode(more)}" if found.next else ""}


def page(request: PageRequest) -> Data:
    """Return all of one page except its body."""
    known = stored.reply(request.service.store, request.path["id"])
    row = stored.stored(request.service.store, request.path["id"], body=False)
    shown = blocks_of(row.text, row.spans) if len(row.text) <= TEXT_LETTERS else []
    return {
        "page": known,
        "blocks": shown or [(row.text[:TEXT_LETTERS], False)],
        "told": bool(row.spans),
        "cut": len(row.text) > TEXT_LETTERS,
    }


def body(request: PageRequest) -> Download:
    """Return a page's body as it was fetched."""
    at_ms = whole(request.asked("at")) or 0
    content = stored.body_at(request.service.store, request.path["id"], at_ms)
    return Download(name=f"{request.path['id']}.bin", chunks=[content])


VIEWS = (
    View(name="pages", path="/monitor/pages", frame=pages, nav=True),
    View(name="page", path="/monitor/pages/{id}", frame=page),
)
FILES = (File(path="/monitor/pages/{id}/body", run=body),)
