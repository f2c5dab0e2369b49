"""A person's consent for OAuth: the browser opens a page, and its answer comes back.

The answer is a redirect to a port of this machine (RFC 8252) if the provider allows that. Otherwise
a person copies the address at which the browser ends; with OAuth 1.0a also the number that the page
shows (``oob``). Only an answer to the present request is accepted.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, urlsplit

import click

from greencrawl.cli.local.loopback import Loopback, is_loopback
from greencrawl.schema.errors import GreencrawlError
from greencrawl.worker.auth.base import Grant

if TYPE_CHECKING:  # both are slow to import, and most commands need neither
    import requests

    from greencrawl.worker.auth.kinds.oauth import ConsentRequest

WAIT_SECONDS = 600.0
"""Seconds for a person to log in at the provider and to agree."""
OOB = "oob"
CALLBACK = "http://127.0.0.1:0/callback"


@dataclass(frozen=True)
class Way:
    """How the answer comes back.

    ``redirect_uri`` as the provider knows it, None for a free port; ``paste``: a person pastes it.
    """

    redirect_uri: str | None = None
    paste: bool = False

    @property
    def by_hand(self) -> bool:
        """Return whether a person has to copy the answer."""
        return self.paste or not is_loopback(self.redirect_uri or CALLBACK)


class ConsentKind(Protocol):
    """A kind that needs a person: ``greencrawl.worker.auth.kinds.oauth1`` and ``oauth2``."""

    def authorize(self, session: requests.Session, redirect_uri: str) -> ConsentRequest:
        """Return the address for the person to open.

        The provider redirects them to ``redirect_uri``. Raises LoginRefused, LoginFailed.
        """

    def exchange(self, session: requests.Session, request: ConsentRequest, answer: str) -> Grant:
        """Return the grant for an answer: the URL that the browser was sent to, or a code.

        Raises LoginRefused, LoginFailed.
        """


def obtain(kind: ConsentKind, session: requests.Session, way: Way, seconds: float) -> Grant:
    """Ask the person and wait for the answer, for ``seconds`` if the browser brings it.

    Raises LoginRefused, LoginFailed, and GreencrawlError when no answer comes.
    """
    with ExitStack() as stack:
        uri, listening = way.redirect_uri or CALLBACK, None
        if not way.by_hand:
            listening = stack.enter_context(Loopback(uri))
            uri = listening.uri
        elif way.redirect_uri is None:
            # no program listens there: the person copies the address
            uri = CALLBACK.replace(":0", "")
        request = kind.authorize(session, uri)
        click.echo(f"Open this address, and say yes there:\n\n{request.url}\n")
        if listening is None:
            answer = _pasted(uri)
        else:
            if _browser(request.url):
                click.echo("It is being opened in the browser.")
            click.echo(f"Waiting for the answer at {uri} (Ctrl-C to stop).")
            answer = listening.wait(lambda url: _belongs(url, request.state), seconds) or ""
            if not answer:
                minutes = f"{seconds / 60:g} minutes"
                raise GreencrawlError(f"no answer came within {minutes}; --paste takes it by hand")
    return kind.exchange(session, request, answer)


def _pasted(uri: str) -> str:
    sys.stdout.flush()
    if uri == OOB:
        return str(click.prompt("The number that the page shows", err=True)).strip()
    return str(click.prompt("The address that the browser ended at", err=True)).strip()


def _belongs(url: str, state: str) -> bool:
    """Return whether an answer belongs to our request: another program may call our port, too."""
    given = parse_qs(urlsplit(url).query)
    return any(state in given.get(name, ()) for name in ("state", "oauth_token", "denied"))


def _browser(url: str) -> bool:
    """Open a window, if there is a screen; a text browser would take over the terminal."""
    if sys.platform != "darwin" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
