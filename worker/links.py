"""The link checker: which of a page's links are valid and in scope, and how soon they come.

Whether a link was *seen* already is asked of the frontier, for the links of many pages at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from schema.errors import InvalidUrl
from schema.records import Admission, Crawl, Link, Page, Task
from schema.scope import Rules, level_for
from schema.urls import canonicalise

MAX_LINKS = 10_000
"""Links of one page that are followed; a page with more is a trap or a dump."""

MAX_REDIRECTS = 10
"""Redirects in a row, as browsers' 20 halved; more than RFC 9110's historical five."""

_VERDICTS = 20_000
_LONG = 500
"""Characters of a URL whose verdict is not worth remembering: pages of traps are full of them."""


class Checker:
    """Scope for one revision of a crawl, remembering its verdicts on the URLs of late.

    A verdict holds for all depths, since the depth is the same for all links of a page and is
    asked first. Sites repeat their menu on every page: most links cost one look-up.
    """

    def __init__(self, crawl: Crawl, rules: Rules) -> None:
        self._order = crawl.options.order
        self._depth = crawl.options.depth
        self._rules = rules
        self._verdicts: dict[str, bool] = {}

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
        wanted: dict[str, Link] = {}
        verdicts = self._verdicts
        if len(verdicts) > _VERDICTS:
            verdicts.clear()
        for link in links:
            if link.rel and "nofollow" in link.rel.lower().split():
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
                wanted[url] = link
                if len(wanted) >= MAX_LINKS:
                    break
        return self._admissions(wanted, below)

    def _admissions(self, wanted: dict[str, Link], depth: int) -> list[Admission]:
        if self._order != "best":
            level = level_for(self._order, depth, None, "")
            return [Admission(url, depth, level) for url in wanted]
        return [
            Admission(url, depth, level_for("best", depth, link.score, url))
            for url, link in wanted.items()
        ]


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
