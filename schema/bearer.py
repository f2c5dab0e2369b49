"""Who may call a listener: bearer tokens, and what is refused if none is set.

A listener without tokens is open, and therefore on loopback only. Even there a web page in the
user's browser could reach it, so requests that carry a foreign ``Origin`` or ``Host`` are refused
(cross-site request forgery and DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

CHALLENGE = 'Bearer realm="greencrawl"'
"""The value of ``WWW-Authenticate`` in an answer to a request without a token that is known."""


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address, no port) is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def matches(header: str, *tokens: str) -> tuple[bool, ...]:
    """For each of ``tokens`` whether an ``Authorization`` header carries it; "" is carried by none.

    All are always compared, each in constant time.
    """
    scheme, _, given = header.partition(" ")
    token = given.strip().encode("utf-8", "replace")
    same = [hmac.compare_digest(token, known.encode()) for known in tokens]
    usable = scheme.lower() == "bearer" and bool(token)
    return tuple(usable and one for one in same)


def host_in(header: str | None) -> str:
    """The name or address in a ``Host`` header, without its port; "" for what is none."""
    try:
        return urlsplit(f"//{header or ''}").hostname or ""
    except ValueError:
        return ""


def is_own(origin: str, scheme: str, host: str | None) -> bool:
    """Whether an ``Origin`` header names the very server that a ``Host`` header does.

    Browsers leave out the port in both where it is the scheme's own.
    """
    return bool(host) and origin.lower() == f"{scheme}://{host}".lower()


def foreign(host: str | None, origin: str | None, *, scheme: str = "") -> str:
    """Why an open listener refuses a request with these headers; "" if it does not.

    A listener that has pages of its own says by which ``scheme`` it was asked: these may ask it.
    """
    named = host or "localhost"
    name = host_in(named)
    if not is_loopback(name):
        return f"without tokens only loopback names are served, not {name[:100]!r}"
    if origin is not None and not (scheme and is_own(origin, scheme, named)):
        return "without tokens other web pages (Origin) are not served"
    return ""
