"""Links in the header of an answer: ``Link`` (RFC 8288), ``Refresh`` and ``Content-Location``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from greencrawl.worker.extract.refresh import refresh_reference
from greencrawl.worker.extract.sources.gathered import Gathered
from greencrawl.worker.extract.sources.relations import Relation, is_requisite, source_of
from greencrawl.worker.extract.sources.wanted import Wanted

READ = frozenset({"link", "refresh", "content-location"})
"""Names of the header fields that are read."""

# Anything between links is skipped up to the next "<", as in RFC 8288's algorithm.
_VALUE = r"\"(?>(?:[^\"\\]++|\\.)*)\"?|[^\s;,\"]*+"
_LINK = re.compile(
    rf"<([^<>]*+)>((?>(?:\s*+;\s*+[^\s=;,\"<]*+(?>(?:\s*+=\s*+(?:{_VALUE}))?))*))", re.DOTALL
)
_PARAMETER = re.compile(
    r";\s*+([^\s=;,\"<]++)(?>(?:\s*+=\s*+(?:\"((?>(?:[^\"\\]++|\\.)*))\"?|([^\s;,\"]*+)))?)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ASCII = "".join(map(chr, range(0x80)))


def gather_headers(
    found: Gathered, headers: Mapping[str, str], url: str, base: str, wanted: Wanted
) -> None:
    """Add the links in the headers of a page at ``url``. ``headers`` have lower-case names.

    A ``Link`` is relative to the answer's URL, a ``Refresh`` to the page's ``base``.
    """
    if (value := headers.get("link")) is not None:
        links: list[tuple[str, str]] = []
        needed: list[str] = []
        for relation in relations(value):
            if source_of(relation) in wanted.sources:
                links.append((relation.reference, relation.rel))
            if wanted.requisites and is_requisite(relation):
                needed.append(relation.reference)
        found.add_links(links, url)
        found.add_requisites(needed, url)
    if (value := headers.get("refresh")) is not None and "refresh" in wanted.sources:
        reference = refresh_reference(_as_sent(value))
        if reference is not None:
            found.add_links([(reference, "refresh")], base)
    if (value := headers.get("content-location")) and "content-location" in wanted.sources:
        found.add_links([(_as_sent(value), "")], url)


def relations(value: str) -> Iterator[Relation]:
    """Yield the links of a ``Link`` header, except those about another resource (``anchor``)."""
    for link in _LINK.finditer(_as_sent(value)):
        parameters: dict[str, str] = {}
        # the first parameter of a name counts
        for name, quoted, plain in _PARAMETER.findall(link[2]):
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) or plain)
        if "anchor" not in parameters:
            rel, kind = parameters.get("rel", ""), parameters.get("type", "")
            yield Relation(link[1].strip(), rel, kind)


def _as_sent(value: str) -> str:
    """Return a URL as it was sent: headers are read as Latin-1, so bytes beyond ASCII stay the
    same."""
    return value if value.isascii() else quote(value, safe=_ASCII, encoding="latin-1")
