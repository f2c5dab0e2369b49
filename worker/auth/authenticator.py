"""Decides which credentials the request for a page carries, and what the answer says about them.

In a crawl with ``auth`` the request for a page carries the credentials of the first entry that
names the origin of the page. If the entry needs a login, ``greencrawl.worker.auth.logins`` makes
one or takes one that another worker made. ``greencrawl.worker.auth.account`` decides when to
believe an answer that shows that we are logged out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gevent.event import Event

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.records import Failure, Fetched
from greencrawl.schema.records.auth import Auth
from greencrawl.worker.auth.account import Account
from greencrawl.worker.auth.base import Judge, Kind, name_of
from greencrawl.worker.auth.kinds.basic import Basic
from greencrawl.worker.auth.logins import LoginParts, Logins
from greencrawl.worker.auth.state.secrets import Secrets

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.session.fetcher import Visit

_CONTEXTS, _IDLE_SECONDS = 1000, 86_400.0
"""The accounts of at most this many crawls are kept, and for this long after their last use.

So a login that a site has refused is not tried again soon.
"""
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
"""Header fields of an answer that are read, and that hold no credentials or are not stored."""


class Authenticator:
    """The authentication of one process. Safe for many greenlets."""

    def __init__(
        self,
        parts: Callable[[], LoginParts],
        secrets: Secrets,
        by_origin: Basic | None = None,
        *,
        make: Callable[[Auth, Mapping[str, str]], Kind],
        stopping: Event,
        clock: Clock = monotonic,
    ) -> None:
        """Build the object.

        ``by_origin``: Basic credentials for all crawls. ``make`` turns an entry and its secrets
        into a kind.
        """
        self._by_origin = by_origin or Basic({})
        self._logins = Logins(parts, secrets, make=make, stopping=stopping, clock=clock)
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._of_crawl: CrawlCache[tuple[int, int], tuple[Account, ...]]
        self._of_crawl = CrawlCache(_CONTEXTS, _IDLE_SECONDS, clock)

    def get(
        self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge
    ) -> Fetched | Failure:
        """Ask for a page with the credentials that it needs.

        The result is the page, or the answer of a site that refuses us. A login page is never
        returned in place of the page. ``judge`` asks a kind what an answer means. Raises VisitOver
        and LeaseExpired like :meth:`Visit.get`, and what ``judge`` raises.
        """
        account = self._account(visit.context, url)
        if account is not None:
            return self._get(visit, account, url, headers, judge)
        limit = visit.max_body_bytes
        proof = self._by_origin.headers(url)
        if not proof:  # no credentials are sent, so no answer can repeat them
            return visit.get(url, headers, limit, packs=True)
        sent = {**headers, **proof}
        answer = visit.get(url, sent, limit)
        if isinstance(answer, Fetched):
            _forget_echoes(answer, headers, sent)
        return answer

    def serve(self, visit: Visit) -> int:
        """Send the requests of other logins to the host of the visit; return their number."""
        return self._logins.parts.errands.serve(visit)

    def resume(self) -> None:
        """Continue with grants that an earlier process could not put into the vault."""
        self._logins.parts.vault.resume()

    # -- which entry

    def _account(self, context: CrawlContext, url: str) -> Account | None:
        entries = context.options.auth
        if not entries:
            return None
        key = (context.crawl.id, context.crawl.revision)
        accounts = self._of_crawl.get(key)
        if accounts is None:
            accounts = tuple(self._keep(entry) for entry in entries)
            self._of_crawl[key] = accounts
            used = {id(account) for of_crawl in self._of_crawl.values() for account in of_crawl}
            if len(used) < len(self._accounts):  # entries of crawls that ended were dropped
                self._accounts = {k: one for k, one in self._accounts.items() if id(one) in used}
        return next((account for account in accounts if account.origins.hold(url)), None)

    def _keep(self, entry: Auth) -> Account:
        """Return the account of an entry.

        Crawls that write the same entry share its login, but each has its own list of origins.
        """
        name = name_of(entry)
        key = f"{name} {entry.hosts}"
        if key not in self._accounts:
            self._accounts[key] = Account(name, entry, Origins(entry.hosts))
        return self._accounts[key]

    # -- a page

    def _get(
        self,
        visit: Visit,
        account: Account,
        url: str,
        headers: Mapping[str, str],
        judge: Judge,
    ) -> Fetched | Failure:
        limit = visit.max_body_bytes
        asked_again, renewed = False, False
        while True:
            known = self._logins.kind(account)
            if isinstance(known, Failure):
                return known
            grant = self._logins.grant(visit, account, known)
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
                account.logged_out_answers = 0
                return verdict
            if verdict == "in":
                account.logged_out_answers, account.accepted = 0, True
                if renewed:
                    account.unhelpful_logins = 0
                return answer
            if verdict == "again" and not asked_again:
                asked_again = True
                continue
            account.logged_out_answers += 1
            if grant is None:
                return account.rejected(answer)
            if renewed:
                return account.not_helped(answer, self._clock())
            if not account.believed(self._clock()):
                return account.logged_out(answer, "as it did before, when a login changed nothing")
            if account.too_short(grant):
                return account.not_helped(answer, self._clock())
            account.void = max(account.void, grant.generation)
            renewed = True


def _forget_echoes(answer: Fetched, before: Mapping[str, str], sent: Mapping[str, str]) -> None:
    """Drop header fields of an answer that repeat the credentials we sent: they would be stored."""
    added = " ".join(value for name, value in sent.items() if before.get(name) != value)
    proofs = _PROOF.findall(added)
    for name in [n for n, value in answer.headers.items() if n not in _PLAIN_HEADERS]:
        if any(proof in answer.headers[name] for proof in proofs):
            del answer.headers[name]
