"""Tokens and API keys that a site issued, in a header or in the query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from greencrawl.schema.net.origins import Origins
from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import Bearer
from greencrawl.worker.auth.base import Grant, LoginRefused, Verdict

if TYPE_CHECKING:
    import requests

_SENDABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_IN_PLACE = "[token]"
_TELLING = 8
"""A token with fewer characters is searched for in answers only as a parameter of a URL."""


class BearerKind:
    """Sends a token with every request to the entry's origins. Secrets: token.

    Sites repeat the token: in redirects, in links to the next page. :meth:`judge` removes it from
    the answer, so that it is not read, stored or followed. Raises LoginRefused for a token that
    cannot be sent.
    """

    logs_in = False
    account = ""

    def __init__(self, entry: Bearer, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        token = secrets["token"]
        if not _SENDABLE.fullmatch(token):
            raise LoginRefused("the token holds characters that no header or URL may have")
        self._origins = Origins(entry.hosts)
        self._value = entry.prefix + token
        self._own = ""
        self._parameter = re.compile("(?!)")
        if entry.query:
            name = quote(entry.query, safe="")
            self._own = f"{name}={quote(token, safe='')}"
            # The parameter and its ampersand, as URLs, HTML and JSON write it.
            self._parameter = re.compile(
                rf"([?&]|&amp;|&#38;|\\u0026){re.escape(name)}=[^&#\s\"'<>\\]*(&amp;|&#38;|\\u0026|&)?"
            )
        if len(token) >= _TELLING:  # many words contain a shorter one
            import html  # imported here only: it loads its table of entities

            forms = {token, quote(token, safe=""), quote(token), html.escape(token)}
            forms |= {quote_plus(token), token.replace("/", r"\/")}
            self._forms = sorted(forms, key=len, reverse=True)
        elif self._own:
            self._forms = [self._own]
        else:
            self._forms = []
        self._bytes = [form.encode() for form in self._forms]

    def __repr__(self) -> str:
        return f"BearerKind({self.entry.name})"

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Never called: the token authenticates each request."""
        raise NotImplementedError

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Add the token in its header, or return ``url`` with it as the last parameter."""
        if not self._origins.hold(url):
            return url, dict(headers)
        if not self.entry.query:
            return url, {**headers, self.entry.header: self._value}
        url = self._parameter.sub(_without, url).rstrip("?&")
        return f"{url}{'&' if '?' in url else '?'}{self._own}", dict(headers)

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """Return "out" if the site does not accept the token. Remove the token from ``fetched``."""
        for name, value in fetched.headers.items():
            if any(form in value for form in self._forms):
                fetched.headers[name] = self._clean(value)
        if any(form in fetched.url for form in self._forms):
            fetched.url = self._clean(fetched.url).rstrip("?&")
        if any(form in fetched.body for form in self._bytes):
            # Latin-1 keeps every byte, and the token is ASCII.
            fetched.body = self._clean(fetched.body.decode("latin-1")).encode("latin-1")
        return "out" if fetched.status == 401 else "in"

    def _clean(self, text: str) -> str:
        """Return ``text`` without the token; if it is a parameter of a URL, without the
        parameter."""
        kept = self._parameter
        text = kept.sub(lambda found: _without(found) if self._holds(found[0]) else found[0], text)
        for form in self._forms:
            text = text.replace(form, _IN_PLACE)
        return text

    def _holds(self, text: str) -> bool:
        return any(form in text for form in self._forms)


def _without(found: re.Match[str]) -> str:
    """Return what replaces a removed parameter: the sign before it if another parameter follows."""
    return found[1] if found[2] else ""
