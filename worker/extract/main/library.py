"""``greencrawl.extract``: a page as programs get it, with main text and what it says of itself."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from lxml import etree

from greencrawl.schema.records import Page
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import Judged
from greencrawl.worker.extract.main.metadata import Metadata, metadata, title_of
from greencrawl.worker.extract.page import extract_with_tree


class Extracted(Page, dict=True):
    """A page, and what is read of its tree when it is asked for.

    ``text`` is all of its visible text; ``title`` the one in the page, without its site's name.
    """

    @cached_property
    def main(self) -> str:
        """Main text; "" where nothing was compiled, as ``has_main`` says."""
        return "" if self._tree is None else main.main_text(self._tree)

    @cached_property
    def markdown(self) -> str:
        """The same as Markdown, its links absolute."""
        return "" if self._tree is None else main.markdown(self._tree, self.base, self.encoding)

    @cached_property
    def blocks(self) -> list[Judged]:
        """All blocks of the page in order, with what they were judged."""
        return [] if self._tree is None else main.judged(self._tree)

    @property
    def has_main(self) -> bool:
        """Whether main text can be read here: it needs the compiled part."""
        return main.available()

    @cached_property
    def about(self) -> Metadata:
        """Author, date, site and so on."""
        if self._tree is None:
            return Metadata(*[""] * len(Metadata._fields))
        return metadata(self._tree, self.url, self._said_title)

    @property
    def _tree(self) -> etree._Element | None:
        root: etree._Element | None = self.__dict__.get("root")
        return root

    @property
    def _said_title(self) -> str:
        return str(self.__dict__.get("said_title", ""))

    @property
    def author(self) -> str:
        """Who wrote it, several names with commas between them; "" if nobody says."""
        return self.about.author

    @property
    def date(self) -> str:
        """The day it was published, as in 2026-11-23; "" if nobody says."""
        return self.about.date


def extract(body: bytes, url: str, content_type: str | None = None) -> Extracted:
    """Read an HTML document as a worker does, and its main text on demand.

    ``url`` is where it came from, ``content_type`` the header with its charset. Nothing is raised
    for the bytes: what is not HTML gives an empty page. Raises :class:`InvalidUrl` if ``url`` is
    none.
    """
    page, root = extract_with_tree(body, url, content_type)
    fields: dict[str, Any] = {name: getattr(page, name) for name in page.__struct_fields__}
    extracted = Extracted(**fields)
    if root is not None:
        extracted.__dict__.update(root=root, said_title=page.title)
        extracted.title = title_of(root, page.title)
    return extracted
