"""The words of authentication: what a kind can do, what a login leaves behind.

A *kind* is one way to prove who is asking (Basic, OAuth 2.0, a login form …), made of a crawl's
entry and its secrets. Kinds that log in leave a *grant*: cookies, headers or a token, which all
workers share until it expires or the site no longer accepts it. ``greencrawl.worker.auth.logins``
decides when to log in; kinds only know how.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Struct, field

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Failure, Fetched
from greencrawl.schema.records.auth import Auth
from greencrawl.worker.retry import REDIRECTS

if TYPE_CHECKING:  # a worker without logins does without its memory
    import requests

Verdict = Literal["in", "again", "out"]
"""The verdict on an answer: we are in; ask once more with what was just learnt (a challenge); or
the grant is no longer good."""


class LoginRefused(GreencrawlError):
    """Raised when the site, or what is configured, lets nobody in; the message holds no secret.

    Asking again changes nothing until a person does something, so the message says what.
    """


class LoginFailed(GreencrawlError):
    """Raised when a login could not be made for now: ``failure`` of the request says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind} {failure.detail}".rstrip())
        self.failure = failure


class Cookie(Struct, frozen=True):
    """A cookie (RFC 6265) of a login. ``expires`` in seconds since 1970; 0: with the session.

    ``domain`` has no leading dot; without ``host_only`` it holds for the hosts below as well.
    """

    name: str
    value: str
    domain: str
    path: str = "/"
    secure: bool = False
    host_only: bool = True
    expires: int = 0

    def __repr__(self) -> str:
        return f"Cookie({self.name} of {self.domain})"


class Grant(Struct, kw_only=True):
    """What a login left behind, or that it was refused. Secret as a whole: sealed or mode 0600.

    ``account`` is whom it was made for (user name or client id): another one in the secrets makes
    it void. ``generation`` rises with every login and refresh. ``token`` is a token endpoint's
    answer. ``refused`` says why the last login was refused, ``refusals`` how often it was in a row;
    then nothing is asked before ``until_ms``, unless ``secrets_digest`` is no longer that of the
    secrets.
    """

    account: str
    generation: int
    made_ms: int
    expires_ms: int = 0
    cookies: list[Cookie] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    token: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    until_ms: int = 0
    secrets_digest: str = ""
    refusals: int = 0

    def __repr__(self) -> str:
        return f"Grant({self.account}, generation {self.generation})"


def name_of(entry: Auth) -> str:
    """Under what an entry's state is kept: its name, and a hash of what it says.

    Entries that differ in ``hosts`` and ``skip`` alone share a login; any other change begins anew.
    """
    said = msgspec.to_builtins(entry)
    del said["hosts"], said["skip"]
    text = msgspec.json.encode(said, order="deterministic")
    return f"{entry.name}-{hashlib.sha256(text).hexdigest()[:12]}"


class Kind(Protocol):
    """One way to prove who is asking. Its methods do no I/O, ``log_in`` apart."""

    @property
    def entry(self) -> Auth:
        """The entry of the crawl's ``auth`` that it was made of."""

    @property
    def logs_in(self) -> bool:
        """False where the secrets alone prove it, request by request: there is no grant then."""

    @property
    def account(self) -> str:
        """User name or client id."""

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Log in, or refresh ``old``; returns a grant whose cookies, headers, token and expiry are
        set (the keeper fills in the rest).

        ``session`` sends each request as the host's politeness allows. Raises LoginRefused and
        LoginFailed.
        """

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """The URL to ask for instead of the canonical ``url``, and all headers to send.

        Adds what proves who is asking to ``headers``; ``url`` changes only where a query parameter
        carries the proof.
        """

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict | Failure:
        """What an answer to a request so proven says. ``fetched.url`` is the canonical URL.

        A failure is what the status does not say by itself: that we were too fast, say.
        """


Judge = Callable[[Kind, Fetched, Grant | None], Verdict | Failure]
"""Calls :meth:`Kind.judge` where its page can be charged for what that does to the process."""


class Login:
    """Base of a user's own login; the class that an entry of kind ``own`` names::

        class MySite(Login):
            def user_login(self, session, name, password):
                session.post(self.login_url, data={"u": name, "p": password})

    ``session`` is a ``requests.Session`` that waits for the host's pace by itself. Whatever
    cookies it holds afterwards, and whatever was put into ``session.headers``, goes with every
    request to the entry's hosts. Raise :class:`LoginRefused` when the site says no.
    """

    login_url = ""
    """That of the crawl's entry."""

    def user_login(self, session: requests.Session, name: str, password: str) -> None:
        """Log in as ``name``."""
        raise NotImplementedError

    def logged_out(self, fetched: Fetched) -> bool:
        """Whether an answer shows that we are no longer in; by default 401, a redirect to
        ``login_url``, or a page with a form that asks for a password and is sent there."""
        from greencrawl.worker.auth.kinds import form_page

        if fetched.status == 401:
            return True
        if fetched.status in REDIRECTS:
            return form_page.redirects_to(fetched, self.login_url)
        return form_page.asks_for_login(fetched, self.login_url, form_page.Known())
