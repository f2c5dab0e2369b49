"""The tables of a crawl: authentication, JSON APIs that list what to fetch, and kernels.

No secret stands here. An entry of ``auth`` has a name. User names, passwords, keys and tokens are
found under that name in the environment or in a file with mode 0600 on the workers
(``greencrawl.worker.auth.state.secrets``). So neither the broker nor the store ever has them.

*Where credentials go*: each entry lists the origins that it is for. ``example.org`` means https on
its standard port, ``example.org:8443`` https on that port, and ``*.example.org`` every host below
(not ``example.org`` itself). Credentials go without TLS only to hosts that are written out as
``http://…``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greencrawl.schema.records.fields import Pattern, Url

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]{0,31}$",
        description="Name of the entry, under which its secrets are found",
    ),
]
Origin = Annotated[str, Meta(min_length=1, max_length=300)]
Expression = Annotated[str, Meta(min_length=1, max_length=1024)]


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What every kind of authentication has."""

    name: Name
    hosts: Annotated[
        tuple[Origin, ...],
        Meta(
            min_length=1, description="Origins that the credentials are for; never sent to others"
        ),
    ]
    skip: Annotated[
        tuple[Pattern, ...] | None,
        Meta(
            description="Regular expressions for path and query (case does not matter); links "
            "that match are not fetched, nor are links known to log out or to change "
            "something; with an empty list all of these are fetched"
        ),
    ] = None


class Basic(Entry, frozen=True, kw_only=True, tag="basic"):
    """HTTP Basic (RFC 7617). Secrets: username, password."""


class Digest(Entry, frozen=True, kw_only=True, tag="digest"):
    """HTTP Digest (RFC 7616). Secrets: username, password."""


class Bearer(Entry, frozen=True, kw_only=True, tag="bearer"):
    """A token or an API key that somebody issued. Secrets: token."""

    header: Annotated[str, Meta(max_length=64, description="Header that has the token")] = (
        "Authorization"
    )
    prefix: Annotated[str, Meta(max_length=32, description="Text before the token")] = "Bearer "
    query: Annotated[
        str,
        Meta(max_length=64, description="Query parameter that has the token, instead of a header"),
    ] = ""


class OAuth1(Entry, frozen=True, kw_only=True, tag="oauth1"):
    """OAuth 1.0a (RFC 5849): each request is signed.

    Secrets: client_key, client_secret; also token and token_secret, unless ``greencrawl login`` is
    to get them.
    """

    provider: Annotated[
        Literal["", "twitter"],
        Meta(description="Provider whose endpoints fill in those that are not given"),
    ] = ""
    base: Annotated[str, Meta(max_length=300, description="Origin instead of the provider's")] = ""
    request_token_url: str = ""
    authorize_url: str = ""
    access_token_url: str = ""
    signature: Literal["HMAC-SHA1", "HMAC-SHA256", "HMAC-SHA512", "PLAINTEXT"] = "HMAC-SHA1"


class OAuth2(Entry, frozen=True, kw_only=True, tag="oauth2"):
    """OAuth 2.0 (RFC 6749, 7636). Secrets: client_id; client_secret unless the client is public.

    With grant ``code`` a person agrees once (``greencrawl login NAME``). Afterwards the token is
    refreshed without a person for as long as the provider allows.
    """

    grant: Literal["client_credentials", "code"] = "client_credentials"
    provider: Annotated[
        Literal["", "twitter", "weibo"],
        Meta(description="Provider whose endpoints fill in those that are not given"),
    ] = ""
    base: Annotated[str, Meta(max_length=300, description="Origin instead of the provider's")] = ""
    token_url: str = ""
    authorize_url: str = ""
    scopes: tuple[str, ...] = ()
    client_auth: Annotated[
        Literal["basic", "body"], Meta(description="How the client proves itself at token_url")
    ] = "basic"
    prefix: Annotated[
        str, Meta(max_length=32, description="Text before the token in Authorization")
    ] = "Bearer "
    expired: Annotated[
        str,
        Meta(
            max_length=1024,
            description="Regular expression over an answer's body that says the token is no longer "
            "good, where the provider does not answer 401",
        ),
    ] = ""


class Form(Entry, frozen=True, kw_only=True, tag="form"):
    """A login form. Secrets: username, password.

    The page at ``login_url`` is read. Its form is filled in with everything that it holds (hidden
    fields and CSRF tokens), and sent. If the fields for name and password are not set here, they
    are found by their types and names.
    """

    login_url: Url
    username_field: str = ""
    password_field: str = ""
    fields: Annotated[
        dict[str, str], Meta(description="Further fields to fill in, for example a box to tick")
    ] = {}
    check_url: Annotated[
        str, Meta(max_length=8192, description="A page that only logged-in users can see")
    ] = ""
    logged_in: Annotated[
        str,
        Meta(
            max_length=1024,
            description="Regular expression that matches pages while one is logged in",
        ),
    ] = ""
    logged_out: Annotated[
        str,
        Meta(
            max_length=1024,
            description="Regular expression that matches pages while one is logged out",
        ),
    ] = ""


class Own(Entry, frozen=True, kw_only=True, tag="own"):
    """A class that the user wrote, a ``greencrawl.worker.auth.Login``. Secrets: username,
    password."""

    login: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
            description="module:Class, found from the folder in which the worker runs",
        ),
    ]
    login_url: Annotated[str, Meta(max_length=8192)] = ""


Auth = Basic | Digest | Bearer | OAuth1 | OAuth2 | Form | Own


class Source(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A JSON API that lists what to fetch, page after page. Expressions are JMESPath.

    ``url`` is its first page and a seed of the crawl. The expressions read each answer from this
    URL, whatever value the parameter ``cursor`` has. ``items`` gives the URLs to fetch; relative
    ones are resolved against the page. ``next`` gives the next page: the value of ``cursor``, or a
    URL if ``cursor`` is empty. Nothing, null, "" or 0 ends the list. Next pages are at the same
    depth.
    """

    url: Url
    items: Expression
    next: Annotated[str, Meta(max_length=1024)] = ""
    cursor: Annotated[str, Meta(max_length=64)] = ""


BUILT_IN_KERNELS = ("http", "json", "sitemap", "feed")
"""Names of kernels that are chosen by content.

All but ``json``, which needs a source, may also be named for URLs.
"""


class KernelRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """URLs that one kernel fetches and reads.

    ``match`` is a whole canonical URL in which ``*`` stands for any characters; the first rule that
    matches counts. ``kernel`` is ``http``, ``sitemap`` or ``feed``, or ``module:Class``.
    """

    match: Pattern
    kernel: Annotated[str, Meta(min_length=1, max_length=128)]
