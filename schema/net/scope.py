"""Which URLs belong to a crawl, and in which order they come: scope, patterns, depth, priority.

Scope is measured from *roots*, written without a scheme: ``example.org`` or ``example.org:8080``
(scope host), ``example.org`` (domain), ``example.org/docs/`` (prefix), ``*`` (any). The http and
https URLs of a host belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.access import Skip, check_auth, check_sources, skipped, skips
from greencrawl.schema.net.urls import canonicalise, host_of, registrable_domain, site_of, task_path
from greencrawl.schema.records import LEVELS, Crawl, CrawlOptions, Order, Scope, Task, TaskKind
from greencrawl.schema.records.recrawl import NO_DEPTH
from greencrawl.schema.text.kernel_rules import check_kernels
from greencrawl.schema.text.link_sources import chosen_sources, unknown_sources
from greencrawl.schema.text.patterns import Patterns, problem

_ANY = "*"


def root_of(scope: Scope, canonical_url: str) -> str:
    """Return the root that a seed gives its crawl.

    prefix: URLs that start with the seed, or with its folder if the seed has a query or its last
    segment looks like a file (``/docs/index.html`` → ``/docs/``). domain: one label under a public
    suffix, private suffixes (``github.io``) included.
    """
    if scope == "any":
        return _ANY
    host = host_of(canonical_url)
    if scope == "host":
        return host
    if scope == "domain":
        return site_of(host)
    path, query, _ = task_path(canonical_url)[1:].partition("?")
    folder, _, last = path.rpartition("/")
    return host + (f"{folder}/" if query or "." in last else path)


@dataclass(frozen=True, slots=True)
class Rules:
    """The scope of one revision of a crawl, made by :func:`compile`; checking a URL is cheap."""

    scope: Scope
    roots: frozenset[str]
    prefixes: tuple[str, ...]
    include: Patterns
    exclude: Patterns
    depth: int
    skips: tuple[Skip, ...] = ()

    def excluded_by(self, url: str, depth: int, seed: bool = False) -> str | None:
        """Return why a canonical URL at ``depth`` is not fetched, None if it is.

        The reason is short and names the rule. A seed need not match an ``include`` pattern; all
        other rules hold for it too, the lists of ``auth`` included.
        """
        if depth > self.depth:
            return f"depth {depth} > {self.depth}"
        if not self._within(url):
            return f"scope {self.scope}: not one of {_listed(self.roots)}"
        if (self.exclude.texts or self.skips) and (reason := self.bars(url)) is not None:
            return reason
        if self.include.texts and not seed and self.include.first(url) is None:
            return "include: matches none"
        return None

    def bars(self, url: str) -> str | None:
        """Return why a requisite is not fetched, None if it is.

        A requisite may come from any host, unless its URL is excluded or would log out.
        """
        pattern = self.exclude.first(url) if self.exclude.texts else None
        if pattern is not None:
            return f"exclude pattern {pattern!r}"
        return skipped(self.skips, url) if self.skips else None

    @property
    def bars_any(self) -> bool:
        """Return whether :meth:`bars` could ever refuse a URL."""
        return bool(self.exclude.texts or self.skips)

    @property
    def backtracks(self) -> bool:
        """Return whether a pattern from before RE2 is used, which may backtrack for ever."""
        return (
            self.include.backtrack
            or self.exclude.backtrack
            or any(skip.patterns.backtrack for skip in self.skips)
        )

    def judge(self, task: Task, url: str, link: bool = False) -> str | None:
        """Return why a task's URL, or the URL that it redirects to, is not fetched; None if it is.

        A redirect has the exemptions of its task. ``link``: the URL is a link of the task's page,
        at the page's own depth, and is not exempt. A sitemap need not lie in scope, nor match
        ``include``; the URLs that it lists must. A sitemap redirects, and an index leads, only to
        its own site or into the scope.
        """
        if link:
            return self.excluded_by(url, task.depth)
        if task.kind is not TaskKind.PAGE:
            if task.kind is TaskKind.REQUISITE:
                return self.bars(url)
            if task.kind.is_sitemap:
                return self._excludes_sitemap(task, url)
        return self.excluded_by(url, task.depth, seed=task.is_seed)

    def _excludes_sitemap(self, task: Task, url: str) -> str | None:
        if task.depth > self.depth:
            return f"depth {task.depth} > {self.depth}"
        if site_of(host_of(url)) != site_of(host_of(task.url)) and not self._within(url):
            return f"scope {self.scope}: a sitemap of another site"
        return self.bars(url)

    def _within(self, url: str) -> bool:
        if self.scope == "any":
            return True
        host = host_of(url)
        if self.scope == "host":
            return host in self.roots
        if self.scope == "domain":
            return site_of(host) in self.roots
        return (host + task_path(url)[1:]).startswith(self.prefixes)


def compile(crawl: Crawl) -> Rules:
    """Compile the scope of a crawl; keep the result until the crawl's ``revision`` changes.

    Raises ``re.error`` for an invalid pattern, ValueError for an invalid origin;
    :func:`check_options` finds such errors before a crawl is made.
    """
    options = crawl.options
    return Rules(
        scope=options.scope,
        roots=frozenset(crawl.roots),
        # A root without a path was made when the crawl had another scope: it means the whole host.
        prefixes=tuple(root if "/" in root else f"{root}/" for root in crawl.roots),
        include=Patterns(options.include),
        exclude=Patterns(options.exclude),
        depth=options.depth,
        skips=skips(options.auth, options.follow_actions),
    )


def redirect_root(rules: Rules, from_url: str, to_url: str) -> str | None:
    """Return the root to add when a seed at ``from_url`` redirects to ``to_url``, or None.

    A seed takes its scope along to another host of its own registrable domain (``example.org`` →
    ``www.example.org``). With scope prefix, the folder is taken along if the target lies in it.
    Otherwise the target's own root is added, unless that is the whole host.
    """
    from_host, to_host = host_of(from_url), host_of(to_url)
    if (
        rules.scope == "any"
        or from_host == to_host
        or registrable_domain(from_host) != registrable_domain(to_host)
        or site_of(from_host) != site_of(to_host)
    ):
        return None
    root = root_of(rules.scope, to_url)
    if rules.scope == "prefix":
        folder = root_of("prefix", from_url).removeprefix(from_host)
        if task_path(to_url)[1:].startswith(folder):
            root = to_host + folder
        elif root == f"{to_host}/":
            return None
    return None if root in rules.roots else root


def level_for(order: Order, depth: int, score: float | None, url: str) -> int:
    """Return the priority level of a URL at ``depth``; 0 comes first, then arrival decides.

    breadth and depth keep the order of depths exact for the first ``LEVELS``; deeper URLs share the
    last level. best uses ``score`` (0 … 1). Without a score it prefers URLs near a seed, then short
    paths without a query, as index pages have them.
    """
    if order == "best":
        if score is None or score != score:  # a hook's NaN counts as no score
            score = _default_score(depth, url)
        return round((1.0 - min(max(score, 0.0), 1.0)) * (LEVELS - 1))
    level = min(max(depth, 0), LEVELS - 1)
    return level if order == "breadth" else LEVELS - 1 - level


def _default_score(depth: int, url: str) -> float:
    path, query, _ = task_path(url).partition("?")
    segments = path.rstrip("/").count("/")
    return 1.0 / (1.0 + 0.2 * max(depth, 0) + 0.1 * segments + (0.3 if query else 0.0))


_SCOPES: tuple[Scope, ...] = ("prefix", "host", "domain", "any")
"""From the narrowest to the widest."""


def widened(before: Crawl, after: Crawl) -> tuple[int, str] | None:
    """Return which stored pages may have links that ``after`` follows and ``before`` did not.

    The result is (the least depth of these pages, the option that lets more through, in words), or
    None if there are none. Lists of patterns are compared as lists: a part of a list lets less
    through. Two patterns are not compared by what they match.
    """
    old, new = before.options, after.options
    more = {
        "scope": _SCOPES.index(new.scope) > _SCOPES.index(old.scope),
        "nofollow": (old.nofollow, new.nofollow) == ("skip", "follow"),
        "requisites": (old.requisites, new.requisites) == ("off", "on"),
    }
    lists = {
        "include": old.include and not (new.include and set(new.include) <= set(old.include)),
        "exclude": not set(old.exclude) <= set(new.exclude),
        "links": not chosen_sources(new.links) <= chosen_sources(old.links),
        "follow_actions": not set(new.follow_actions) <= set(old.follow_actions),
    }
    changed = [f"{name} {getattr(old, name)} → {getattr(new, name)}" for name in more if more[name]]
    changed += [name for name in lists if lists[name]]
    if (
        not more["scope"]
        and before.roots
        and not all(_covers(before, after, r) for r in after.roots)
    ):
        changed.append("seeds elsewhere")
    deeper = [f"depth {old.depth} → {new.depth}"] if new.depth > old.depth else []
    if not (changed or deeper):
        return None
    return 0 if changed else old.depth, ", ".join(deeper + changed)


def deeper_calendar(before: CrawlOptions, after: CrawlOptions) -> str:
    """Return why known pages are to get places in the calendar; "" if they are not.

    Pages get places if the options ``before`` the change gave them none, but those ``after`` it do.
    """
    old, new = (
        NO_DEPTH if options.recrawl is None else options.recrawl.deepest
        for options in (before, after)
    )  # fmt: skip
    if after.recrawl is None or new <= old:
        return ""
    return f"recrawl depth {before.recrawl.depth if before.recrawl else 0} → {after.recrawl.depth}"


def _covers(before: Crawl, after: Crawl, root: str) -> bool:
    """Return whether ``before`` had all URLs in scope that this root gives ``after``, whose scope
    is no wider."""
    scope = before.options.scope
    if scope in ("any", after.options.scope):
        return scope == "any" or root in before.roots
    host = root.partition("/")[0]
    return (host if scope == "host" else site_of(host)) in before.roots


def starts(options: CrawlOptions) -> list[tuple[str, str]]:
    """Return where a crawl begins: ``(field, URL)`` of its seeds, then of its sources."""
    seeds = [(f"seeds[{index}]", seed) for index, seed in enumerate(options.seeds)]
    sources = enumerate(options.sources)
    return seeds + [(f"sources[{index}].url", source.url) for index, source in sources]


def check_options(options: CrawlOptions) -> list[tuple[str, str]]:
    """Return what is wrong with a crawl's options beyond their types: (field, problem) pairs."""
    problems: list[tuple[str, str]] = []
    for index, seed in enumerate(options.seeds):
        try:
            canonicalise(seed)
        except InvalidUrl as error:
            problems.append((f"seeds[{index}]", str(error)))
    problems += _check_patterns("include", options.include)
    problems += _check_patterns("exclude", options.exclude)
    problems += _check_patterns("follow_actions", options.follow_actions)
    problems += [(f"links[{index}]", what) for index, what in unknown_sources(options.links)]
    problems += check_auth(options.auth)
    problems += check_sources(options.sources)
    problems += check_kernels(options.kernels)
    if options.slots > 1 and options.delay > 0:
        problems.append(("slots", f"more than one needs delay = 0, not {options.delay:g}"))
    if options.recrawl is not None:
        if not starts(options):
            problems.append(("recrawl", "needs `seeds` or `sources` to begin again from"))
        if options.max_pages or options.max_bytes or options.max_seconds:
            what = "cannot be had together with max_pages, max_bytes or max_seconds"
            problems.append(("recrawl", what))
    return problems


def _check_patterns(field: str, patterns: Sequence[str]) -> list[tuple[str, str]]:
    found = ((index, problem(pattern)) for index, pattern in enumerate(patterns))
    return [(f"{field}[{index}]", what) for index, what in found if what is not None]


def _listed(roots: frozenset[str]) -> str:
    """Return up to three roots, for a reason that a person reads."""
    shown = sorted(roots)[:3]
    more = len(roots) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "none"
