"""The link checker: which of a page's links are valid and in scope, and how soon they come.

Whether a link was *seen* already is asked of the frontier, for the links of many pages at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import cast

from schema.errors import InvalidUrl
from schema.records import Admission, Crawl, Link, Page, Task
from schema.scope import Rules, level_for
from schema.urls import canonicalise, origin_of, resolver

MAX_LINKS = 10_000
"""Links of one page that are followed; a page with more is a trap or a dump."""

MAX_REDIRECTS = 10
"""Redirects in a row, as browsers' 20 halved; more than RFC 9110's historical five."""

_VERDICTS = 20_000
_LONG = 500
"""Characters of a URL or reference that is not worth remembering: traps are full of them."""

_KNOWN_BYTES = 8 * 1024 * 1024
"""Memory that the known references of a crawl may take, about: some 25,000 of usual length."""
_ENTRY_BYTES = 200
_FOLDER_BYTES = 1000

# What a reference leads to is the same on every page of an origin if it has no use for the page's
# path (the group), and on every page of a folder if it has a path of its own. All others depend on
# the page's last segment or its query, or may: "?x" and "http:" do, and a control character may
# stand in the midst of such a one.
_SHARED = re.compile(
    r"(/|https?://|(?!https?:)[a-z][a-z0-9+.-]*:)|(?!https?:)[\w.~%-][^\x00-\x1f]*\Z",
    re.IGNORECASE,
).match


class Checker:
    """Scope for one revision of a crawl, remembering its verdicts on the links of late.

    A verdict holds for all depths, since the depth is the same for all links of a page and is
    asked first. Sites repeat their menu on every page: most links cost one look-up.
    """

    def __init__(self, crawl: Crawl, rules: Rules) -> None:
        self._order = crawl.options.order
        self._depth = crawl.options.depth
        self._rules = rules
        self._verdicts: dict[str, bool] = {}
        self._known: dict[tuple[str, str], dict[str, str]] = {}
        self._left = _KNOWN_BYTES

    def check(self, page: Page, links: Sequence[Link], depth: int) -> list[Admission]:
        """What to admit of ``links``, found in ``page`` at ``depth``: each URL once.

        In the page's order, and at most ``MAX_LINKS``. ``rel=nofollow`` and the page's own
        nofollow are honoured. URLs that extraction did not make (a hook's) are made canonical,
        and dropped if they are none.
        """
        below = depth + 1
        if not page.follow or below > self._depth:
            return []
        trusted = links is page.links
        wanted: dict[str, float | None] = {}
        verdicts = self._verdicts
        if len(verdicts) > _VERDICTS:
            verdicts.clear()
        for link in links:
            if link.rel and _says_nofollow(link.rel):
                continue
            url: str | None = link.url
            if not trusted:
                url = _canonical(link.url, page)
            if url is None or url in wanted:
                continue
            verdict = verdicts.get(url)
            if verdict is None:
                verdict = self._rules.excluded_by(url, below) is None
                if len(url) <= _LONG:
                    verdicts[url] = verdict
            if verdict:
                wanted[url] = link.score
                if len(wanted) >= MAX_LINKS:
                    break
        return self._admissions(wanted, below)

    def follow(
        self, page: Page, texts: Sequence[str], rels: Iterable[str | None], depth: int
    ) -> list[Admission]:
        """:meth:`check` for a page whose links nobody else wants to see: the same, but faster.

        ``texts`` are the page's references, fewer than ``MAX_LINKS``, as they stand there, each
        with its rel in ``rels``. What became of a reference is remembered for the pages of its
        folder, or of its origin, so that one look-up makes it a URL and judges it.
        """
        below = depth + 1
        if not page.follow or below > self._depth:
            return []
        # A URL to follow, "" for none.
        urls = self._judged(page, texts, below)
        if any(rels):
            # Of several links to one URL the first has its place, and any can lose its nofollow.
            bare = {
                url
                for url, rel in zip(urls, rels, strict=True)
                if not (rel and _says_nofollow(rel))
            }
            urls = [url for url in urls if url in bare]
        wanted: dict[str, float | None] = dict.fromkeys(urls)
        wanted.pop("", None)
        return self._admissions(wanted, below)

    def _judged(self, page: Page, texts: Sequence[str], depth: int) -> list[str]:
        """What each reference of a page leads to: the URL to follow, or "" where there is none."""
        base, encoding = page.base, page.encoding
        if self._left < 0:
            self._known.clear()
            self._left = _KNOWN_BYTES
        origin = self._known_under(origin_of(base), encoding)
        folder = self._known_under(base.partition("?")[0].rpartition("/")[0], encoding)
        urls = list(map(origin.get, texts))
        if folder is not origin:
            urls = [
                folder.get(text) if url is None else url
                for text, url in zip(texts, urls, strict=True)
            ]
        resolve: Callable[[str], str] | None = None
        for i, url in enumerate(urls):
            if url is not None:
                continue
            resolve = resolve or resolver(base, encoding)
            text = texts[i]
            try:
                url = resolve(text)
            except InvalidUrl:
                url = ""
            if url and self._rules.excluded_by(url, depth) is not None:
                url = ""
            urls[i] = url
            shared = _SHARED(text)
            if shared and len(text) <= _LONG and len(url) <= _LONG:
                known = origin if shared.lastindex else folder
                known[text] = url
                self._left -= _ENTRY_BYTES + 4 * len(text) + len(url)
        return cast("list[str]", urls)

    def _known_under(self, path: str, encoding: str) -> dict[str, str]:
        """What is known of references in pages of one encoding under a URL's beginning."""
        known = self._known.get((path, encoding))
        if known is None:
            known = self._known[path, encoding] = {}
            self._left -= _FOLDER_BYTES + len(path)
        return known

    def _admissions(self, wanted: Mapping[str, float | None], depth: int) -> list[Admission]:
        """Admissions of URLs at ``depth``, of each with its score."""
        order = self._order
        if order != "best":
            level = level_for(order, depth, None, "")
            return list(map(Admission, wanted, repeat(depth), repeat(level)))
        return [
            Admission(url, depth, level_for("best", depth, score, url))
            for url, score in wanted.items()
        ]


def _says_nofollow(rel: str) -> bool:
    return "nofollow" in rel.lower().split()


def redirected(task: Task, target: str) -> Admission:
    """What to admit when ``task`` redirects to ``target`` (canonical, in scope), at its depth."""
    return Admission(target, task.depth, task.level, task.redirects + 1)


def redirect_problem(task: Task, location: str) -> str:
    """Why a redirect of ``task`` to ``location`` (as sent) leads nowhere, or "" if it leads on."""
    if not location:
        return "no Location"
    if task.redirects >= MAX_REDIRECTS:
        return f"more than {MAX_REDIRECTS} in a row"
    try:
        target = canonicalise(location, task.url)
    except InvalidUrl as error:
        return error.reason if "@" in location else str(error)  # it may hold a password
    return "to itself" if target == task.url else ""


def _canonical(url: str, page: Page) -> str | None:
    try:
        return canonicalise(url, page.base or page.url, page.encoding)
    except InvalidUrl:
        return None
