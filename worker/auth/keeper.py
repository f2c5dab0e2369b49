"""When to log in, who does it, and what a page's answer says about it.

A page of a crawl with ``auth`` is asked for with the proof of the first entry that names its
origin. Where that takes a login, one worker makes it, under a lease that all workers share
(``worker.auth.state.vault``), and the others wait; meanwhile they send what logins need of the
hosts that they hold (``worker.auth.errands``), or two hosts could wait for each other.

An answer that says we are no longer in is not the page: the login is made again, by one worker,
and the page is asked for again, at once. If it still asks for a login, that is its own failure.
Such pages must not make a crawler log in all day: after a login that did not help, further ones
wait (:data:`PATIENCE_SECONDS`, doubling), unless nothing at all is answered any more. The same
holds for a site that ends each session after a moment.

A login that was refused is not tried again before a wait that doubles from
:data:`REFUSED_SECONDS`, unless the secrets have changed. The hosts are blocked until then, with the
reason; their pages wait uncharged, until a host has failed so often in a row that it is given up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import gevent
from gevent.event import Event

from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.crawl_cache import Kept
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import host_of, origin_of
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import Auth
from greencrawl.worker.auth.base import Grant, Judge, Kind, LoginFailed, LoginRefused, name_of
from greencrawl.worker.auth.kinds.basic import Basic
from greencrawl.worker.auth.kinds.registry import trusted
from greencrawl.worker.retry import TABLE
from greencrawl.worker.session.backoff import (
    AWAY_PATIENCE_SECONDS,
    AWAY_REST_SECONDS,
    delays,
    persist,
)

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.session.fetcher import Visit

T = TypeVar("T")

log = logger("worker")

AMISS_SECONDS = 60.0
"""Until the secrets of this host are looked at again, after some were missing."""
REFUSED_SECONDS = 3600.0
REFUSED_MOST_SECONDS = 86_400.0
PATIENCE_SECONDS = 30.0
PATIENCE_MOST_SECONDS = 3600.0
OUTS_IN_A_ROW = 5
"""So many pages in a row that say we are out are believed, whatever was in vain before."""
REJECTIONS = 3
"""So many pages in a row that accept no secret, and none that does, and the host is parked."""
SHORT_LIFE_MS = 60_000
SHORT_LIVES = 10
"""So many logins in a row that last no longer, and the next ones wait like those in vain."""
DEATHS = 5
"""Logins in a row that ended without a word, their process dead, before they count as refused."""
OUTAGE_SECONDS = 2 * AWAY_REST_SECONDS
"""The vault failed again after so long without a question: that is another outage, and sessions
have patience again."""
MARGIN = 0.1
MARGIN_MOST_SECONDS = 60.0
"""A grant is renewed before it expires: by a tenth of its life, a minute at most."""
MAX_BODY_BYTES = 2 * 1024 * 1024
"""Of an answer to a request of a login."""
_CONTEXTS, _IDLE_SECONDS = 1000, 86_400.0
"""Crawls whose accounts are kept, and how long after they were used last: what a site has refused
is not to be tried again soon."""
_PROOF = re.compile(r'[^\s,;="]{8,}')
_PLAIN_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-language",
        "content-length",
        "location",
        "retry-after",
        "set-cookie",
        "www-authenticate",
        "x-robots-tag",
    }
)
"""Headers of an answer that are read, and hold no credentials or are not stored."""


class Claim(AbstractContextManager["Claim"], Protocol):
    """The right to log in, held by one worker of all; see ``worker.auth.state.vault``."""

    @property
    def count(self) -> int:
        """Claims since the last one that came to an end, this one included."""

    def renew(self) -> bool:
        """Hold on to it; False when it was lost."""

    def put(self, grant: Grant) -> bool:
        """Make ``grant`` known to all workers; False when the claim was lost.

        After Unavailable it is made known later, and the claim held until then.
        """


class Keeping(Protocol):
    """The part of ``worker.auth.state.vault.Vault`` that is needed here."""

    def read(self, name: str) -> Grant | None: ...

    def claim(self, name: str) -> Claim | None: ...

    def resume(self) -> None: ...


class Sending(Protocol):
    """The part of ``worker.auth.errands.Errands`` that is needed here."""

    def send(
        self, visit: Visit, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Fetched | Failure: ...

    def serve(self, visit: Visit) -> int: ...


class Secrecy(Protocol):
    """The part of ``worker.auth.state.secrets.Secrets`` that is needed here."""

    def of(self, entry: Auth) -> Mapping[str, str]:
        """The entry's secrets as they are now. Raises InvalidConfig naming what is missing."""

    def digest(self, entry: Auth) -> str: ...


class Rooms(NamedTuple):
    """What a login needs beside the site: opened when the first crawl asks for one."""

    vault: Keeping
    errands: Sending


@dataclass(eq=False)
class _Account:
    """One entry in use. ``name`` is its place in the vault; the rest changes."""

    name: str
    entry: Auth
    origins: Origins
    kind: Kind | None = None
    grant: Grant | None = None
    void: int = 0
    """Generation up to which grants are no longer good: pages wait for a newer one."""
    digest: str = ""
    """Of the secrets that ``kind`` was last made of."""
    busy: bool = False
    done: Event = field(default_factory=Event)
    accepted: bool = False
    """Whether any answer said that we are in."""
    outs: int = 0
    """Answers in a row that said we are out."""
    in_vain: int = 0
    """Logins in a row after which the page still asked for one."""
    quiet_until: float = 0.0
    """Until then (monotonic) a page that asks for a login is not believed."""
    short: int = 0
    """Logins in a row that did not last."""
    soonest: float = 0.0
    """Until then not even many in a row are."""
    away_since: float | None = None
    """Since when (monotonic) the vault gives no answer; None while it does."""
    away_seen: float = 0.0
    """When it last gave none. Who asked may have ended before it was back."""


class Keeper:
    """Authentication of one process. Safe for many greenlets."""

    def __init__(
        self,
        rooms: Callable[[], Rooms],
        secrets: Secrecy,
        by_origin: Basic | None = None,
        *,
        make: Callable[[Auth, Mapping[str, str]], Kind],
        stopping: Event,
        clock: Clock = monotonic,
    ) -> None:
        """``by_origin``: Basic credentials for all crawls. ``make`` turns an entry and its secrets
        into a kind."""
        self._open = rooms
        self._secrets = secrets
        self._by_origin = by_origin or Basic({})
        self._make = make
        self._stopping = stopping
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._of_crawl: Kept[tuple[int, int], tuple[_Account, ...]]
        self._of_crawl = Kept(_CONTEXTS, _IDLE_SECONDS, clock)

    def get(
        self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge
    ) -> Fetched | Failure:
        """Ask for a page with whatever proves that we may have it.

        What comes back is the page, or the answer of somebody who does not want us; never the
        login page in its place. ``judge`` asks a kind what an answer says. Raises VisitOver and
        LeaseExpired like :meth:`Visit.get`, and what ``judge`` raises.
        """
        account = self._account(visit.context, url)
        if account is not None:
            return self._get(visit, account, url, headers, judge)
        limit = visit.context.options.max_body_bytes
        proof = self._by_origin.headers(url)
        if not proof:  # nothing is sent that an answer could repeat
            return visit.get(url, headers, limit)
        sent = {**headers, **proof}
        answer = visit.get(url, sent, limit)
        if isinstance(answer, Fetched):
            _forget_echoes(answer, headers, sent)
        return answer

    def serve(self, visit: Visit) -> int:
        """Send what logins of others need of the visit's host; returns how many requests."""
        return self._rooms.errands.serve(visit)

    def resume(self) -> None:
        """Go on with what a process before this one could not put into the vault."""
        self._rooms.vault.resume()

    @cached_property
    def _rooms(self) -> Rooms:
        return self._open()

    # -- which entry

    def _account(self, context: CrawlContext, url: str) -> _Account | None:
        entries = context.options.auth
        if not entries:
            return None
        key = (context.crawl.id, context.crawl.revision)
        accounts = self._of_crawl.get(key)
        if accounts is None:
            accounts = tuple(self._keep(entry) for entry in entries)
            self._of_crawl[key] = accounts
            used = {id(account) for of_crawl in self._of_crawl.values() for account in of_crawl}
            if len(used) < len(self._accounts):  # crawls that ended took theirs along
                self._accounts = {k: one for k, one in self._accounts.items() if id(one) in used}
        return next((account for account in accounts if account.origins.hold(url)), None)

    def _keep(self, entry: Auth) -> _Account:
        """The account of an entry. Crawls that write the same entry share what it logs in to,
        but each has its own list of origins."""
        name = name_of(entry)
        key = f"{name} {entry.hosts}"
        if key not in self._accounts:
            self._accounts[key] = _Account(name, entry, Origins(entry.hosts))
        return self._accounts[key]

    # -- a page

    def _get(
        self,
        visit: Visit,
        account: _Account,
        url: str,
        headers: Mapping[str, str],
        judge: Judge,
    ) -> Fetched | Failure:
        limit = visit.context.options.max_body_bytes
        asked_again, renewed = False, False
        while True:
            known = self._kind(account)
            if isinstance(known, Failure):
                return known
            grant = self._grant(visit, account, known)
            if isinstance(grant, Failure):
                return grant
            kind = account.kind or known  # a login may have read new secrets
            target, sent = kind.prove(url, headers, grant)
            answer = visit.get(target, sent, limit)
            if isinstance(answer, Failure):
                return answer
            answer.url = url
            _forget_echoes(answer, headers, sent)
            verdict = judge(kind, answer, grant)
            if isinstance(verdict, Failure):
                account.outs = 0
                return verdict
            if verdict == "in":
                account.outs, account.accepted = 0, True
                if renewed:
                    account.in_vain = 0
                return answer
            if verdict == "again" and not asked_again:
                asked_again = True
                continue
            account.outs += 1
            if grant is None:
                return self._rejected(account, answer)
            if renewed:
                return self._in_vain(account, answer)
            if not self._believed(account):
                return _logged_out(account, answer, "as before a login that changed nothing")
            if self._too_short(account, grant):
                return self._in_vain(account, answer)
            account.void = max(account.void, grant.generation)
            renewed = True

    def _rejected(self, account: _Account, answer: Fetched) -> Fetched | Failure:
        """The secrets alone did not do: its status says what that means for the page. Where they
        never did for any, the host is left alone before it locks the account."""
        if account.accepted or account.outs < REJECTIONS:
            return answer
        account.outs = 0
        reason = f"{origin_of(answer.url)} accepts none of it: HTTP {answer.status}"
        return self._parked(account, reason, REFUSED_SECONDS)

    def _believed(self, account: _Account) -> bool:
        """Whether a page that says we are out leads to a login; see the module's text."""
        now = self._clock()
        many = account.outs >= OUTS_IN_A_ROW and now >= account.soonest
        return many or now >= account.quiet_until

    def _too_short(self, account: _Account, grant: Grant) -> bool:
        """Whether one login after the other helps for a moment only: then they must wait, too."""
        if grant.generation > account.void:  # the first page that finds this one void counts
            young = epoch_ms() - grant.made_ms < SHORT_LIFE_MS
            account.short = account.short + 1 if young else 0
        return account.short > SHORT_LIVES

    def _in_vain(self, account: _Account, answer: Fetched) -> Failure:
        wait = min(PATIENCE_SECONDS * 2.0**account.in_vain, PATIENCE_MOST_SECONDS)
        account.in_vain = min(account.in_vain + 1, 30)
        account.quiet_until = self._clock() + wait
        account.soonest = self._clock() + PATIENCE_SECONDS * account.in_vain
        account.outs = 0
        log.warning("a login did not help", auth=account.entry.name, url=answer.url)
        return _logged_out(account, answer, "though it was just made anew")

    # -- the grant

    def _kind(self, account: _Account) -> Kind | Failure:
        if account.kind is None:
            try:
                account.kind = self._make(account.entry, self._secrets.of(account.entry))
            except (InvalidConfig, LoginRefused) as error:
                return self._parked(account, str(error), AMISS_SECONDS)
        return account.kind

    def _grant(self, visit: Visit, account: _Account, kind: Kind) -> Grant | Failure | None:
        if not kind.logs_in:
            return None
        grant = account.grant
        if grant is not None and grant.generation > account.void and _good(grant, kind):
            return grant
        return self._obtain(visit, account)

    def _obtain(self, visit: Visit, account: _Account) -> Grant | Failure:
        """A good grant that is not void; waits for whoever is making one.

        Raises VisitOver and LeaseExpired.
        """
        with visit.held.waiting(request=False):  # others may have our place in the worker meanwhile
            while account.busy:
                self._wait(visit, account.done, 1.0)
        grant, kind = account.grant, account.kind
        if grant is not None and kind and grant.generation > account.void and _good(grant, kind):
            return grant
        account.busy = True
        account.done.clear()
        try:
            waits = delays(0.05, 1.0)
            with visit.held.waiting(request=False):
                while (found := self._settle(visit, account)) is None:
                    self._wait(visit, self._stopping, next(waits))
            return found
        finally:
            account.busy = False
            account.done.set()

    def _wait(self, visit: Visit, event: Event, seconds: float) -> None:
        """Wait for ``event`` so long at most, and send what others' logins need of our host."""
        gevent.wait([event, self._stopping], seconds, count=1)
        visit.rest(0.0)
        self._rooms.errands.serve(visit)

    def _settle(self, visit: Visit, account: _Account) -> Grant | Failure | None:
        """Take what another worker obtained, or obtain it; None while another is at it."""
        found = self._kept(visit, account)
        if found is not None:
            return found
        claim = self._ask(visit, account, lambda: self._rooms.vault.claim(account.name))
        if claim is None:
            return None
        with claim:
            found = self._kept(visit, account)  # somebody may have been quicker
            if found is not None:
                return found
            return self._log_in(visit, account, claim)

    def _ask(self, visit: Visit, account: _Account, action: Callable[[], T]) -> T:
        """Something of the vault. While its Redis node is away sessions wait for some seconds.

        Then they are put off, all those that wait for this login. Raises VisitOver.
        """
        for delay in delays():
            try:
                found = action()
            except Unavailable as error:
                now = self._clock()
                if account.away_since is None or now - account.away_seen > OUTAGE_SECONDS:
                    account.away_since = now
                    log.warning("waiting", what="login", auth=account.entry.name, why=str(error))
                account.away_seen = now
                if now - account.away_since >= AWAY_PATIENCE_SECONDS:
                    detail = f"auth {account.entry.name}: its login cannot be kept: {error}"
                    visit.put_off(AWAY_REST_SECONDS, detail)
            else:
                account.away_since = None
                return found
            visit.rest(delay)
        raise AssertionError("delays never end")

    def _kept(self, visit: Visit, account: _Account) -> Grant | Failure | None:
        """What the vault has for us, if it is of use: a good grant, or a refusal that holds."""
        kept = self._ask(visit, account, lambda: self._rooms.vault.read(account.name))
        if kept is None:
            return None
        if kept.refused:
            left = (kept.until_ms - epoch_ms()) / 1000
            # What is further away was written by a clock that was wrong.
            if 0 < left <= 2 * REFUSED_MOST_SECONDS and kept.secrets_digest == self._secrets.digest(
                account.entry
            ):
                return self._parked(account, kept.refused, left)
            return None
        kind = self._kind(account)
        if isinstance(kind, Failure):
            return kind
        if kept.generation > account.void and _good(kept, kind):
            account.grant = kept
            return kept
        return None

    def _log_in(self, visit: Visit, account: _Account, claim: Claim) -> Grant | Failure:
        # requests: only where it is used
        from greencrawl.worker.auth.transport import refusals, session_over

        entry, place = account.entry, visit.host

        def send(
            method: str, url: str, headers: Mapping[str, str], body: bytes
        ) -> Fetched | Failure:
            nonlocal place
            place = host_of(url)
            if not self._ask(visit, account, claim.renew):
                return Failure(FailureKind.LOGIN, "another worker has taken it over", requests=0)
            if place == visit.host:
                return visit.send(method, url, headers, body, MAX_BODY_BYTES)
            return self._rooms.errands.send(visit, method, url, headers, body)

        known, account.kind = account.kind, None  # the secrets may have changed
        kind = self._kind(account)
        if isinstance(kind, Failure):
            return kind  # this host's configuration: nothing that others should know
        digest = self._secrets.digest(entry)
        if known is not None and digest == account.digest:
            kind = account.kind = known  # it keeps what it has learnt of the site
        account.digest = digest
        old = self._ask(visit, account, lambda: self._rooms.vault.read(account.name))
        generation = max(old.generation if old else 0, account.void) + 1
        grant = Grant(account=kind.account, generation=generation, made_ms=0)
        try:
            if claim.count > DEATHS:
                raise LoginRefused(f"the process that logged in died {claim.count - 1} times")
            session = session_over(send, visit.context.headers, trusted(entry))
            usable = old if old is not None and old.account == kind.account else None
            with refusals("the login"):
                made = kind.log_in(session, usable)
            grant.cookies, grant.headers = made.cookies, made.headers
            grant.token, grant.expires_ms = made.token, made.expires_ms
        except LoginFailed as error:
            return _failed(entry, error.failure, place if place != visit.host else "")
        except LoginRefused as error:
            grant.refused = str(error)
            grant.refusals = old.refusals + 1 if old else 1
            grant.token = old.token if old else {}
        grant.made_ms, grant.secrets_digest = epoch_ms(), digest
        wait = min(REFUSED_SECONDS * 2.0 ** min(grant.refusals - 1, 30), REFUSED_MOST_SECONDS)
        if grant.refused:
            grant.until_ms = grant.made_ms + round(wait * 1000)
        try:
            put = persist(lambda: claim.put(grant), "frontier", most=AWAY_PATIENCE_SECONDS)
        except Unavailable:  # used here at once; the vault puts it when its node is back
            put = True
        if not put:
            return Failure(FailureKind.LOGIN, "another worker has taken the login over", requests=0)
        if grant.refused:
            log.warning("login refused", auth=entry.name, reason=grant.refused, wait_seconds=wait)
            return self._parked(account, grant.refused, wait)
        account.grant = grant
        log.info("logged in", auth=entry.name, host=visit.host, generation=grant.generation)
        return grant

    def _parked(self, account: _Account, reason: str, seconds: float) -> Failure:
        """Why a host is not asked for anything now. No request for the page has left."""
        account.kind, account.grant = None, None  # the secrets are read anew next time
        detail = f"auth {account.entry.name}: {reason}"
        return Failure(FailureKind.LOGIN, detail, retry_after=seconds, requests=0)


def _forget_echoes(answer: Fetched, before: Mapping[str, str], sent: Mapping[str, str]) -> None:
    """Drop header fields of an answer that repeat what was sent as proof: they would be stored."""
    added = " ".join(value for name, value in sent.items() if before.get(name) != value)
    proofs = _PROOF.findall(added)
    for name in [n for n, value in answer.headers.items() if n not in _PLAIN_HEADERS]:
        if any(proof in answer.headers[name] for proof in proofs):
            del answer.headers[name]


def _good(grant: Grant, kind: Kind) -> bool:
    """Whether a grant is for the account that the secrets name, and holds for a while yet."""
    if grant.refused or grant.account != kind.account:
        return False
    if not grant.expires_ms:
        return True
    life = grant.expires_ms - grant.made_ms
    margin = min(life * MARGIN, MARGIN_MOST_SECONDS * 1000)
    return epoch_ms() < grant.expires_ms - margin


def _failed(entry: Auth, failure: Failure, elsewhere: str) -> Failure:
    """The failure of a page whose login could not be made; ``elsewhere`` is another host's name.

    What the session's own host answers concerns it as ever: a 503 is a 503. What another host does
    keeps pages from being asked for all the same, with a kind of its own; and so does what concerns
    the login's URL alone, a 500 there, say: no page was asked for, and none is charged with it.
    """
    where = f" at {elsewhere}" if elsewhere else ""
    detail = f"login of auth {entry.name}{where}: {failure.kind} {failure.detail}".rstrip()
    not_the_host = elsewhere or TABLE[failure.kind].concerns == "url"
    kind = FailureKind.LOGIN if not_the_host else failure.kind
    return Failure(kind, detail, failure.code, failure.retry_after, 0)


def _logged_out(account: _Account, answer: Fetched, how: str) -> Failure:
    detail = f"auth {account.entry.name}: the page asks for a login, {how}"
    return Failure(FailureKind.LOGGED_OUT, detail, answer.status)
