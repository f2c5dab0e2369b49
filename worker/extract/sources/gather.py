"""All references of a page beside its plain links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lxml import etree

from greencrawl.worker.extract.links import READ, base_of, label_of, live, references
from greencrawl.worker.extract.sources.elements import gather_elements
from greencrawl.worker.extract.sources.gathered import Gathered
from greencrawl.worker.extract.sources.headers import gather_headers
from greencrawl.worker.extract.sources.requisites import gather_requisites
from greencrawl.worker.extract.sources.srcdoc import documents
from greencrawl.worker.extract.sources.wanted import Wanted


def gather(
    root: etree._Element,
    frames: Sequence[etree._Element],
    url: str,
    base: str,
    encoding: str,
    headers: Mapping[str, str],
    wanted: Wanted,
    texts: bool = False,
) -> Gathered:
    """Gather the references of a page at ``url``, and of its headers, beside its plain links.

    ``frames`` are its elements with a srcdoc; ``base`` and ``encoding`` are the page's own.
    ``texts``: the texts of links in srcdoc documents are wanted.
    """
    found = Gathered(encoding)
    gather_headers(found, headers, url, base, wanted)
    _read(found, root, base, encoding, wanted)
    if "srcdoc" in wanted.sources or wanted.requisites:
        for document in documents(frames):
            _read_document(found, document, base, encoding, wanted, texts)
    return found


def _read_document(
    found: Gathered,
    root: etree._Element,
    base: str,
    encoding: str,
    wanted: Wanted,
    texts: bool,
) -> None:
    """Read a document of a srcdoc, links included; one nested in it is skipped."""
    elements = list(live(root, *READ))
    base = base_of(elements, base, encoding) or base
    if "srcdoc" in wanted.sources:
        plain = [element for element in elements if wanted.reads(element.tag)]
        tags = [element.tag for element in plain]
        links = references(plain, tags, has_base=False, anchors=texts)
        pairs = [(text, rel or "") for text, rel in zip(links.texts, links.rels, strict=True)]
        urls = found.add_links(pairs, base)
        for url, element in zip(urls, links.elements or (), strict=False):
            found.said.append((url, label_of(element)))
    _read(found, root, base, encoding, wanted)


def _read(found: Gathered, root: etree._Element, base: str, encoding: str, wanted: Wanted) -> None:
    if wanted.named:
        gather_elements(found, root, base, encoding, wanted)
    if wanted.requisites:
        gather_requisites(found, root, base)
