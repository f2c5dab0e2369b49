"""From a crawl's entry and its secrets to a kind of authentication."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import auth
from greencrawl.worker.auth.base import Kind, LoginRefused
from greencrawl.worker.auth.kinds import providers
from greencrawl.worker.auth.kinds.basic import BasicKind
from greencrawl.worker.auth.kinds.bearer import BearerKind
from greencrawl.worker.auth.kinds.digest import DigestKind


def make(entry: auth.Auth, secrets: Mapping[str, str]) -> Kind:
    """The kind that ``entry`` describes; ``secrets`` by the names that it wants.

    Raises LoginRefused for a secret that is missing or cannot be sent, and for a class of the
    user's that cannot be loaded.
    """
    _confine(entry, secrets.get("hosts", ""))
    try:
        return _make(entry, secrets)
    except KeyError as error:
        raise LoginRefused(f"auth {entry.name}: no secret {error.args[0]!r} is given") from None


def _make(entry: auth.Auth, secrets: Mapping[str, str]) -> Kind:
    # Those that read HTML or bring libraries along are imported where they are used.
    match entry:
        case auth.Basic():
            return BasicKind(entry, secrets)
        case auth.Digest():
            return DigestKind(entry, secrets)
        case auth.Bearer():
            return BearerKind(entry, secrets)
        case auth.Form():
            from greencrawl.worker.auth.kinds.form import FormKind

            return FormKind(entry, secrets)
        case auth.Own():
            from greencrawl.worker.auth.kinds.own import OwnKind

            return OwnKind(entry, secrets)
        case auth.OAuth1():
            from greencrawl.worker.auth.kinds.oauth1 import OAuth1Kind

            return OAuth1Kind(entry, secrets)
        case auth.OAuth2():
            from greencrawl.worker.auth.kinds.oauth2 import OAuth2Kind

            return OAuth2Kind(entry, secrets)


def _confine(entry: auth.Auth, allowed: str) -> None:
    """Raises LoginRefused where an entry would take its secrets to other hosts than ``allowed``.

    Whoever may make a crawl writes its entries; whose secrets they are may say where they may go.
    """
    if not allowed:
        return
    named = [part.strip() for part in allowed.split(",") if part.strip()]
    try:
        origins = Origins(named)
    except ValueError as error:
        raise LoginRefused(f"hosts of the secrets: {error}") from None
    urls = [url for url in _login_urls(entry) if url]
    urls += [
        host if "://" in host else f"https://{host}" for host in entry.hosts if host not in named
    ]
    for url in urls:
        if "*" in url or not origins.hold(canonicalise(url)):
            raise LoginRefused(f"its secrets are for {', '.join(named)} only, not for {url}")


def trusted(entry: auth.Auth) -> Callable[[str], bool]:
    """Whether what proves who asks may go to a canonical URL while a login is made: to the entry's
    hosts, and to the origins of the URLs that it names for logging in."""
    origins = Origins(entry.hosts)
    own = frozenset(origin_of(canonicalise(url)) for url in _login_urls(entry) if url)
    return lambda url: origins.hold(url) or origin_of(url) in own


def _login_urls(entry: auth.Auth) -> tuple[str, ...]:
    match entry:
        case auth.Form() | auth.Own():
            return (entry.login_url,)
        case auth.OAuth1():
            first = providers.oauth1(entry)
            return first.request_token_url, first.access_token_url
        case auth.OAuth2():
            return (providers.oauth2(entry).token_url,)
        case _:
            return ()
