"""Whom a broker answers: names of this machine, and web pages of the broker's own origin."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address, no port) is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
