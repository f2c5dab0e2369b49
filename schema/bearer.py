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


def foreign(host: str | None, origin: str | None) -> str:
    """Why an open listener refuses a request with these headers; "" if it does not."""
    name = urlsplit(f"//{host or 'localhost'}").hostname or ""
    if not is_loopback(name):
        return f"without tokens only loopback names are served, not {name[:100]!r}"
    if origin is not None:
        return "without tokens no requests from web pages (Origin) are served"
    return ""
