"""Bearer tokens of a listener, and the requests that a listener without tokens refuses.

A listener without tokens is open, and therefore on loopback only. Even there a web page in the
user's browser could reach it, so requests that carry a foreign ``Origin`` or ``Host`` are refused
(cross-site request forgery and DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

CHALLENGE = 'Bearer realm="greencrawl"'
"""The ``WWW-Authenticate`` header of an answer to a request without a known token."""


def is_loopback(host: str) -> bool:
    """Return whether ``host`` (a name or an address, no port) means only this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def matches(header: str, *tokens: str) -> tuple[bool, ...]:
    """Return for each of ``tokens`` whether an ``Authorization`` header carries it; never for "".

    All tokens are always compared, each in constant time.
    """
    scheme, _, given = header.partition(" ")
    token = given.strip().encode("utf-8", "replace")
    same = [hmac.compare_digest(token, known.encode()) for known in tokens]
    usable = scheme.lower() == "bearer" and bool(token)
    return tuple(usable and one for one in same)


def host_in(header: str | None) -> str:
    """Return the name or address in a ``Host`` header, without its port; "" if there is none."""
    try:
        return urlsplit(f"//{header or ''}").hostname or ""
    except ValueError:
        return ""


def is_own(origin: str, scheme: str, host: str | None) -> bool:
    """Return whether an ``Origin`` header and a ``Host`` header name the same server.

    Browsers leave out the port in both headers where it is the default port of the scheme.
    """
    return bool(host) and origin.lower() == f"{scheme}://{host}".lower()


def foreign(host: str | None, origin: str | None, *, scheme: str = "") -> str:
    """Return why an open listener refuses a request with these headers; "" if it does not.

    A listener with pages of its own gives the ``scheme`` of the request: its own pages may call it.
    """
    named = host or "localhost"
    name = host_in(named)
    if not is_loopback(name):
        return f"without tokens only loopback names are served, not {name[:100]!r}"
    if origin is not None and not (scheme and is_own(origin, scheme, named)):
        return "without tokens other web pages (Origin) are not served"
    return ""
