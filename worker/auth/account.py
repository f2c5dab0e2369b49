"""One entry of ``auth`` in use, and what the answers to its pages have said so far.

An answer that says we are no longer in is not the page: the login is made again, by one worker,
and the page is asked for again, at once. If it still asks for a login, that is its own failure.
Such pages must not make a crawler log in all day. After a login that did not help, further ones
wait (:data:`PATIENCE_SECONDS`, doubling), unless nothing at all is answered any more. The same
holds for a site that ends each session after a moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gevent.event import Event

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import origin_of
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import Auth
from greencrawl.worker.auth.base import Grant, Kind

log = logger("worker")

REFUSED_SECONDS = 3600.0
"""The first wait after a refusal, of a login or of all that was sent in its place."""
PATIENCE_SECONDS = 30.0
PATIENCE_MOST_SECONDS = 3600.0
OUTS_IN_A_ROW = 5
"""So many pages in a row that say we are out are believed, whatever was in vain before."""
REJECTIONS = 3
"""The host is blocked after so many pages in a row that accept no secret, with none in between that
does."""
SHORT_LIFE_MS = 60_000
SHORT_LIVES = 10
"""So many logins in a row that last no longer, and the next ones wait like those in vain."""


@dataclass(eq=False)
class Account:
    """One entry in use. ``name`` is its place in the vault; the rest changes.

    Moments are on the keeper's clock, in seconds.
    """

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
    """Until then a page that asks for a login is not believed."""
    short: int = 0
    """Logins in a row that did not last."""
    soonest: float = 0.0
    """Until then not even many in a row are."""
    away_since: float | None = None
    """Since when the vault gives no answer; None while it does."""
    away_seen: float = 0.0
    """When it last gave none. Who asked may have ended before it was back."""

    def believed(self, now: float) -> bool:
        """Whether a page that says we are out leads to a login; see the module's text."""
        many = self.outs >= OUTS_IN_A_ROW and now >= self.soonest
        return many or now >= self.quiet_until

    def too_short(self, grant: Grant) -> bool:
        """Whether one login after the other helps for a moment only: then they must wait, too.

        Call it once for each page that finds ``grant`` no longer good.
        """
        if grant.generation > self.void:  # the first page that finds this one void counts
            young = epoch_ms() - grant.made_ms < SHORT_LIFE_MS
            self.short = self.short + 1 if young else 0
        return self.short > SHORT_LIVES

    def rejected(self, answer: Fetched) -> Fetched | Failure:
        """The secrets alone did not do: its status says what that means for the page. Where they
        never did for any, the host is left alone before it locks the account."""
        if self.accepted or self.outs < REJECTIONS:
            return answer
        self.outs = 0
        reason = f"{origin_of(answer.url)} accepts none of it: HTTP {answer.status}"
        return self.block(reason, REFUSED_SECONDS)

    def not_helped(self, answer: Fetched, now: float) -> Failure:
        """The page asks for a login though one was just made: further ones wait."""
        wait = min(PATIENCE_SECONDS * 2.0**self.in_vain, PATIENCE_MOST_SECONDS)
        self.in_vain = min(self.in_vain + 1, 30)
        self.quiet_until = now + wait
        self.soonest = now + PATIENCE_SECONDS * self.in_vain
        self.outs = 0
        log.warning("login_did_not_help", auth=self.entry.name, url=answer.url)
        return self.logged_out(answer, "though it was just made anew")

    def logged_out(self, answer: Fetched, how: str) -> Failure:
        """The page's own failure: its answer asks for a login."""
        detail = f"auth {self.entry.name}: the page asks for a login, {how}"
        return Failure(FailureKind.LOGGED_OUT, detail, answer.status)

    def block(self, reason: str, seconds: float, *, ours: bool = False) -> Failure:
        """Why a host is not asked for anything now. No request for the page has left.

        ``ours``: the operator has to mend it.
        """
        self.kind, self.grant = None, None  # the secrets are read anew next time
        detail = f"auth {self.entry.name}: {reason}"
        return Failure(FailureKind.LOGIN, detail, retry_after=seconds, requests=0, ours=ours)
