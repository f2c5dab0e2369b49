"""One entry of ``auth`` in use, and what the answers to its pages have shown so far.

An answer that asks for a login is not the page. So one worker logs in again, and asks for the page
again at once. If the page still asks for a login, the page fails. Such pages must not make a
crawler log in all day. So after a login that did not help, the next login waits
(:data:`PATIENCE_SECONDS`, doubling each time). It waits less if many pages in a row ask for a
login. Logins also wait at a site that ends each login after a moment.
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
"""The first wait after a refusal: of a login, or of all credentials that were sent."""
PATIENCE_SECONDS = 30.0
PATIENCE_MOST_SECONDS = 3600.0
OUTS_IN_A_ROW = 5
"""After this many answers in a row that ask for a login we log in, even if earlier logins did not
help."""
REJECTIONS = 3
"""The host is blocked after this many pages in a row whose credentials were refused."""
SHORT_LIFE_MS = 60_000
SHORT_LIVES = 10
"""After this many short-lived logins in a row, the next login waits as after one that did not
help."""


@dataclass(eq=False)
class Account:
    """One entry in use. ``name`` is its name in the vault; the rest changes.

    Moments are on the authenticator's clock, in seconds.
    """

    name: str
    entry: Auth
    origins: Origins
    kind: Kind | None = None
    grant: Grant | None = None
    void: int = 0
    """Grants up to this generation are no longer valid: pages wait for a newer one."""
    digest: str = ""
    """The digest of the secrets that ``kind`` was last made of."""
    busy: bool = False
    done: Event = field(default_factory=Event)
    accepted: bool = False
    """True if an answer showed that we are logged in."""
    logged_out_answers: int = 0
    """How many answers in a row showed that we are logged out."""
    unhelpful_logins: int = 0
    """How many logins in a row did not help: the page still asked for one."""
    quiet_until: float = 0.0
    """Until then a single page that asks for a login leads to no new login."""
    short: int = 0
    """How many logins in a row did not last."""
    earliest_logout: float = 0.0
    """Until then even many pages in a row that ask for a login lead to no new login."""
    away_since: float | None = None
    """The time since which the vault does not answer; None while it answers."""
    away_seen: float = 0.0
    """The time at which the vault last did not answer. The session that asked may have ended before
    the vault was back."""

    def believed(self, now: float) -> bool:
        """Return whether a logged-out page leads to a new login; see the module's docstring."""
        many = self.logged_out_answers >= OUTS_IN_A_ROW and now >= self.earliest_logout
        return many or now >= self.quiet_until

    def too_short(self, grant: Grant) -> bool:
        """Return whether too many logins in a row lasted only for a moment: then the next login
        must wait.

        Call it once for each page that finds ``grant`` no longer valid.
        """
        if grant.generation > self.void:  # only the first page that finds this grant void counts
            young = epoch_ms() - grant.made_ms < SHORT_LIFE_MS
            self.short = self.short + 1 if young else 0
        return self.short > SHORT_LIVES

    def rejected(self, answer: Fetched) -> Fetched | Failure:
        """Return what a refusal of the credentials means for the page, by its status.

        If the host never accepted the credentials, it gets no request for a while: it could lock
        the account.
        """
        if self.accepted or self.logged_out_answers < REJECTIONS:
            return answer
        self.logged_out_answers = 0
        reason = f"{origin_of(answer.url)} accepts none of it: HTTP {answer.status}"
        return self.block(reason, REFUSED_SECONDS)

    def not_helped(self, answer: Fetched, now: float) -> Failure:
        """Note that the page asks for a login right after one: further logins wait."""
        wait = min(PATIENCE_SECONDS * 2.0**self.unhelpful_logins, PATIENCE_MOST_SECONDS)
        self.unhelpful_logins = min(self.unhelpful_logins + 1, 30)
        self.quiet_until = now + wait
        self.earliest_logout = now + PATIENCE_SECONDS * self.unhelpful_logins
        self.logged_out_answers = 0
        log.warning("login_not_accepted", auth=self.entry.name, url=answer.url)
        return self.logged_out(answer, "although a new login was just made")

    def logged_out(self, answer: Fetched, how: str) -> Failure:
        """Return the failure of a page whose answer asks for a login."""
        detail = f"auth {self.entry.name}: the page asks for a login, {how}"
        return Failure(FailureKind.LOGGED_OUT, detail, answer.status)

    def block(self, reason: str, seconds: float, *, ours: bool = False) -> Failure:
        """Return the reason why a host is not asked now. No request for the page was sent.

        ``ours``: the cause is on our side, so the operator has to repair it.
        """
        self.kind, self.grant = None, None  # the secrets are read again next time
        detail = f"auth {self.entry.name}: {reason}"
        return Failure(FailureKind.LOGIN, detail, retry_after=seconds, requests=0, ours=ours)
