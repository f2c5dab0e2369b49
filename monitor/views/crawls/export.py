"""The stored pages of a crawl, as a file."""

from __future__ import annotations

from collections.abc import Iterator

import gevent

from greencrawl.monitor.page_request import Download, File, PageRequest
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Crawl
from greencrawl.store.base import Store
from greencrawl.store.export.formats import FORMATS, BodyOptions, Format
from greencrawl.store.export.resumable import Wanted, pieces

BATCH_BYTES = 64 * 1024


def export(request: PageRequest) -> Download:
    """Return all pages, and the URLs without a page, in one of the formats of ``greencrawl
    export``."""
    name = request.asked("format")
    if name not in FORMATS:
        raise InvalidConfig([("format", f"one of {', '.join(FORMATS)}")])
    crawl = request.service.store.crawl(request.path["crawl"])
    choice = FORMATS[name]
    file = f"{crawl.name}.{choice.ending}"
    format_ = choice.make(crawl, file, BodyOptions(bodies=choice.is_archive))
    return Download(name=file, chunks=_chunks(request.service.store, crawl, format_))


def _chunks(store: Store, crawl: Crawl, format_: Format) -> Iterator[bytes]:
    """Yield some records at a time; other greenlets have their turn in between."""
    some: list[bytes] = []
    size = 0
    for piece in pieces(store, Wanted(crawl=crawl), format_):
        some.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES:
            yield b"".join(some)
            some, size = [], 0
            gevent.sleep(0)
    yield b"".join(some)


FILES = (File(path="/monitor/crawls/{crawl}/export", run=export),)
