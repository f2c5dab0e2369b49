"""Where is this URL, and why is it not fetched yet? One clear sentence for each crawl."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from greencrawl.broker.service.pages import UNCHANGED, gone_since_ms
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.purge import PURGED
from greencrawl.schema.errors import InvalidUrl, Unavailable
from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.scope import compile
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import (
    Attempt,
    Crawl,
    FailureKind,
    Final,
    StoredPage,
    TaskKind,
    UrlState,
)
from greencrawl.schema.text.again import again_text
from greencrawl.schema.text.declared import declared_text
from greencrawl.schema.text.guessed import guessed_text
from greencrawl.schema.text.kernel_rules import KernelRules
from greencrawl.schema.text.parked import parked_text

ATTEMPTS = 20
_SAYS = {"dead": "given up", "gone": "settled as gone", "excluded": "not fetched by rule"}
_BESIDE = frozenset({FailureKind.LINKS, FailureKind.SITEMAP, FailureKind.DENSE, FailureKind.COSTLY})
"""Kinds of failures that are in the journal of stored pages."""


def explain(service: Service, given: str, crawl: str | None) -> list[UrlState]:
    """Return the URL's state in ``crawl``, or in every crawl. Raises UnknownCrawl and
    Unavailable."""
    crawls = [service.store.crawl(crawl)] if crawl else service.store.crawls()
    try:
        return [_in_crawl(service, one, queued_url(one.options, given)) for one in crawls]
    except InvalidUrl as error:
        why = f"not a URL to crawl: {error.reason}"
        return [UrlState(crawl=c.name, url=given, state="invalid", why=why) for c in crawls]


def _in_crawl(service: Service, crawl: Crawl, url: str) -> UrlState:
    fingerprint = service.frontier.fingerprint(url)
    attempts = tuple(service.store.attempts(crawl.id, fingerprint, ATTEMPTS))
    page = service.store.page(crawl.id, fingerprint, detail="row")
    versions = tuple(service.store.history(crawl.id, fingerprint, ATTEMPTS)) if page else ()
    final = service.store.final(crawl.id, fingerprint)
    stored_ms = max(_stored_ms(page, attempts), final.at_ms if final is not None else 0)
    try:
        state = service.frontier.find_url(crawl, url, stored_ms)
    except Unavailable as error:
        if not service.frontier.nodes_away():
            raise
        state = UrlState(crawl=crawl.name, url=url, state="away", why=_of_away(service, error))
    if state.state in ("waiting", "leased", "later", "overflow"):
        why = state.why
        if crawl.state != "active":
            why = f"the crawl is {crawl.state}{_because(crawl)}; {why}"
        elif state.state != "leased" and (idle := _of_workers(service)):
            why = f"{idle}; {why}"
        kernel = KernelRules(crawl.options.kernels).named(url)
        why += f"; the kernel {kernel} is for it" if kernel else ""
        state = msgspec.structs.replace(state, why=why)
    elif page is not None:
        again = again_text(crawl, url, _moment, service.store.planned(crawl.id, fingerprint))
        why = _of_page(crawl, page, attempts) + _since(page, final, attempts)
        why += f"; {again}" if again else ""
        state = msgspec.structs.replace(state, state="fetched", why=why)
    elif final is not None:
        why = _of_final(crawl, final)
        if planned := service.store.planned(crawl.id, fingerprint):
            why += f"; {again_text(crawl, url, _moment, planned)}"
        state = msgspec.structs.replace(state, state=final.state, why=why)
    elif state.state == "seen" and (guessed := guessed_text(url, attempts)):
        state = msgspec.structs.replace(state, why=f"{state.why}; {guessed}")
    elif state.state == "unseen":
        state = msgspec.structs.replace(state, why=_of_unseen(crawl, url))
    known = page or final
    if known is not None and known.url != url:
        state = msgspec.structs.replace(state, why=f"{state.why}; it was found as {known.url}")
    return msgspec.structs.replace(
        state, crawl=crawl.name, url=url, host=host_of(url), attempts=attempts or state.attempts,
        versions=versions if len(versions) > 1 else (), page=page.id if page else "",
    )  # fmt: skip


def _stored_ms(page: StoredPage | None, attempts: Sequence[Attempt]) -> int:
    """Return when a page was stored, or found unchanged; 0 without one."""
    if page is None:
        return 0
    same = [one.at_ms for one in attempts if one.code == UNCHANGED]
    return max(page.fetched_ms, *same) if same else page.fetched_ms


def _of_away(service: Service, error: Unavailable) -> str:
    away = service.frontier.nodes_away().values()
    since = [one for one in away if one.why == str(error) and one.since_ms]
    moment = f" since {_moment(since[0].since_ms)}" if since else ""
    return f"the waiting URLs of its host are unknown, and none is fetched{moment}: {error}"


def _of_workers(service: Service) -> str:
    """Return why no worker takes URLs; "" if one does, or if that is not known."""
    try:
        every = [one for one in service.members.list() if one.kind == "worker"]
        at_work, _ = service.frontier.workers()
        there = {one.node for one in every if one.status == "here"}
        orders = [service.members.options_of(node)[1] for node in there]
    except Unavailable:
        return ""
    if there and all(one.paused or one.drain for one in orders):
        return "all workers are paused or drained (see `greencrawl nodes`)"
    known = there or at_work or service.frontier.nodes_away()
    return "" if known else "no worker takes URLs: none is running"


def _because(crawl: Crawl) -> str:
    return f" ({crawl.reason})" if crawl.reason else ""


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _of_page(crawl: Crawl, page: StoredPage, attempts: Sequence[Attempt]) -> str:
    where = ""
    if page.final_url not in ("", page.url):
        kept_out = compile(crawl).excluded_by(page.final_url, 1)
        because = f", which the crawl's rules keep out: {kept_out}" if kept_out else ""
        where = f", redirecting to {page.final_url}{because}"
    fetched = f"fetched at {_moment(page.fetched_ms)} with status {page.status}"
    said = declared_text(page.url, page.canonical, page.directives)
    beside = _read(page, attempts) + _noted(page, attempts)
    return f"{fetched}{where}{'; ' if said else ''}{said}{beside}"


def _read(page: StoredPage, attempts: Sequence[Attempt]) -> str:
    """Name the kernel that read the page, if it was not the default one."""
    same = (a for a in attempts if a.kind == "ok" and a.at_ms == page.fetched_ms and a.detail)
    return "".join(f"; read by the {attempt.detail}" for attempt in same)


def _noted(page: StoredPage, attempts: Sequence[Attempt]) -> str:
    """Describe an attempt that was journalled at a page's fetch although the page is stored."""
    beside = [a for a in attempts if a.kind in _BESIDE and a.at_ms >= page.fetched_ms]
    return "".join(f"; {attempt.detail}" for attempt in reversed(beside))


def _since(page: StoredPage, final: Final | None, attempts: Sequence[Attempt]) -> str:
    """Describe the latest outcome of asking again for a stored page."""
    same = max((a.at_ms for a in attempts if a.code == UNCHANGED), default=0)
    if final is not None and final.at_ms > max(page.fetched_ms, same):
        since = gone_since_ms(page, final, attempts) or final.at_ms
        if final.task is TaskKind.REREAD:  # nothing was requested
            return f"; {_SAYS[final.state]} when read again at {_last_word(final)}"
        return f"; {_SAYS[final.state]} when asked again at {_moment(since)}: {final.kind}"
    return f"; unchanged at {_moment(same)}" if same > page.fetched_ms else ""


def _of_final(crawl: Crawl, final: Final) -> str:
    if final.state == "parked":
        return parked_text(crawl.name, final, _moment(final.at_ms))
    if final.kind == PURGED:
        return f"dropped unfetched at {_moment(final.at_ms)}, purged: {final.detail}"
    return f"{_SAYS[final.state]} at {_last_word(final)}"


def _last_word(final: Final) -> str:
    detail = f" ({final.detail})" if final.detail else ""
    return f"{_moment(final.at_ms)}: {final.kind}{detail}"


def _of_unseen(crawl: Crawl, url: str) -> str:
    """Say how an unseen URL would be judged: a found link has depth 1 at least, so depth 1 is
    used."""
    rules = compile(crawl)
    as_link = rules.excluded_by(url, 1)
    if as_link is None:
        return (
            "never seen: it is in scope, but it is no seed and no followed link led to it (links "
            "with nofollow are not recorded)"
        )
    if rules.excluded_by(url, 0, seed=True) is None:
        return f"never seen: taken as a seed, but not from a link ({as_link})"
    if crawl.options.requisites == "on" and rules.bars(url) is None:
        return f"never seen: taken if a page needs it to be shown, but not from a link ({as_link})"
    return f"kept out by the crawl's rules: {as_link}"
