"""The concepts of authentication: what a kind does, and what a login leaves behind.

A *kind* is one way to authenticate (Basic, OAuth 2.0, a login form …), made of a crawl's entry and
its secrets. Kinds that log in leave a *grant*: cookies, headers or a token, which all workers share
until it expires or the site no longer accepts it. ``greencrawl.worker.auth.logins`` decides when to
log in; kinds only know how.
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

if TYPE_CHECKING:  # so a worker without logins does not load it
    import requests

Verdict = Literal["in", "again", "out"]
"""The verdict on an answer: we are logged in; ask again with a new challenge; the grant is no
longer valid."""


class LoginRefused(GreencrawlError):
    """Raised when the site, or the configuration, refuses a login; the message holds no secret.

    Asking again changes nothing until a person acts, so the message says what to do.
    """


class LoginFailed(GreencrawlError):
    """Raised when a login failed but may succeed later; ``failure`` says why the request failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind} {failure.detail}".rstrip())
        self.failure = failure


class Cookie(Struct, frozen=True):
    """A cookie (RFC 6265) of a login. ``expires`` is in seconds since 1970; 0 if the site set no
    date.

    ``domain`` has no leading dot; without ``host_only`` the cookie is also sent to its subdomains.
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
    """The result of a login, or its refusal. It is secret as a whole, so it is sealed or has mode
    0600.

    ``account`` is the user name or client id of the login: if the secrets name another one, the
    grant is void. ``generation`` rises with every login and refresh. ``token`` is a token
    endpoint's answer. ``refused`` says why the last login was refused; ``refusals`` counts the
    refusals in a row. After a refusal no login is tried before ``until_ms``, unless the digest of
    the secrets is no longer ``secrets_digest``.
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
    """Return the name of an entry's state: the entry's name, and a hash of its content.

    Entries that differ only in ``hosts`` and ``skip`` share a login; any other change starts a new
    one.
    """
    said = msgspec.to_builtins(entry)
    del said["hosts"], said["skip"]
    text = msgspec.json.encode(said, order="deterministic")
    return f"{entry.name}-{hashlib.sha256(text).hexdigest()[:12]}"


class Kind(Protocol):
    """One way to authenticate. Only its method ``log_in`` does I/O."""

    @property
    def entry(self) -> Auth:
        """Return the entry of the crawl's ``auth`` that it was made of."""

    @property
    def logs_in(self) -> bool:
        """Return False if the secrets alone authenticate each request: then there is no grant."""

    @property
    def account(self) -> str:
        """Return the user name or client id."""

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Log in, or refresh ``old``; return a grant with cookies, headers, token and expiry.

        The authenticator fills in the rest of the grant. ``session`` sends each request as the
        host's politeness allows. Raises LoginRefused and LoginFailed.
        """

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Return the URL to ask for instead of the canonical ``url``, and all headers to send.

        It adds the credentials to ``headers``; ``url`` changes only if a query parameter carries
        them.
        """

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict | Failure:
        """Judge an answer to a request with these credentials. ``fetched.url`` is the canonical
        URL.

        Return a failure for what the status alone does not show, for example that we were too fast.
        """


Judge = Callable[[Kind, Fetched, Grant | None], Verdict | Failure]
"""Calls :meth:`Kind.judge` where its CPU time is counted for the page."""


class Login:
    """Base class of a user's own login; an entry of kind ``own`` names the subclass::

        class MySite(Login):
            def user_login(self, session, name, password):
                session.post(self.login_url, data={"u": name, "p": password})

    ``session`` is a ``requests.Session`` that waits for the host's pace by itself. The cookies that
    it holds afterwards, and the content of ``session.headers``, go with every request to the
    entry's hosts. Raise :class:`LoginRefused` when the site says no.
    """

    login_url = ""
    """The ``login_url`` of the crawl's entry."""

    def user_login(self, session: requests.Session, name: str, password: str) -> None:
        """Log in as ``name``."""
        raise NotImplementedError

    def logged_out(self, fetched: Fetched) -> bool:
        """Return whether an answer shows that we are logged out.

        By default these answers do: a 401, a redirect to ``login_url``, and a page with a form that
        asks for a password and is sent to ``login_url``.
        """
        from greencrawl.worker.auth.kinds import form_page

        if fetched.status == 401:
            return True
        if fetched.status in REDIRECTS:
            return form_page.redirects_to(fetched, self.login_url)
        return form_page.asks_for_login(fetched, self.login_url, form_page.Known())
