"""The URLs in a whole sitemap: canonical URLs, each once, read in steps and within limits."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from greencrawl.schema.net.urls import resolved
from greencrawl.worker.process.steps import UNBOUNDED, Budget, Steps
from greencrawl.worker.sitemaps.forms import form_of
from greencrawl.worker.sitemaps.unpacking import MAX_BYTES, Unpacked
from greencrawl.worker.sitemaps.xml import Broken, XmlReader

MAX_URLS = 50_000
"""At most this many URLs, and sitemaps, of one file count, by sitemaps.org."""
MAX_URL_BYTES = 16 * 1024 * 1024
"""All URLs of one file have at most this many characters.

Otherwise short references, resolved against a long URL, would make 400 MB of a few MB.
"""
MAX_LINE = 64 * 1024

_SCHEMES = ("http://", "https://")


class Listed(Struct):
    """The contents of a sitemap. It has ``urls`` of pages and ``sitemaps`` of an index: canonical,
    in order.

    ``failure`` says why it cannot be read, "" if it can. ``note`` says what was not read of it.
    """

    urls: list[str] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)
    failure: str = ""
    note: str = ""


class _Kept:
    """Collects URLs, each once, within the limits of the whole file."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._bytes = 0
        self.full = False
        self.urls: dict[str, None] = {}
        self.sitemaps: dict[str, None] = {}
        self._alternates: dict[str, None] = {}

    def take(self, reader: XmlReader) -> None:
        """Take the URLs out of the reader's lists.

        Alternates come last: most are listed themselves as well, and none may displace a page that
        the file lists.
        """
        if reader.urls:
            self.add(reader.urls, self.urls)
            reader.urls.clear()
        if reader.sitemaps:
            self.add(reader.sitemaps, self.sitemaps)
            reader.sitemaps.clear()
        if reader.alternates:
            if len(self._alternates) < MAX_URLS:
                self.add(reader.alternates, self._alternates, counts=False)
            reader.alternates.clear()

    def add(self, given: Iterable[str], to: dict[str, None], *, counts: bool = True) -> None:
        """Add canonical forms; set ``full`` if one does not fit and it ``counts``."""
        for url in resolved(given, self._base):
            if not url or url in to:
                continue
            if len(to) >= MAX_URLS or self._bytes + len(url) > MAX_URL_BYTES:
                self.full = self.full or counts
                return
            self._bytes += len(url)
            to[url] = None

    def all_urls(self) -> list[str]:
        """Return pages, then alternates as far as there is room."""
        left = MAX_URLS - len(self.urls)
        more = [url for url in self._alternates if url not in self.urls]
        return [*self.urls, *more[:left]]


def listed_steps(
    body: bytes, url: str, budget: Budget = UNBOUNDED, *, cut: bool = False
) -> Steps[Listed]:
    """Read what the sitemap or feed ``body`` at the canonical ``url`` lists; any bytes are
    accepted.

    ``cut``: the body ends before it should. Relative references are resolved against ``url``. At
    most :data:`MAX_BYTES` are read after gzip is undone; each step reads a slice.
    """
    form = form_of(body)
    if not form:
        return Listed(failure="neither a sitemap, nor a feed, nor a list of URLs")
    unpacked, kept = Unpacked(body, cut=cut), _Kept(url)
    steps = _text_steps if form == "text" else _xml_steps
    fault = yield from steps(unpacked, kept, budget)
    if budget.over:
        fault = f"after {budget.seconds:g} s of CPU no more was read"
    if kept.full:
        fault = f"more than {MAX_URLS:,} URLs, or {MAX_URL_BYTES:,} bytes of them: no more are read"
    fault = fault or unpacked.fault
    listed = Listed(kept.all_urls(), list(kept.sitemaps), note=fault)
    if fault and not (listed.urls or listed.sitemaps):
        listed.failure, listed.note = fault, ""
    return listed


def _xml_steps(unpacked: Unpacked, kept: _Kept, budget: Budget) -> Steps[str]:
    """Return what is wrong with the XML, "" if nothing is."""
    reader = XmlReader()
    try:
        for text in unpacked:
            reader.feed(text)
            kept.take(reader)
            if kept.full or budget.over:
                return ""
            yield
        if not unpacked.fault:
            reader.end()
        return ""
    except Broken as error:
        return str(error)
    finally:
        kept.take(reader)


def _text_steps(unpacked: Unpacked, kept: _Kept, budget: Budget) -> Steps[str]:
    """Read one URL a line; lines without a URL are skipped."""
    rest = ""
    for text in unpacked:
        lines = (rest + text).splitlines(keepends=True)
        rest = lines.pop() if lines and not lines[-1].endswith(("\n", "\r")) else ""
        rest = rest if len(rest) <= MAX_LINE else ""
        _add_lines(lines, kept)
        if kept.full or budget.over:
            return ""
        yield
    _add_lines([rest], kept)
    return ""


def _add_lines(lines: Iterable[str], kept: _Kept) -> None:
    stripped = (line.strip("\ufeff \t\r\n") for line in lines)
    kept.add((line for line in stripped if line.lower().startswith(_SCHEMES)), kept.urls)


__all__ = ["MAX_BYTES", "MAX_URLS", "Listed", "listed_steps"]
