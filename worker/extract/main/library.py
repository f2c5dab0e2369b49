"""A page for programs and hooks: what a worker reads, and what is read of its tree on demand.

``greencrawl.extract`` makes such a page from bytes; a hook gets a page whose tree exists while the
hook runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lxml import etree

from greencrawl.schema.records import Page
from greencrawl.schema.text.spans import main_of
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import Judged, jsonld
from greencrawl.worker.extract.main.metadata import Metadata, metadata, title_of
from greencrawl.worker.extract.page import extract_with_tree

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

_NOTHING = "<html></html>"


class _Tree:
    """The tree of a page, which copies of the page share, and what was read of it."""

    def __init__(self, root: etree._Element | None, page: Page) -> None:
        self.said_title = page.title
        self._root = root
        self._base, self._encoding = page.base, page.encoding
        self._told = page.text, page.spans
        self._closed = False

    @property
    def root(self) -> etree._Element | None:
        """Return the root; None for a page that is not HTML.

        Raises RuntimeError after it was closed.
        """
        if self._closed:
            raise RuntimeError(
                "the page's tree is there only while the hook runs, and until its picture is made"
            )
        return self._root

    def close(self) -> None:
        """Release the tree, except elements that somebody has selected and kept."""
        self._root, self._closed = None, True
        vars(self).pop("selector", None)

    @cached_property
    def selector(self) -> Selector:
        from parsel import Selector  # 3 MB, only for those who select something

        if self.root is None:
            return Selector(text=_NOTHING, type="html")
        return Selector(root=self.root, type="html", base_url=self._base)

    @cached_property
    def main(self) -> str:
        told = main_of(*self._told)
        if told is not None:
            return told
        return "" if self.root is None else main.main_text(self.root)

    @cached_property
    def comments(self) -> str:
        if self.root is None:
            return ""
        return main.comments_text(self.root) or jsonld.comments(jsonld.blocks(self.root))

    @cached_property
    def markdown(self) -> str:
        if self.root is None:  # plain text stays as it is
            return self.main
        return main.markdown(self.root, self._base, self._encoding)


class Extracted(Page, dict=True):
    """A page, and what is read of its tree on demand.

    ``text`` is all of its visible text. If ``greencrawl.extract`` made the page, ``title`` is the
    title shown in it, without the name of its site; if a hook gets the page, ``title`` is the text
    of the ``title`` element.
    """

    def css(self, query: str) -> SelectorList[Selector]:
        """Return the elements that a CSS selector finds, like parsel and Scrapy.

        ``.get()``, ``.getall()``, ``.re()``, ``::text``, ``::attr(name)`` work. Raises
        cssselect.SelectorError for an invalid one.
        """
        return self.selector.css(query)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList[Selector]:
        """Return what an XPath finds, like parsel and Scrapy. Raises ValueError for an invalid
        one."""
        return self.selector.xpath(query, namespaces, **variables)

    @property
    def selector(self) -> Selector:
        """Return the page as a selector of parsel."""
        return self._tree.selector

    @property
    def main(self) -> str:
        """Return the main text; "" if nothing was compiled, as ``has_main`` says."""
        return self._tree.main

    @property
    def comments(self) -> str:
        """Return readers' comments, apart from the main text, with empty lines between them.

        Return "" if markup and JSON-LD name no comments, and for forums, whose posts are main text.
        """
        return self._tree.comments

    @property
    def markdown(self) -> str:
        """Return the main text as Markdown, with absolute links."""
        return self._tree.markdown

    @cached_property
    def blocks(self) -> list[Judged]:
        """Return all blocks of the page in order, with their scores."""
        root = self._tree.root
        return [] if root is None else main.judged(root)

    @cached_property
    def remark(self) -> str:
        """Return why there are no ``blocks``, or a note that they come from data which is not
        shown; else ""."""
        root = self._tree.root
        if root is None and self.text:
            return "it is plain text: all of it is main text"
        return main.remark(root)

    @property
    def has_main(self) -> bool:
        """Return whether main text can be read here: it needs the compiled part."""
        return main.available()

    @cached_property
    def jsonld(self) -> list[dict[str, Any]]:
        """Return the objects of the page's JSON-LD in order: the objects of a list one by one,
        ``@graph`` as it is.

        A million characters of a page are read; invalid JSON is skipped.
        """
        root = self._tree.root
        return [] if root is None else jsonld.outer(jsonld.blocks(root))

    @cached_property
    def about(self) -> Metadata:
        """Return author, date, site and so on."""
        root, said = self._tree.root, self._tree.said_title
        if root is None:
            return Metadata(title=self.title)
        return metadata(root, self.url, said, base=self.base, encoding=self.encoding)

    @property
    def _tree(self) -> _Tree:
        tree: _Tree = self.__dict__["tree"]
        return tree

    @property
    def author(self) -> str:
        """Return the author, several names separated by commas; "" if not named."""
        return self.about.author

    @property
    def date(self) -> str:
        """Return the day of publication, as in 2026-11-23; "" if not named."""
        return self.about.date


def extract(body: bytes, url: str, content_type: str | None = None) -> Extracted:
    """Read an HTML document, or one of plain text, as a worker does; main text is read on demand.

    ``url`` is where it came from, ``content_type`` the header with its charset. The bytes never
    cause an error: what is neither HTML nor text gives an empty page. Raises :class:`InvalidUrl` if
    ``url`` is invalid.
    """
    page, root = extract_with_tree(body, url, content_type)
    extracted = _with_tree(page, root)
    if root is not None:
        extracted.title = title_of(root, page.title)
    return extracted


def picture_of(page: Extracted) -> str:
    """Return the page in its own layout with the scores of its blocks, as an HTML file.

    The file fetches nothing. If the main text is from embedded data, the data are shown. The tree
    of the page is then closed, so nothing else can be read of it.
    """
    from greencrawl.worker.extract.main.picture import picture

    root, blocks, remark = page._tree.root, page.blocks, page.remark
    page._tree.close()
    data = None if root is None else main.data_instead(root)
    if data is not None:
        root = data.root
    return picture(etree.Element("html") if root is None else root, blocks, remark)


@contextmanager
def readable(page: Page, root: etree._Element | None) -> Iterator[Extracted]:
    """Give ``page`` the tree that it was read from, for as long as the context lasts.

    A worker reads page after page in the same memory: a kept tree would hold this memory.
    """
    extracted = _with_tree(page, root)
    try:
        yield extracted
    finally:
        extracted._tree.close()


def _with_tree(page: Page, root: etree._Element | None) -> Extracted:
    fields: dict[str, Any] = {name: getattr(page, name) for name in page.__struct_fields__}
    extracted = Extracted(**fields)
    extracted.__dict__["tree"] = _Tree(root, page)
    return extracted
