"""Makes a kind of authentication from a crawl's entry and its secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from greencrawl.schema.net import providers
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.permits import OWN, Permits
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import auth
from greencrawl.worker.auth.base import Kind, LoginRefused
from greencrawl.worker.auth.kinds.basic import BasicKind
from greencrawl.worker.auth.kinds.bearer import BearerKind
from greencrawl.worker.auth.kinds.digest import DigestKind


def make(entry: auth.Auth, secrets: Mapping[str, str], permits: Permits = OWN) -> Kind:
    """Return the kind that ``entry`` describes; ``secrets`` has the secrets of the entry by name.

    Raises LoginRefused for a secret that is missing, cannot be sent, or may not be sent where the
    entry says; also for a user's class that is not permitted or cannot be loaded.
    """
    why = permits.secrets(entry, secrets.get("hosts", ""), providers.login_urls(entry))
    if not why and isinstance(entry, auth.Own):
        why = permits.module(entry.login)
    if why:
        raise LoginRefused(why)
    try:
        return _make(entry, secrets)
    except KeyError as error:
        raise LoginRefused(f"auth {entry.name}: no secret {error.args[0]!r} is given") from None


def _make(entry: auth.Auth, secrets: Mapping[str, str]) -> Kind:
    # Modules that read HTML or load libraries are imported where they are used.
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


def trusted(entry: auth.Auth) -> Callable[[str], bool]:
    """Return a function that tells whether credentials may go to a canonical URL during a login.

    They may go to the entry's hosts, and to the origins of the URLs that it names for logging in.
    """
    origins = Origins(entry.hosts)
    own = frozenset(origin_of(canonicalise(url)) for url in providers.login_urls(entry) if url)
    return lambda url: origins.hold(url) or origin_of(url) in own
