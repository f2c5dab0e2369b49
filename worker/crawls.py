"""What a worker knows about each crawl, per revision: options, compiled scope, hooks, headers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from gevent.lock import BoundedSemaphore

from schema import scope
from schema.auth import Form, OAuth2, Own
from schema.errors import InvalidConfig
from schema.log import logger
from schema.records import Crawl, CrawlOptions
from schema.request import ACCEPT_JSON, crawl_headers, shown
from worker import hooks
from worker.backoff import persist
from worker.extract.listing import Listing, listing_of
from worker.hooks import Hooks
from worker.links import Checker
from worker.robots import product_token

log = logger("worker")


class CrawlSource(Protocol):
    """The part of a store that is needed here; see ``store.base.Store``."""

    def crawl(self, name_or_id: str | int) -> Crawl: ...


@dataclass(frozen=True)
class CrawlContext:
    """One revision of a crawl, ready to use. ``agent`` is its product token."""

    crawl: Crawl
    rules: scope.Rules
    checker: Checker
    hooks: Hooks
    agent: str
    headers: dict[str, str]
    listings: tuple[Listing, ...] = ()

    @property
    def options(self) -> CrawlOptions:
        return self.crawl.options

    @cached_property
    def logs_in(self) -> bool:
        """Whether an entry of its ``auth`` makes a login, rather than prove each request."""
        return any(isinstance(entry, Form | OAuth2 | Own) for entry in self.options.auth)

    @cached_property
    def backtracks(self) -> bool:
        """Whether its scope must be asked under the marker; see ``schema.scope.Rules``."""
        return self.rules.backtracks

    @cached_property
    def shown(self) -> dict[str, str]:
        """What may be kept of ``headers``. Not to be changed: pages share it."""
        return shown(self.headers)

    def listing(self, url: str) -> Listing | None:
        """The source of which the canonical ``url`` is a page, if any."""
        return listing_of(self.listings, url) if self.listings else None

    def headers_for(self, url: str) -> dict[str, str]:
        """What is sent when the canonical ``url`` is asked for, before credentials and hooks."""
        if not self.listings or self.listing(url) is None:
            return self.headers
        return {**self.headers, "accept": ACCEPT_JSON}


def context_of(crawl: Crawl) -> CrawlContext:
    """Compile a crawl's options."""
    rules = scope.compile(crawl)
    options = crawl.options
    agent = options.user_agent
    return CrawlContext(
        crawl=crawl,
        rules=rules,
        checker=Checker(crawl, rules),
        hooks=_hooks(options.hook),
        agent=product_token(agent),
        headers=crawl_headers(options),
        listings=tuple(Listing(source) for source in options.sources),
    )


def _hooks(module: str) -> Hooks:
    """The crawl's hooks; if this host cannot load them, each page's journal will say so."""
    try:
        return hooks.load(module)
    except InvalidConfig as error:
        log.warning("hook cannot be used on this host", hook=module, reason=str(error))
        problem = str(error)

    def unusable(*_: Any) -> Any:
        raise InvalidConfig([("hook", problem)])

    return Hooks(on_page=unusable)


class Crawls:
    """Contexts by crawl id; reloaded when a session names a newer revision."""

    def __init__(self, source: CrawlSource) -> None:
        self._source = source
        self._contexts: dict[int, CrawlContext] = {}
        self._loading = BoundedSemaphore(1)

    def get(self, crawl: int, revision: int) -> CrawlContext:
        """The context, at least as new as ``revision``; waits while the store is away.

        Raises UnknownCrawl when the crawl was deleted.
        """
        context = self._contexts.get(crawl)
        if context is not None and context.crawl.revision >= revision:
            return context
        with self._loading:  # many sessions of a new crawl start at once
            context = self._contexts.get(crawl)
            if context is None or context.crawl.revision < revision:
                context = self.put(persist(lambda: self._source.crawl(crawl), "store"))
            return context

    def put(self, crawl: Crawl) -> CrawlContext:
        """Take over a crawl that was read, or widened, just now."""
        context = self._contexts[crawl.id] = context_of(crawl)
        return context
