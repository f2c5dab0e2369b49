"""Makes a login, or takes one that another worker made.

One worker makes it, under a lease that all workers share (``greencrawl.worker.auth.state.vault``),
and the others wait. Meanwhile they send requests of logins to the hosts that they hold
(``greencrawl.worker.auth.errands``); otherwise two hosts could wait for each other.

A login that was refused is tried again after a wait, or once the secrets have changed. The wait
begins with :data:`REFUSED_SECONDS` and doubles with each refusal. Meanwhile the hosts are blocked,
and the reason is shown. Their pages wait without a failure. If a host fails too often in a row, it
is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import gevent
from gevent.event import Event

from greencrawl.schema.clock import Clock, epoch_ms
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Failure, FailureKind, Fetched, PutOff
from greencrawl.schema.records.auth import Auth
from greencrawl.worker.auth.account import REFUSED_SECONDS, Account
from greencrawl.worker.auth.base import Grant, Kind, LoginFailed, LoginRefused
from greencrawl.worker.auth.kinds.registry import trusted
from greencrawl.worker.auth.state.secrets import Secrets
from greencrawl.worker.retry import TABLE
from greencrawl.worker.session.backoff import (
    AWAY_PATIENCE_SECONDS,
    AWAY_REST_SECONDS,
    delays,
    until_available,
)

if TYPE_CHECKING:
    # Only crawls that log in load these: their libraries take 15 MB.
    from greencrawl.worker.auth.errands import Errands
    from greencrawl.worker.auth.state.vault import Claim, Vault
    from greencrawl.worker.session.fetcher import Visit

T = TypeVar("T")

log = logger("worker")

SECRETS_SECONDS = 60.0
"""Seconds before the secrets of this machine are read again, after some were missing."""
REFUSED_MOST_SECONDS = 86_400.0
DEATHS = 5
"""This many logins in a row that ended with the death of their process count as refused."""
OUTAGE_SECONDS = 2 * AWAY_REST_SECONDS
"""If the vault fails again after this long, that is a new outage, and sessions wait again."""
MARGIN = 0.1
MARGIN_MOST_SECONDS = 60.0
"""A grant is renewed before it expires: earlier by a tenth of its life, but by a minute at most."""
MAX_BODY_BYTES = 2 * 1024 * 1024
"""An answer to a login's request may have this many bytes."""


class LoginParts(NamedTuple):
    """Parts that a login needs besides the site; they are opened when the first crawl needs
    them."""

    vault: Vault
    errands: Errands


class Logins:
    """The logins of one process.

    Safe for many greenlets: one of them makes an account's login, others wait.
    """

    def __init__(
        self,
        parts: Callable[[], LoginParts],
        secrets: Secrets,
        *,
        make: Callable[[Auth, Mapping[str, str]], Kind],
        stopping: Event,
        clock: Clock,
    ) -> None:
        self._open = parts
        self._secrets = secrets
        self._make = make
        self._stopping = stopping
        self._clock = clock

    @cached_property
    def parts(self) -> LoginParts:
        """Return vault and errands; the first call opens them."""
        return self._open()

    def kind(self, account: Account) -> Kind | Failure:
        """Return the account's kind; or a failure, which blocks the host, if its secrets are not
        valid."""
        if account.kind is None:
            try:
                account.kind = self._make(account.entry, self._secrets.of(account.entry))
            except (InvalidConfig, LoginRefused) as error:
                return account.block(str(error), SECRETS_SECONDS, ours=True)
        return account.kind

    def grant(self, visit: Visit, account: Account, kind: Kind) -> Grant | Failure | None:
        """Return a valid grant, by a login if need be; None for a kind without grants.

        Raises VisitOver and LeaseExpired.
        """
        if not kind.logs_in:
            return None
        grant = account.grant
        if grant is not None and grant.generation > account.void and _good(grant, kind):
            return grant
        return self._obtain(visit, account)

    def _obtain(self, visit: Visit, account: Account) -> Grant | Failure:
        """Return a valid grant: wait if another session is making one, otherwise make one.

        Raises VisitOver and LeaseExpired.
        """
        # other sessions may have our place in the worker meanwhile
        with visit.held.waiting(request=False):
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
        """Wait for ``event`` for at most this time, and do errands for our host."""
        gevent.wait([event, self._stopping], seconds, count=1)
        visit.rest(0.0)
        self.parts.errands.serve(visit)

    def _settle(self, visit: Visit, account: Account) -> Grant | Failure | None:
        """Take a grant that another worker made, or make it; None while another makes it."""
        found = self._kept(visit, account)
        if found is not None:
            return found
        claim = self._ask(visit, account, lambda: self.parts.vault.claim(account.name))
        if claim is None:
            return None
        with claim:
            found = self._kept(visit, account)  # another worker may have been quicker
            if found is not None:
                return found
            return self._log_in(visit, account, claim)

    def _ask(self, visit: Visit, account: Account, action: Callable[[], T]) -> T:
        """Ask the vault by ``action``. While its Redis node is away, sessions wait for some
        seconds.

        Then all sessions that wait for this login are put off. Raises VisitOver.
        """
        for delay in delays():
            try:
                found = action()
            except Unavailable as error:
                now = self._clock()
                if account.away_since is None or now - account.away_seen > OUTAGE_SECONDS:
                    account.away_since = now
                    log.warning(
                        "wait_started", what="login", auth=account.entry.name, why=str(error)
                    )
                account.away_seen = now
                if now - account.away_since >= AWAY_PATIENCE_SECONDS:
                    detail = f"auth {account.entry.name}: its login cannot be kept: {error}"
                    visit.put_off(PutOff.LOGIN, AWAY_REST_SECONDS, detail)
            else:
                account.away_since = None
                return found
            visit.rest(delay)
        raise AssertionError("delays never end")

    def _kept(self, visit: Visit, account: Account) -> Grant | Failure | None:
        """Return what the vault has, if it is of use: a valid grant, or a refusal that still
        holds."""
        kept = self._ask(visit, account, lambda: self.parts.vault.read(account.name))
        if kept is None:
            return None
        if kept.refused:
            left = (kept.until_ms - epoch_ms()) / 1000
            # A time further in the future comes from a wrong clock.
            if 0 < left <= 2 * REFUSED_MOST_SECONDS and kept.secrets_digest == self._secrets.digest(
                account.entry
            ):
                return account.block(kept.refused, left)
            return None
        kind = self.kind(account)
        if isinstance(kind, Failure):
            return kind
        if kept.generation > account.void and _good(kept, kind):
            account.grant = kept
            return kept
        return None

    def _log_in(self, visit: Visit, account: Account, claim: Claim) -> Grant | Failure:
        # requests is imported only where it is used
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
            return self.parts.errands.send(visit, method, url, headers, body)

        known, account.kind = account.kind, None  # the secrets may have changed
        kind = self.kind(account)
        if isinstance(kind, Failure):
            return kind  # a fault of this machine: the vault need not have it
        digest = self._secrets.digest(entry)
        if known is not None and digest == account.digest:
            kind = account.kind = known  # this kind keeps what it has learnt of the site
        account.digest = digest
        old = self._ask(visit, account, lambda: self.parts.vault.read(account.name))
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
            put = until_available(lambda: claim.put(grant), "frontier", most=AWAY_PATIENCE_SECONDS)
        except Unavailable:  # we use the grant; the vault stores it when its node is back
            put = True
        if not put:
            return Failure(FailureKind.LOGIN, "another worker has taken the login over", requests=0)
        if grant.refused:
            log.warning("login_refused", auth=entry.name, reason=grant.refused, wait_seconds=wait)
            return account.block(grant.refused, wait)
        account.grant = grant
        log.info("login_accepted", auth=entry.name, host=visit.host, generation=grant.generation)
        return grant


def _good(grant: Grant, kind: Kind) -> bool:
    """Return whether a grant is for the account that the secrets name, and does not expire soon."""
    if grant.refused or grant.account != kind.account:
        return False
    if not grant.expires_ms:
        return True
    life = grant.expires_ms - grant.made_ms
    margin = min(life * MARGIN, MARGIN_MOST_SECONDS * 1000)
    return epoch_ms() < grant.expires_ms - margin


def _failed(entry: Auth, failure: Failure, elsewhere: str) -> Failure:
    """Return the failure of a page whose login failed; ``elsewhere`` is another host's name.

    A failure of the session's own host keeps its kind: a 503 stays a 503. If another host fails,
    the failure gets the kind LOGIN: no page can be fetched. The same holds if only the URL of the
    login fails, for example with a 500: no page was requested, so no page has caused it.
    """
    where = f" at {elsewhere}" if elsewhere else ""
    detail = f"login of auth {entry.name}{where}: {failure.kind} {failure.detail}".rstrip()
    not_the_host = elsewhere or TABLE[failure.kind].concerns == "url"
    kind = FailureKind.LOGIN if not_the_host else failure.kind
    return Failure(kind, detail, failure.code, failure.retry_after, 0)
