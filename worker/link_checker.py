"""The link checker: which of a page's links are valid and in scope, and their priority.

The frontier is asked whether a link was *seen* already, for the links of many pages at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat

from msgspec.structs import replace

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.access import is_action, skipped, skipped_form, skipped_text
from greencrawl.schema.net.action_texts import LinkTexts, by_texts
from greencrawl.schema.net.normalising import rewriter
from greencrawl.schema.net.scope import Rules, level_for
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Crawl,
    Link,
    Page,
    Task,
    TaskKind,
)

MAX_LINKS = 50_000
"""At most this many links of one page are followed, as many as a sitemap may have.

A page with more is a trap or a dump. One with 50,000 takes 0.2 s of CPU, nearly all of it to parse
its 4 MB.
"""

MAX_REDIRECTS = 10
"""At most this many redirects in a row are followed: half of browsers' 20, and more than RFC 9110's
historical five."""

MAX_SKIPPED = 1000
"""At most this many skipped links of one page, which log out or change something, are noted."""

_VERDICTS = 20_000
_LONG = 500
"""Characters of a URL or reference that is not worth caching: traps are full of them."""

_NO_SCORES: Mapping[str, float | None] = {}


class Checker:
    """Checks scope for one revision of a crawl; remembers its verdicts on recent URLs.

    A verdict holds for all depths, since the depth is the same for all links of a page and is
    checked first. Sites repeat their menu on every page: most links cost one look-up.
    """

    def __init__(self, crawl: Crawl, rules: Rules) -> None:
        self._order = crawl.options.order
        self._depth = crawl.options.depth
        self._rules = rules
        self._verdicts: dict[str, bool] = {}
        self.wants_texts = any(skip.words for skip in rules.skips)
        """True if the texts of links may show that they must not be followed."""
        self._obeys_nofollow = crawl.options.nofollow == "skip"
        self._skipped: dict[str, str] = {}
        self._noted: set[int] = set()
        chosen = frozenset(crawl.options.normalise)
        self._rewrite = rewriter(chosen) if chosen else None
        # True for most crawls: one verdict on a page's host then holds for nearly all its links.
        self._by_host = rules.scope != "prefix" and not (
            rules.include.texts or rules.exclude.texts or rules.skips
        )

    def take_skipped(self) -> dict[str, str]:
        """Return URLs that were skipped since the last call as actions of a logged-in user; and
        why.

        A URL is returned only once in a while, however many pages link to it.
        """
        if not self._skipped:
            return {}
        taken, self._skipped = self._skipped, {}
        return taken

    def check(
        self, page: Page, links: Sequence[Link], depth: int, texts: LinkTexts | None = None
    ) -> list[Admission]:
        """Return the admissions of ``links``, found in ``page`` at ``depth``: each URL once.

        They are in the page's order, and at most ``MAX_LINKS``; how many were left out is added to
        the page's ``omitted_links``. ``rel=nofollow`` and the page's own nofollow are honoured.
        URLs of a hook are made canonical, and dropped if they are invalid. ``texts`` are the texts
        of the page's own links, if they are wanted. The rules of the crawl's ``normalise`` are
        applied to all. An entry of its ``auth`` may skip a URL in its original form and in its
        rewritten form.
        """
        below = depth + 1
        if not page.follow or below > self._depth:
            return []
        trusted = links is page.links
        barred = self._barred(page, texts, below)
        wanted: dict[str, float | None] = {}
        for link in links:
            if link.rel and self._obeys_nofollow and _says_nofollow(link.rel):
                continue
            url: str | None = link.url
            if not trusted:
                url = _canonical(link.url, page)
            if url is not None and self._rewrite is not None:
                url = None if url in barred else self._rewritten(url, page) or None
            if url is None or url in wanted or url in barred:
                continue
            if not self._accepts(url, below):
                continue
            if len(wanted) < MAX_LINKS:
                wanted[url] = link.score
            else:
                page.omitted_links += 1
        return self._admissions(wanted, below, wanted)

    def follow(
        self,
        page: Page,
        urls: Sequence[str],
        rels: Sequence[str | None],
        depth: int,
        texts: LinkTexts | None = None,
    ) -> list[Admission]:
        """Run :meth:`check` for a page whose links nobody else needs: the same, but faster.

        ``urls`` are the URLs of its references, fewer than ``MAX_LINKS``; "" is no URL. ``rels``
        are their rels, and ``texts`` the texts of the links, if wanted.
        """
        below = depth + 1
        if not page.follow or below > self._depth:
            return []
        by_text = set() if texts is None else self._barred(page, texts, below)
        if self._obeys_nofollow and any(rels):
            pairs = list(zip(urls, rels, strict=True))
            barred = {url for url, rel in pairs if rel and _says_nofollow(rel)}
            if barred:  # a URL is barred only if all links to it are
                barred -= {url for url, rel in pairs if not (rel and _says_nofollow(rel))}
                urls = [url for url in urls if url not in barred]
        wanted: dict[str, None] = dict.fromkeys(urls)
        wanted.pop("", None)
        for url in by_text:
            wanted.pop(url, None)
        if self._rewrite is not None:
            wanted = dict.fromkeys([self._rewritten(url, page) for url in wanted])
            for url in (*by_text, ""):
                wanted.pop(url, None)
        accepts = self._accepts
        if not self._by_host:
            return self._admissions([url for url in wanted if accepts(url, below)], below)
        home = origin_of(page.base) + "/"
        ours = accepts(home, below)
        return self._admissions(
            [url for url in wanted if (ours if url.startswith(home) else accepts(url, below))],
            below,
        )

    def with_requisites(
        self,
        page: Page,
        links: list[Admission],
        urls: Collection[str],
        task: Task,
        redirects: int = 0,
    ) -> list[Admission]:
        """Return ``links`` of a page, then its requisites: the canonical ``urls`` that it needs to
        be shown in full.

        Requisites have the depth of the page's ``task``; nofollow and scope do not apply to them,
        and they are not rewritten. Links and requisites are at most ``MAX_LINKS`` together; how
        many were left out is added to the page's ``omitted_links``. ``redirects`` is set on each
        requisite.
        """
        known = {link.url for link in links}
        needed = [url for url in urls if url not in known and self._bears(url)]
        room = max(MAX_LINKS - len(links), 0)
        page.omitted_links += max(len(needed) - room, 0)
        level = level_for(self._order, task.depth, None, page.url)
        kind = TaskKind.REQUISITE
        return links + [Admission(url, task.depth, level, redirects, kind) for url in needed[:room]]

    def _bears(self, url: str) -> bool:
        """Return whether the rules allow a requisite."""
        reason = self._rules.bars(url) if self._rules.bars_any else None
        if reason is not None and is_action(reason):
            self._note(url, reason)
        return reason is None

    def _rewritten(self, url: str, page: Page) -> str:
        """Return a canonical URL by the crawl's rules of ``normalise``; count changes.

        "" if the original URL is skipped because the crawl is logged in.
        """
        assert self._rewrite is not None
        found = self._rewrite(url)
        if found == url:
            return url
        reason = skipped(self._rules.skips, url)
        if reason is not None:
            if is_action(reason):
                self._note(url, reason)
            return ""
        page.rewritten_links += 1
        return found

    def _accepts(self, url: str, depth: int) -> bool:
        """Return whether a canonical URL is in scope, by an earlier verdict if there is one."""
        verdict = self._verdicts.get(url)
        if verdict is None:
            reason = self._rules.excluded_by(url, depth)
            verdict = reason is None
            if reason is not None and self._rules.skips and is_action(reason):
                self._note(url, reason)
            self._remember(url, verdict)
        return verdict

    def _remember(self, url: str, verdict: bool) -> None:
        if len(url) <= _LONG:
            if len(self._verdicts) > _VERDICTS:
                self._verdicts.clear()
            self._verdicts[url] = verdict

    def _barred(self, page: Page, texts: LinkTexts | None, depth: int) -> set[str]:
        """Return a page's links that their texts show to be actions, and the targets of its forms.

        A form's target is left out if a link leads there, too: then the link is judged instead.
        """
        barred: set[str] = set()
        if texts is None or not (texts.words or texts.forms):
            return barred
        for url in set(texts.forms).difference(texts.urls):
            reason = skipped_form(self._rules.skips, url, page.url)
            if reason is not None and self._accepts(url, depth):
                barred.add(url)
                self._note(url, reason)
        for url, action in by_texts(texts, page.url).items():
            if not self._accepts(url, depth):
                continue
            reason = skipped_text(self._rules.skips, url, action, page.url)
            if reason is not None:
                barred.add(url)
                self._note(url, reason)
                if action.kind == "log_out":  # on another page the link may be an icon
                    self._remember(url, False)
        return barred

    def _note(self, url: str, reason: str) -> None:
        number = hash(url)
        if number in self._noted or len(self._skipped) >= MAX_SKIPPED:
            return
        if len(self._noted) >= _VERDICTS:
            self._noted.clear()
        self._noted.add(number)
        self._skipped[url] = reason

    def _admissions(
        self, urls: Iterable[str], depth: int, scores: Mapping[str, float | None] = _NO_SCORES
    ) -> list[Admission]:
        order = self._order
        if order != "best":
            level = level_for(order, depth, None, "")
            return list(map(Admission, urls, repeat(depth), repeat(level)))
        return [
            Admission(url, depth, level_for("best", depth, scores.get(url), url)) for url in urls
        ]


def _says_nofollow(rel: str) -> bool:
    return "nofollow" in rel.lower().split()


def redirected(task: Task, target: str) -> Admission:
    """Return the admission of ``target`` (canonical, in scope), to which ``task`` redirects, at the
    depth of ``task``."""
    kind = TaskKind.PAGE if task.kind is TaskKind.REFETCH else task.kind
    return Admission(target, task.depth, task.level, task.redirects + 1, kind)


def as_page(task: Task) -> Task:
    """Return the task of a requisite that turned out to be a page, for example of an ``object``.

    The page counts as one link deeper: no link to it will be admitted later.
    """
    return replace(task, kind=TaskKind.PAGE, depth=task.depth + 1)


def redirect_problem(task: Task, location: str) -> str:
    """Say why a redirect of ``task`` to ``location`` (as sent) leads nowhere, or "" if it is
    followed."""
    if not location:
        return "no Location"
    if task.redirects % INDEX_STEP >= MAX_REDIRECTS:
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
