"""Formats of an export: how each writes a page and a final state.

Each call returns whole records, so that an export can be cut between two of them, and continued. A
new format is a class here and a row of :data:`FORMATS`, which the command and the Monitor read.
"""

from __future__ import annotations

import base64
import csv
import io
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from greencrawl.schema import wire
from greencrawl.schema.net.request import crawl_headers
from greencrawl.schema.records import Crawl, Final, StoredPage
from greencrawl.store.base import Detail
from greencrawl.store.bodies import has_body
from greencrawl.store.export.items import ItemsCsv, ItemsJsonl
from greencrawl.store.export.objects import defused, final_object, iso8601, page_object
from greencrawl.store.warc import records
from greencrawl.store.warc.records import Origin, Record

ORIGINS = 65_536
"""A WARC export remembers at most this many bodies in order to refer to them; older ones are
written again."""

COLUMNS = (
    "url", "final_url", "state", "kind", "status", "fetched", "elapsed_ms", "depth",
    "content_type", "truncated", "language", "encoding", "title", "detail", "fields", "text",
    "canonical", "directives",
)  # fmt: skip
"""Columns of the CSV, in this order; new ones will come at the end, before ``body``."""


class Format(Protocol):
    """A writer of records in one format. ``detail`` is how much of a page it needs."""

    detail: Detail
    finals: bool
    """True if the format has records for URLs without a page."""

    def begin(self) -> bytes:
        """Return the head of a file."""

    def page(self, page: StoredPage) -> bytes:
        """Return the record of a page."""

    def lacks_body(self, page: StoredPage) -> bool:
        """Return whether the format needs the body of a page and the body was not kept."""

    def final(self, final: Final) -> bytes:
        """Return the record of a URL without a page; nothing if the format has none."""


class Jsonl:
    """One JSON object a line."""

    finals = True

    def __init__(self, *, bodies: bool = False) -> None:
        self._bodies = bodies
        self.detail: Detail = "body" if bodies else "text"

    def begin(self) -> bytes:
        """Return nothing: the format has no head."""
        return b""

    def page(self, page: StoredPage) -> bytes:
        """Return :func:`greencrawl.store.export.objects.page_object` as a line."""
        return wire.to_json(page_object(page, bodies=self._bodies)) + b"\n"

    def lacks_body(self, page: StoredPage) -> bool:
        """Return whether bodies are wanted and the page has none."""
        return self._bodies and not has_body(page)

    def final(self, final: Final) -> bytes:
        """Return :func:`greencrawl.store.export.objects.final_object` as a line."""
        return wire.to_json(final_object(final)) + b"\n"


class Csv:
    """RFC 4180 in UTF-8 with a line of names; with ``bodies`` a column of base64 at the end.

    A cell that a spreadsheet would take for a formula begins with an apostrophe, unless ``raw``.
    """

    finals = True

    def __init__(self, *, bodies: bool = False, raw: bool = False) -> None:
        self._bodies = bodies
        self._raw = raw
        self.detail: Detail = "body" if bodies else "text"
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\r\n")

    def begin(self) -> bytes:
        """Return the line of names."""
        return self._row([*COLUMNS, *(["body"] if self._bodies else [])])

    def page(self, page: StoredPage) -> bytes:
        """Return a row with state ``fetched``."""
        fields = "" if page.fields is None else wire.to_json(page.fields).decode()
        row: list[object] = [
            page.url, page.final_url, "fetched", "", page.status, iso8601(page.fetched_ms),
            page.elapsed_ms, page.depth, page.headers.get("content-type", ""),
            "true" if page.truncated else "false", page.language, page.encoding, page.title, "",
            fields, page.text, page.canonical,
            "" if page.directives is None else wire.to_json(page.directives).decode(),
        ]  # fmt: skip
        if self._bodies:
            row.append(base64.b64encode(page.body).decode("ascii"))
        return self._row(row)

    def lacks_body(self, page: StoredPage) -> bool:
        """Return whether bodies are wanted and the page has none."""
        return self._bodies and not has_body(page)

    def final(self, final: Final) -> bytes:
        """Return a row with the state and the kind of failure."""
        row: list[object] = [
            final.url, "", final.state, final.kind, final.code or "", iso8601(final.at_ms),
            "", final.depth, "", "", "", "", "", final.detail, "", "", "", "",
        ]  # fmt: skip
        return self._row([*row, *([""] if self._bodies else [])])

    def _row(self, values: list[object] | list[str]) -> bytes:
        if not self._raw:  # base64 is no formula, though it may begin with a plus
            texts = len(COLUMNS)
            values = [*map(defused, values[:texts]), *values[texts:]]
        self._writer.writerow(values)
        made = self._text.getvalue().encode()
        self._text.seek(0)
        self._text.truncate()
        return made


class Warc:
    """WARC 1.1: a response and a request for each page, or a revisit for a body that came before.

    The request is made from the crawl's options; header fields of a hook or of credentials are not
    known any more. ``name`` is the name of the file, "" without a file.
    """

    detail: Detail = "body"
    finals = False

    def __init__(self, crawl: Crawl, name: str = "", *, compress: bool = True) -> None:
        self._crawl = crawl
        self._name = name
        self._compress = compress
        self._headers = crawl_headers(crawl.options)
        self._origins: OrderedDict[bytes, Origin] = OrderedDict()

    def begin(self) -> bytes:
        """Return the warcinfo record."""
        options = self._crawl.options
        fields = {
            "isPartOf": self._crawl.name,
            "http-header-user-agent": self._headers["user-agent"],
        }
        if options.contact:
            fields["operator"] = options.contact
        return self._bytes(records.warcinfo(self._name, fields))

    def page(self, page: StoredPage) -> bytes:
        """Return the records of a page."""
        origin = self._origins.get(page.digest) if page.body and page.digest else None
        answer = records.revisit(page, origin) if origin else records.response(page)
        if page.body and page.digest and not origin:
            self._origins[page.digest] = records.origin_of(answer, page)
            if len(self._origins) > ORIGINS:
                self._origins.popitem(last=False)
        asked = records.asked(page, answer, page.request or self._headers)
        return self._bytes(answer) + self._bytes(asked)

    def lacks_body(self, page: StoredPage) -> bool:
        """Return whether the page has no body."""
        return not has_body(page)

    def final(self, final: Final) -> bytes:
        """Return nothing: no answer was stored."""
        return b""

    def _bytes(self, record: Record) -> bytes:
        return records.member(record) if self._compress else b"".join(record.parts)


class BodyOptions(NamedTuple):
    """A person's choices beside the format: whether to add bodies, and whether to keep cells
    unchanged."""

    bodies: bool = False
    raw: bool = False


class Choice(NamedTuple):
    """How the command and the Monitor offer a format under its name in :data:`FORMATS`."""

    label: str
    """Its name for people, the same in every language."""
    meaning: str
    """For the help of ``--format``."""
    ending: str
    """The usual ending of its files, without the first dot."""
    make: Callable[[Crawl, str, BodyOptions], Format]
    """Makes the format from the crawl, the file's name ("" without one), and the options."""
    items: Callable[[Sequence[str], BodyOptions], Format] | None = None
    """Makes the format for the records of a hook, from their columns; None if there is none."""
    is_table: bool = False
    """True if records of a hook need their columns beforehand."""
    is_archive: bool = False
    """True if the format has each page as it was received: always its body, and never a text."""


FORMATS: Mapping[str, Choice] = MappingProxyType(
    {
        "jsonl": Choice(
            label="JSON Lines",
            meaning="one JSON object a line",
            ending="jsonl",
            make=lambda _, __, options: Jsonl(bodies=options.bodies),
            items=lambda _, __: ItemsJsonl(),
        ),
        "csv": Choice(
            label="CSV",
            meaning="a table",
            ending="csv",
            make=lambda _, __, options: Csv(bodies=options.bodies, raw=options.raw),
            items=lambda columns, options: ItemsCsv(columns, raw=options.raw),
            is_table=True,
        ),
        "warc": Choice(
            label="WARC",
            meaning="an archive",
            ending="warc.gz",
            make=lambda crawl, name, _: Warc(crawl, name, compress=not name.endswith(".warc")),
            is_archive=True,
        ),
    }
)
"""The values of ``--format``; the first is the default."""
