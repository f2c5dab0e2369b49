"""Login providers whose endpoints are built in, with their differences from the standards.

Twitter, now X: https://docs.x.com, "OAuth 1.0a", "OAuth 2.0 Authorization Code Flow with PKCE",
"App-only". App-only tokens do not expire. They come from another endpoint than the tokens of users,
which last two hours and are refreshed only with the scope ``offline.access``.

Sina Weibo: https://open.weibo.com/wiki, "OAuth2/authorize", "OAuth2/access_token", "Error code".
The client proves itself in the body; scopes are separated by commas; a token is sent as
``Authorization: OAuth2 TOKEN``. There is no token type, no PKCE, and for most clients no refresh.
Two errors are numbers in a body, under several statuses: a token that is no longer valid, and a
rate limit (requests in an hour) that is reached.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from greencrawl.schema.records.auth import Auth, Form, OAuth1, OAuth2, Own


class Endpoints1(Struct, frozen=True):
    """The three endpoints of OAuth 1.0a.

    ``denied`` is a pattern over the body of a 401 that refuses the URL, not the user.
    """

    request_token_url: str = ""
    authorize_url: str = ""
    access_token_url: str = ""
    denied: str = ""


class Endpoints2(Struct, frozen=True):
    """What an OAuth 2.0 client needs to know of its provider.

    ``expired`` is a pattern over the body of an answer of at most ``ERROR_BYTES``: it matches if
    the token is no longer valid. ``too_fast`` is a pattern that matches if a rate limit is reached
    and the status is not 429; ``wait_seconds`` is how long to wait then. ``separator`` stands
    between scopes.
    """

    token_url: str = ""
    authorize_url: str = ""
    client_auth: Literal["basic", "body"] = "basic"
    prefix: str = "Bearer "
    expired: str = ""
    denied: str = ""
    too_fast: str = ""
    wait_seconds: float = 0.0
    pkce: bool = True
    separator: str = " "


ERROR_BYTES = 8192

_TWITTER_API = "https://api.x.com"
_TWITTER_DENIED = r'"error"\s*:\s*"Not authorized\.?"'
"""In version 1.1, protected tweets give a 401 without an error code."""

_OAUTH1 = {
    "": Endpoints1(),
    "twitter": Endpoints1(
        request_token_url=f"{_TWITTER_API}/oauth/request_token",
        authorize_url=f"{_TWITTER_API}/oauth/authorize",
        access_token_url=f"{_TWITTER_API}/oauth/access_token",
        denied=_TWITTER_DENIED,
    ),
}

_OAUTH2 = {
    ("", "client_credentials"): Endpoints2(),
    ("", "code"): Endpoints2(),
    ("twitter", "client_credentials"): Endpoints2(
        token_url=f"{_TWITTER_API}/oauth2/token", denied=_TWITTER_DENIED
    ),
    ("twitter", "code"): Endpoints2(
        token_url=f"{_TWITTER_API}/2/oauth2/token",
        authorize_url="https://x.com/i/oauth2/authorize",
        denied=_TWITTER_DENIED,
    ),
    ("weibo", "code"): Endpoints2(
        token_url="https://api.weibo.com/oauth2/access_token",
        authorize_url="https://api.weibo.com/oauth2/authorize",
        client_auth="body",
        prefix="OAuth2 ",
        # 21314 used, 21315 expired, 21316 and 21317 rejected, 21319 revoked, 21327 expired, 21332
        # invalid.
        expired=r'"error_code"\s*:\s*"?213(1[4-79]|27|32)\b',
        # Limits of: 10022 this address, 10023 the user, 10024 the user for this interface. Status
        # 403.
        too_fast=r'"error_code"\s*:\s*"?1002[2-4]\b',
        wait_seconds=900.0,
        pkce=False,
        separator=",",
    ),
}


def oauth1(entry: OAuth1) -> Endpoints1:
    """Return the endpoints of an entry: its own, or those of its provider, which ``base`` can
    move."""
    known = _OAUTH1[entry.provider]
    return replace(
        known,
        request_token_url=entry.request_token_url or _moved(known.request_token_url, entry.base),
        authorize_url=entry.authorize_url or _moved(known.authorize_url, entry.base),
        access_token_url=entry.access_token_url or _moved(known.access_token_url, entry.base),
    )


def oauth2(entry: OAuth2) -> Endpoints2:
    """Return the endpoints of an entry, as :func:`oauth1` does.

    If a provider differs from the standard, the provider's way counts, unless the entry says
    otherwise. There are no endpoints for a grant that the provider does not offer.
    """
    known = _OAUTH2.get((entry.provider, entry.grant), Endpoints2())
    return replace(
        known,
        token_url=entry.token_url or _moved(known.token_url, entry.base),
        authorize_url=entry.authorize_url or _moved(known.authorize_url, entry.base),
        client_auth=_chosen(entry.client_auth, known.client_auth),
        prefix=entry.prefix if entry.prefix != "Bearer " else known.prefix,
        expired=entry.expired or known.expired,
    )


def login_urls(entry: Auth) -> tuple[str, ...]:
    """Return the URLs to which an entry sends its secrets to log in, those of its provider too."""
    urls: tuple[str, ...] = ()
    match entry:
        case Form() | Own():
            urls = (entry.login_url,)
        case OAuth1():
            first = oauth1(entry)
            urls = first.request_token_url, first.access_token_url
        case OAuth2():
            urls = (oauth2(entry).token_url,)
    return tuple(url for url in urls if url)


def _chosen(
    given: Literal["basic", "body"], known: Literal["basic", "body"]
) -> Literal["basic", "body"]:
    """Return how a client proves itself; ``basic`` is the default of an entry."""
    return "body" if "body" in (given, known) else "basic"


def _moved(url: str, base: str) -> str:
    """Return ``url`` on another origin."""
    if not url or not base:
        return url
    origin = base if re.match(r"https?://", base) else f"https://{base}"
    return urlunsplit((*urlsplit(origin.rstrip("/"))[:2], *urlsplit(url)[2:]))
