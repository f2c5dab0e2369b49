"""A worker's data about each crawl, per revision: options, scope, hooks, kernels, headers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from gevent.lock import BoundedSemaphore

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net import scope
from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.permits import OWN, Permits
from greencrawl.schema.net.request import ACCEPT_JSON, crawl_headers, shown
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Refusal,
    Session,
    StoredPage,
    Validators,
)
from greencrawl.schema.records.auth import Form, OAuth2, Own
from greencrawl.schema.text.kernel_rules import own_code, own_kernels
from greencrawl.schema.text.link_sources import chosen_sources
from greencrawl.store.base import Detail
from greencrawl.worker import hooks
from greencrawl.worker.extract.listing import Listing, listing_of
from greencrawl.worker.extract.sources.wanted import Wanted
from greencrawl.worker.hooks import Hooks
from greencrawl.worker.kernels.choosing import NO_KERNELS, Kernels
from greencrawl.worker.link_checker import Checker
from greencrawl.worker.robots.parser import product_token
from greencrawl.worker.session.backoff import until_available
from greencrawl.worker.session.caps import Caps

log = logger("worker")

TRY_AGAIN_SECONDS = 20.0
"""Seconds between two attempts to import a crawl's code."""
REFUSALS = 100
"""A lease names at most this many crawls as refused."""


class CrawlSource(Protocol):
    """The part of a store that is used here; see ``greencrawl.store.base.Store``."""

    def crawl(self, name_or_id: str | int) -> Crawl:
        """Return the crawl as it is now. Raises UnknownCrawl, Unavailable."""


class RootStore(CrawlSource, Protocol):
    """The part of a store that is used here; see ``greencrawl.store.base.Store``."""

    def add_roots(self, crawl: int, roots: list[str]) -> Crawl:
        """Widen a crawl's scope; return the crawl after that. Raises Unavailable."""

    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        """Return the latest version of a page, or None. Raises BodyAway, Unavailable."""

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        """Return fingerprint → validators of the stored page. Raises Unavailable."""

    def with_page(self, crawl: int, fingerprints: Sequence[int]) -> frozenset[int]:
        """Return the fingerprints that have a page. Raises Unavailable."""


class DelayTooShort(Exception):
    """Raised for a session that keeps a shorter delay than its crawl has now."""


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
    paced_since: int = 0
    """The revision that set the present pace; sessions of earlier revisions keep another pace."""

    def outpaced(self, session: Session) -> bool:
        """Return whether the crawl's delay was made longer after the session was opened."""
        return session.revision < self.paced_since and session.floor < self.options.delay

    @property
    def pace(self) -> tuple[float, int]:
        """Return the delay and the slots with which sessions are opened."""
        return self.options.delay, self.options.slots

    kernels: Kernels = NO_KERNELS

    @cached_property
    def options(self) -> CrawlOptions:
        """Return the options of the crawl."""
        return self.crawl.options

    @cached_property
    def caps(self) -> Caps:
        """Return the limits on the addresses and domains of its hosts."""
        return Caps.of(self.options)

    @cached_property
    def only_start(self) -> str:
        """Return the canonical URL that the crawl starts at, "" if there are several, or none."""
        begins = scope.starts(self.options)
        return queued_url(self.options, begins[0][1]) if len(begins) == 1 else ""

    @cached_property
    def logs_in(self) -> bool:
        """Return whether an entry of ``auth`` logs in, instead of authenticating each request."""
        return any(isinstance(entry, Form | OAuth2 | Own) for entry in self.options.auth)

    @cached_property
    def wanted(self) -> Wanted:
        """Return which links are read in its pages, and whether requisites are."""
        return Wanted(chosen_sources(self.options.links), self.options.requisites == "on")

    @cached_property
    def backtracks(self) -> bool:
        """Return whether the page must be in the crash record when its scope is checked.

        See ``greencrawl.schema.net.scope.Rules``.
        """
        return self.rules.backtracks

    @cached_property
    def shown(self) -> dict[str, str]:
        """Return the part of ``headers`` that may be stored. Do not change it: pages share it."""
        return shown(self.headers)

    def listing(self, url: str) -> Listing | None:
        """Return the source with a list that has a page at the canonical ``url``; None if there is
        none."""
        if not self.listings or self.kernels.at(url) is not None:
            return None
        return listing_of(self.listings, url)

    def headers_for(self, url: str) -> dict[str, str]:
        """Return the headers of a request for the canonical ``url``, before credentials and
        hooks."""
        if not self.listings or self.listing(url) is None:
            return self.headers
        return {**self.headers, "accept": ACCEPT_JSON}


def context_of(crawl: Crawl) -> CrawlContext:
    """Compile a crawl's options. Raises InvalidConfig if its hook, or a kernel, cannot be imported
    here."""
    rules = scope.compile(crawl)
    options = crawl.options
    agent = options.user_agent
    return CrawlContext(
        crawl=crawl,
        rules=rules,
        checker=Checker(crawl, rules),
        hooks=hooks.load(options.hook),
        agent=product_token(agent),
        headers=crawl_headers(options),
        listings=tuple(Listing(source) for source in options.sources),
        kernels=Kernels(options) if options.kernels else NO_KERNELS,
    )


class Refused(GreencrawlError):
    """Raised for a crawl that this process cannot work on; see :meth:`Crawls.refusals`."""


MOST = 32
"""A process has at most this many crawls ready; each remembers the verdicts of its scope, some
MB."""
IDLE_SECONDS = 300.0
"""A crawl without a session for this long is dropped; it is read again if it comes back."""


class Crawls:
    """Contexts by crawl id; reloaded when a session names a newer revision.

    A crawl whose hook or kernel is not permitted, or cannot be imported, is refused. The import is
    tried again every :data:`TRY_AGAIN_SECONDS`: an operator may have installed the module.
    """

    def __init__(
        self, source: CrawlSource, clock: Clock = monotonic, permits: Permits = OWN
    ) -> None:
        self._source = source
        self._permits = permits
        self._clock = clock
        self._contexts: CrawlCache[int, CrawlContext] = CrawlCache(MOST, IDLE_SECONDS, clock)
        self._loading = BoundedSemaphore(1)
        self._refused: dict[int, tuple[int, Refusal]] = {}
        """Crawl → the revision that is refused, and why."""
        self._tried = clock()

    def get(self, crawl: int, revision: int) -> CrawlContext:
        """Return the context, at least as new as ``revision``; wait while the store is away.

        Raises UnknownCrawl when the crawl was deleted, Refused when its code cannot be imported.
        """
        context = self._contexts.get(crawl)
        if context is not None and context.crawl.revision >= revision:
            return context
        with self._loading:  # many sessions of a new crawl start at once
            if crawl in self._refused and self._refused[crawl][0] >= revision:
                raise Refused(self._refused[crawl][1].reason)
            context = self._contexts.get(crawl)
            if context is None or context.crawl.revision < revision:
                context = self.put(until_available(lambda: self._source.crawl(crawl), "store"))
            return context

    def of(self, session: Session) -> CrawlContext:
        """Return the context for a session that begins. Raises what :meth:`get` raises, and
        DelayTooShort: its lease came after its crawl was slowed."""
        context = self.get(session.crawl, session.revision)
        if context.outpaced(session):
            with suppress(Unavailable):  # the store may have been put back to an older copy
                context = self.renew(session.crawl) or context
            if context.outpaced(session):
                raise DelayTooShort
        return context

    def latest(self, context: CrawlContext) -> CrawlContext:
        """Return the newest known context of the crawl: its options may have been changed."""
        return self._contexts.peek(context.crawl.id) or context

    def renew(self, crawl: int) -> CrawlContext | None:
        """Read a crawl again after its options were changed.

        None if this process does not work on it, or cannot any more. Raises Unavailable.
        """
        if self._contexts.get(crawl) is None:
            return None
        try:
            return self.put(self._source.crawl(crawl))
        except (UnknownCrawl, Refused):
            return None

    def put(self, crawl: Crawl) -> CrawlContext:
        """Take over a crawl that was read, or widened, just now. Raises Refused."""
        try:
            for named in (crawl.options.hook, *own_kernels(crawl.options)):
                if why := self._permits.module(named):
                    raise InvalidConfig([("hook", why)])
            context = self._paced(context_of(crawl))
        except InvalidConfig as error:
            reason = "; ".join(why for _, why in error.problems)
            if crawl.id not in self._refused:
                log.warning("hook_not_loaded", hook=own_code(crawl.options), reason=reason)
            refusal = Refusal(crawl.id, own_code(crawl.options), reason[:300])
            self._refused[crawl.id] = crawl.revision, refusal
            self._contexts.drop(crawl.id)
            raise Refused(reason) from error
        self._contexts[crawl.id] = context
        if self._refused.pop(crawl.id, None) is not None:
            log.info("hook_loaded", hook=own_code(crawl.options))
        return context

    def _paced(self, context: CrawlContext) -> CrawlContext:
        """Return the context with the revision that set its pace, if an earlier context is known
        here."""
        known, crawl = self._contexts.get(context.crawl.id), context.crawl
        if known is None:
            return context
        same = known.pace == context.pace
        return replace(context, paced_since=known.paced_since if same else crawl.revision)

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the crawls of which no session is taken; try first to load them, if that is
        due."""
        if self._refused and self._clock() - self._tried >= TRY_AGAIN_SECONDS:
            self._tried = self._clock()
            for crawl in list(self._refused):
                self._try_again(crawl)
        return tuple(refusal for _, refusal in self._refused.values())[:REFUSALS]

    def _try_again(self, crawl: int) -> None:
        try:
            self.put(self._source.crawl(crawl))
        except UnknownCrawl:
            del self._refused[crawl]
        except (Refused, Unavailable):
            pass  # it stays refused until the next try
