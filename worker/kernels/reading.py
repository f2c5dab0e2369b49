"""The result of a kernel for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from greencrawl.schema.records import Admission, Directives, FailureKind, Link, StoredPage
from greencrawl.worker.link_checker import MAX_LINKS

MAX_NEEDED = 500
"""At most this many URLs of one style sheet are kept."""


class Reading(Struct, kw_only=True, omit_defaults=True):
    """The content of a page. ``items`` is as in :class:`StoredPage`.

    ``problems`` are errors of the user's functions, by function. ``skipped`` are links that are not
    followed since they log out or change something, and why. ``failure`` says why a page cannot be
    read: then its links are not known. ``omitted`` counts its links beyond those that are followed,
    ``unneeded`` what a style sheet needs beyond what is kept, ``rewritten`` links that the crawl's
    ``normalise`` has changed. ``links_cut``: some links of its header Link were left out.
    ``samples`` and ``canonical`` are those of the page, see ``greencrawl.worker.traps``; ``spans``
    are those of its main text; ``directives`` also says whether the content is to be kept. ``cpu``
    is the CPU time of reading in seconds, without the user's functions; 0 if it is next to nothing.
    ``costly`` says how it exceeded its grant, "" if it did not. ``dense`` says why a page that came
    as very few bytes was read alone. ``listed`` counts the URLs of a sitemap, and ``unread`` says
    what was not read of it.

    A user's own kernel sets ``title``, ``text``, ``language``, ``canonical``, ``fields`` and
    ``failure``. Instead of ``links`` and ``items`` it sets three fields
    (``greencrawl.worker.kernels.own``). ``found`` has URLs that are a link away, and may be
    relative to the URL of the page. ``further`` has further pages of a list, which are no deeper.
    ``records`` has dicts that JSON can hold.
    """

    title: str = ""
    text: str = ""
    spans: bytes = b""
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    items: bytes = b""
    links: list[Admission] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    omitted: int = 0
    unneeded: int = 0
    links_cut: bool = False
    rewritten: int = 0
    samples: bytes = b""
    canonical: str = ""
    directives: Directives | None = None
    cpu: float = 0.0
    costly: str = ""
    dense: str = ""
    listed: int = 0
    unread: str = ""
    found: Sequence[Link | str] = ()
    further: Sequence[str] = ()
    records: Sequence[dict[str, Any]] = ()

    def fill(self, row: StoredPage) -> None:
        """Put what was read into ``row``; directives of headers stay where the body has none."""
        row.title, row.text, row.spans = self.title, self.text, self.spans
        row.language = self.language
        row.encoding, row.fields, row.items = self.encoding, self.fields, self.items
        row.links = self.links
        row.canonical = self.canonical or row.canonical
        row.directives = self.directives or row.directives

    def warnings(self, cost: str) -> dict[FailureKind, str]:
        """Return what was not read of a stored page, and why, by kind.

        ``cost``: why decoding its encodings was too expensive, "" if it was not.
        """
        warnings = {}
        if cost or self.costly:
            warnings[FailureKind.COSTLY] = "; ".join(filter(None, (cost, self.costly)))
        if self.dense:
            warnings[FailureKind.DENSE] = self.dense
        if left_out := self._left_out():
            warnings[FailureKind.LINKS] = "; ".join(left_out)
        if self.unread:
            warnings[FailureKind.SITEMAP] = self.unread
        return warnings

    def _left_out(self) -> list[str]:
        said = []
        if self.omitted:
            followed = f"only {MAX_LINKS:,} of a page are followed"
            said.append(f"{self.omitted:,} links were left out: {followed}")
        if self.unneeded:
            kept = f"only {MAX_NEEDED:,} of a style sheet are kept"
            said.append(f"{self.unneeded:,} URLs were left out: {kept}")
        if self.links_cut:
            said.append("its header Link is too long: links at its end were left out")
        return said
