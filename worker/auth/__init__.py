"""Authentication: the credentials that a request carries.

Credentials belong to origins (scheme, host and port) and go to no other. They do not go to another
host that a page links to, nor to the same host without TLS, nor after a redirect elsewhere: for
every fetched URL the worker decides again which credentials to send.

=============  ====================================================================================
``base``       the words: kind, grant, a user's own :class:`Login`
``authenticator``     which proof a page is asked for with
``account``    one entry in use, and what the answers to its pages have said
``logins``     making a login, or taking another worker's
``cookies``    cookies of a login: read, sent, and lost
``transport``  ``requests`` over the paced requests of a host session
``errands``    requests to other hosts, sent by whoever holds those
``kinds``      from an entry to one of ``basic digest bearer form own oauth1 oauth2``
``state``      secrets, and what logins leave behind, shared by all workers
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
        """Send other logins' requests to the visit's host; return how many."""


__all__ = ["Authenticated", "Cookie", "Grant", "Judge", "Login", "LoginFailed", "LoginRefused"]
