"""Authentication: what a request carries to prove who is asking.

Credentials belong to an origin (scheme, host and port) and go to no other: neither to another
host a page links to, nor to the same one without TLS, nor after a redirect elsewhere – because the
headers are asked for anew for every URL that is fetched.
"""

from __future__ import annotations

from typing import Protocol

from worker.auth.base import Login, LoginRefused
from worker.auth.basic import Basic, load


class Authenticator(Protocol):
    """Gives the headers that authenticate a request."""

    def headers(self, url: str) -> dict[str, str]:
        """Headers for the canonical ``url``; none where its origin has no credentials."""


class Anonymous:
    """No credentials for anybody."""

    def headers(self, url: str) -> dict[str, str]:
        """No headers."""
        return {}


__all__ = ["Anonymous", "Authenticator", "Basic", "Login", "LoginRefused", "load"]
