"""Authentication: the credentials that a request carries.

Credentials belong to origins (scheme, host and port) and go to no other. The worker decides for
every fetched URL which credentials to send. So none go along when a link or a redirect leads to
another origin, such as the same host without TLS.

=============  ====================================================================================
``base``       what a kind and a grant are; :class:`Login`, the base of a user's own login
``authenticator``     which credentials the request for a page carries
``account``    one entry in use, and what the answers to its pages have shown
``logins``     makes a login, or takes one that another worker made
``cookies``    cookies of a login: which are sent, and which an answer deletes
``transport``  lets ``requests`` send through a host session, at the pace of the host
``errands``    requests of a login to other hosts, sent by the sessions of those hosts
``kinds``      makes one of ``basic digest bearer form own oauth1 oauth2`` from an entry
``state``      secrets, and the results of logins, which all workers share
=============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from greencrawl.schema.records import Failure, Fetched
from greencrawl.worker.auth.base import Cookie, Grant, Judge, Login, LoginFailed, LoginRefused

if TYPE_CHECKING:
    from greencrawl.worker.session.fetcher import Visit


class Authenticated(Protocol):
    """Asks for pages with credentials: ``greencrawl.worker.auth.authenticator.Authenticator``."""

    def get(
        self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge
    ) -> Fetched | Failure:
        """Ask for a page with the credentials that it needs: see ``Authenticator.get``.

        Raises VisitOver and LeaseExpired, and what ``judge`` raises.
        """

    def serve(self, visit: Visit) -> int:
        """Send the requests of other logins to the host of the visit; return their number."""


__all__ = ["Authenticated", "Cookie", "Grant", "Judge", "Login", "LoginFailed", "LoginRefused"]
