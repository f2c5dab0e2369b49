"""Authentication: what a request carries to prove who is asking.

Credentials belong to origins (scheme, host and port) and go to no other: neither to another
host a page links to, nor to the same one without TLS, nor after a redirect elsewhere – because
what is sent is asked for anew for every URL that is fetched.

======================  ===========================================================================
``base``                the words: kind, grant, a user's own :class:`Login`
``keeper``              when to log in, and what an answer says about it
``kinds``               from an entry to one of ``basic digest bearer form own oauth1 oauth2``
``secrets``             passwords and keys, from the environment or a file of mode 0600
``vault``, ``sealing``  what logins leave behind, shared by all workers
``late``                of these, what the frontier could not be given at once
``transport``           ``requests`` over the paced requests of a host session
``errands``             requests to other hosts, sent by whoever holds those
======================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from greencrawl.schema.records import Failure, Fetched
from greencrawl.worker.auth.base import Cookie, Grant, Judge, Login, LoginFailed, LoginRefused

if TYPE_CHECKING:
    from greencrawl.worker.session.fetcher import Visit


class Authenticated(Protocol):
    """Asks for pages with whatever proves that we may have them: ``worker.auth.keeper.Keeper``."""

    def get(
        self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge
    ) -> Fetched | Failure: ...

    def serve(self, visit: Visit) -> int:
        """Send what logins of others need of the visit's host; returns how many requests."""


__all__ = ["Authenticated", "Cookie", "Grant", "Judge", "Login", "LoginFailed", "LoginRefused"]
