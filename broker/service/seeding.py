"""Seeds: canonicalise, judge by the crawl's rules, log in the store, admit to the frontier.

The order is the promise: a batch is in the replay log *before* the frontier sees it. The caller is
answered only when every partition has admitted it. The exception is a node that is away while
others answer: URLs of that node are answered as pending. If any process dies in between, a pending
batch is left, which the upkeep admits again; the seen-set makes that harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gevent
import msgspec
from msgspec import Struct

from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.frontier.admission import Admitted
from greencrawl.broker.frontier.coordination.activity import NONE
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.broker.service.forcing import by_end
from greencrawl.broker.service.service import Service
from greencrawl.schema import crash_points
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import InvalidConfig, InvalidUrl, Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.scope import check_options, compile, level_for, root_of, starts
from greencrawl.schema.records import (
    STOPPED,
    Admission,
    Crawl,
    CrawlOptions,
    CreateCrawl,
    Round,
    RoundKind,
    Seed,
    SeedBatch,
    SeedItem,
    SeedReply,
    TaskKind,
)
from greencrawl.schema.text.again import not_anew_text

log = logger("seeding")

FULL_RETRY_SECONDS = 5
"""Seconds that a client waits after a 429: memory is checked once a second."""
LOGGED_BYTES = 2000
"""A list of options that takes more bytes as JSON is not kept in the log of orders."""
YIELD_SECONDS = 0.005
"""Seconds for which seeds are judged before other requests have their turn."""


class Refusal(Struct, frozen=True):
    """A given URL that a crawl's rules exclude, and why."""

    url: str
    reason: str


def create(service: Service, wanted: CreateCrawl) -> tuple[Crawl, bool]:
    """Create or update a crawl; queue its seeds and the first pages of its sources.

    Returns it, and whether it is new.

    Idempotent. It changes nothing if it raises InvalidConfig, or a 400 that names each seed which
    the crawl's own rules exclude.
    """
    options = msgspec.convert(
        {name: getattr(wanted, name) for name in CrawlOptions.__struct_fields__}, CrawlOptions
    )
    known = {crawl.name: crawl for crawl in service.store.crawls()}.get(wanted.name)
    crawl = put(service, wanted.name, options, seeded=True)
    if known is not None:
        tell_change(service, known, crawl)
    return service.store.crawl(crawl.id), known is None


def put(
    service: Service, name: str, options: CrawlOptions, *, seeded: bool, revision: int = 0
) -> Crawl:
    """Create or update a crawl; with ``seeded``, its first URLs are queued.

    Raises as :func:`create`. With a ``revision``, a crawl that has another revision is returned as
    it is.
    """
    problems = check_options(options) or list(service.permits.problems(options))
    if problems:
        raise InvalidConfig(problems)
    given = starts(options)
    if given and seeded:
        check_room(service)
    seeds = [Seed(url) for _, url in given]
    urls = [queued_url(options, seed.url) for seed in seeds]
    roots = tuple(dict.fromkeys(root_of(options.scope, url) for url in urls))
    draft = Crawl(id=0, name=name, state="active", options=options, roots=roots)
    verdicts = judge(draft, seeds)
    pairs = zip(given, verdicts, strict=True)
    refused = [(where, v.reason) for (where, _), v in pairs if type(v) is Refusal]
    if refused:
        raise HttpProblem(400, "; ".join(f"{f}: {why}" for f, why in refused[:5]), refused)
    crawl = service.store.put_crawl(name, options, roots, revision=revision)
    if revision and crawl.options != options:
        return crawl
    service.frontier.put_crawl(crawl)
    if _round(service, crawl, "read") is not None:
        service.frontier.activity.set(crawl.id)
    if verdicts and seeded:
        admit(service, crawl, admissions(service, verdicts), force=False)
    return crawl


def tell_change(service: Service, before: Crawl, after: Crawl, by: str = "") -> None:
    """Tell workers of changed options of a crawl, and log who changed them.

    A worker that does not get the message learns of the change with its next session of the crawl.
    Raises nothing.
    """
    old, new = msgspec.structs.asdict(before.options), msgspec.to_builtins(after.options)
    now = msgspec.structs.asdict(after.options)
    changed = {name: _brief(new[name]) for name, value in now.items() if value != old[name]}
    if not changed:
        return
    try:
        service.members.crawl_changed(after.id, after.name, changed, by)
    except Unavailable as error:
        log.warning("crawl_change_not_told", crawl=after.name, reason=str(error))


def _brief(value: Any) -> Any:
    """Return a value for the log of orders: of a long list only its length."""
    if isinstance(value, list) and len(msgspec.json.encode(value)) > LOGGED_BYTES:
        return f"{len(value)} values"
    return value


def begin_round(service: Service, crawl: Crawl) -> Round:
    """Begin a round that asks again for all of a crawl. Raises HttpProblem (409) if the crawl has
    limits."""
    if why := not_anew_text(crawl.name, crawl.options):
        raise HttpProblem(409, why)
    found = _counted(service, crawl, service.store.begin_round(crawl.id, "all is asked for again"))
    service.frontier.put_crawl(service.store.crawl(crawl.id))
    service.frontier.activity.set(crawl.id)
    return found


def rounds(service: Service, crawl: Crawl) -> list[Round]:
    """Return the last round of each kind of a crawl, counted where that is cheap."""
    return [_counted(service, crawl, one) for one in service.store.rounds(crawl.id)]


def _counted(service: Service, crawl: Crawl, known: Round) -> Round:
    """Return a round with its total, as far as known. A fetch that has begun removes the rows that
    would be counted."""
    if known.total >= 0 or (known.kind == "fetch" and known.cursor):
        return known
    try:
        return service.store.count_round(crawl.id, known)
    except Unavailable:  # only people read a total
        return known


def _round(service: Service, crawl: Crawl, kind: RoundKind) -> Round | None:
    """Return the round of that kind that is under way."""
    found = (one for one in service.store.rounds(crawl.id) if one.kind == kind)
    return next((one for one in found if not one.ended_ms), None)


def seed(
    service: Service,
    name: str,
    urls: Sequence[str | Seed],
    force: bool,
    *,
    if_changed: bool = False,
) -> SeedReply:
    """Queue URLs; return one verdict each, in the order given.

    A crawl without roots takes its roots from these URLs; otherwise its roots judge these.
    Idempotent: a URL that was seen is a ``duplicate``; with ``force`` it is queued ``again``, and
    with ``if_changed`` as a refetch. If its first task has not ended it stays a ``duplicate``: that
    task fetches it. Seeds of a node that is away are ``pending``: they are stored, and queued when
    the node is back. Raises UnknownCrawl. Raises Unavailable: some URLs may then be stored, and are
    queued later, URLs without force first. A repeated call may fetch forced URLs again.
    """
    crawl = service.store.crawl(name)
    check_room(service)
    crawl = _with_roots(service, crawl, urls)
    verdicts = judge(crawl, urls)
    wanted = admissions(service, verdicts)
    if if_changed:
        wanted = [msgspec.structs.replace(item, kind=TaskKind.REFETCH) for item in wanted]
    fresh: set[str] = set()
    pending: set[str] = set()
    forced, first = by_end(service, crawl, wanted) if force else ([], wanted)
    for items in (first, forced):
        if items:
            admitted = admit(service, crawl, items, force=items is forced, reopen=force)
            fresh |= {item.url for item, new in zip(items, admitted, strict=True) if new}
            pending |= {items[i].url for i in admitted.missed}
    again = {item.url for item in forced} - fresh - pending
    return _reply(urls, verdicts, fresh, again, pending)


def check_room(service: Service) -> None:
    """Raise a 429 while a node is near its memory limit; nothing was stored then."""
    if service.frontier.full:
        service.frontier.activity.set(NONE)  # check again, even if nothing else happens
        raise HttpProblem(
            429,
            "Redis is near its memory limit: wait until URLs have been fetched, or raise its "
            "maxmemory",
            headers={"Retry-After": str(FULL_RETRY_SECONDS)},
        )


def judge(crawl: Crawl, seeds: Sequence[str | Seed]) -> list[Admission | Refusal]:
    """Canonicalise each seed, and judge it by the crawl's rules."""
    excluded_by = compile(crawl).excluded_by
    order = crawl.options.order
    verdicts: list[Admission | Refusal] = []
    depth = level = 0
    yielded = monotonic()
    for given in seeds:
        if monotonic() - yielded > YIELD_SECONDS:
            gevent.sleep(0)  # a large batch, or slow patterns, must not delay other callers' leases
            yielded = monotonic()
        if isinstance(given, str):
            text, depth, level = given, 0, 0
        else:
            text, depth, level = given.url, given.depth, given.level
        try:
            url = queued_url(crawl.options, text)
        except InvalidUrl as error:
            verdicts.append(Refusal(text, f"invalid: {error.reason}"))
            continue
        reason = excluded_by(url, depth, True)
        if reason:
            verdicts.append(Refusal(text, reason))
            continue
        level = level or level_for(order, depth, None, url)
        verdicts.append(Admission(url, depth, level))
    return verdicts


def admissions(service: Service, verdicts: Sequence[Admission | Refusal]) -> list[Admission]:
    """Return one admission for each URL: the first."""
    number_of = service.frontier.fingerprint
    found: dict[int, Admission] = {}
    for verdict in verdicts:
        if type(verdict) is Admission:
            found.setdefault(number_of(verdict.url), verdict)
    return list(found.values())


def admit(
    service: Service,
    crawl: Crawl,
    admissions: Sequence[Admission],
    *,
    force: bool,
    reopen: bool = False,
) -> Admitted:
    """Store a batch, admit it, settle it; return True for each URL that was new to the frontier.

    If a stopped crawl gets a batch of only known URLs, without ``reopen``, the batch is not stored:
    the crawl stays stopped. A batch stays pending for nodes that are away, and is settled when they
    are back.
    """
    stays = not (force or reopen) and (crawl.stopping or crawl.reason == STOPPED)
    if stays and all(_is_known(service, crawl, item) for item in admissions):
        return Admitted([False] * len(admissions), 0, {})
    claimed: list[int] = []

    def claim(batch: int) -> None:  # before the upkeep can find the batch
        claimed.append(batch)
        service.admitting.add(batch)

    try:
        batch = service.store.add_seeds(crawl.id, admissions, force=force, claim=claim)
        crash_points.point("broker.after_seed_log")
        if crawl.ended or crawl.stopping:  # the replay log has made it active again
            service.frontier.put_crawl(service.store.crawl(crawl.id))
        if force:  # what the batch has queued is kept under its number
            admitted = service.frontier.admit(
                crawl.id, admissions, mode=Mode.FORCE, batch=batch, partial=True
            )
        else:
            admitted = service.admissions.admit(crawl.id, admissions)
        crash_points.point("broker.after_seed_admit")
        told = admitted.away or service.store.seeds_admitted(batch, admitted.tick, admitted.epochs)
        if not told:
            _admit_again(
                service, SeedBatch(id=batch, crawl=crawl.id, urls=tuple(admissions), force=force)
            )
    finally:
        service.admitting.difference_update(claimed)
    return admitted


def _is_known(service: Service, crawl: Crawl, item: Admission) -> bool:
    """Return whether a crawl has met a URL before, as far as that is known."""
    number = service.frontier.fingerprint(item.url)
    if service.store.stamps(crawl.id, [number]):
        return True
    try:
        return service.frontier.find_url(crawl, item.url).state != "unseen"
    except Unavailable:
        return False


def settle(service: Service, batch: SeedBatch) -> Admitted:
    """Admit a batch that was left pending, and mark it admitted; idempotent.

    It stays pending for nodes that the answer names as away. A batch of a deleted crawl is dropped.
    Raises Unavailable.
    """
    try:
        crawl = service.store.crawl(batch.crawl)
        admitted = _admit_again(service, batch)
        # the node was not told of the crawl yet
        if admitted.away - service.frontier.nodes_away().keys():
            service.frontier.put_crawl(crawl)
            admitted = _admit_again(service, batch)
    except UnknownCrawl:
        service.store.seeds_admitted(batch.id)
        return Admitted([False] * len(batch.urls), 0, {})
    return admitted


def _admit_again(service: Service, batch: SeedBatch) -> Admitted:
    """Admit a batch under a new stamp: its old one may be outside of a recovery's window.

    Raises Unavailable, and the batch stays pending.
    """
    mode = Mode.FORCE if batch.force else Mode.NEW
    stamp = service.store.restamp_seeds(batch.id)
    admitted = service.frontier.admit(
        batch.crawl, batch.urls, mode=mode, batch=batch.id, stamp=stamp, partial=True
    )
    if admitted.away:
        return admitted
    if not service.store.seeds_admitted(batch.id, admitted.tick, admitted.epochs):
        raise Unavailable("the seeds are stored, and will be queued later")
    return admitted


def _with_roots(service: Service, crawl: Crawl, seeds: Sequence[str | Seed]) -> Crawl:
    if crawl.roots or crawl.options.scope == "any":
        return crawl
    roots: dict[str, None] = {}
    for given in seeds:
        text = given if isinstance(given, str) else given.url
        try:
            roots[root_of(crawl.options.scope, queued_url(crawl.options, text))] = None
        except InvalidUrl:
            continue  # its own verdict says so
    if not roots:
        return crawl
    widened = service.store.add_roots(crawl.id, tuple(roots))
    service.frontier.put_crawl(widened)  # the new revision tells workers that rules changed
    return widened


def _reply(
    urls: Sequence[str | Seed],
    verdicts: Sequence[Admission | Refusal],
    fresh: set[str],
    again: set[str],
    pending: set[str],
) -> SeedReply:
    """Return an item for each given URL; if one that is queued was given twice, the second is a
    duplicate."""
    items: list[SeedItem] = []
    added = repeated = rejected = waiting = 0
    for given, verdict in zip(urls, verdicts, strict=True):
        text = given if isinstance(given, str) else given.url
        if type(verdict) is Refusal:
            rejected += 1
            items.append(SeedItem(text, "rejected", verdict.reason))
        elif verdict.url in pending:
            waiting += 1
            items.append(
                SeedItem(text, "pending", "its Redis node is away: queued when it is back")
            )
        elif verdict.url in fresh:
            fresh.discard(verdict.url)
            added += 1
            items.append(SeedItem(text, "added"))
        elif verdict.url in again:
            again.discard(verdict.url)
            repeated += 1
            items.append(SeedItem(text, "again"))
        else:
            items.append(SeedItem(text, "duplicate"))
    duplicate = len(items) - added - repeated - rejected - waiting
    return SeedReply(added, duplicate, rejected, tuple(items), waiting, repeated)
