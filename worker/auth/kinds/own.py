"""A user's own login: the user's class, found as hooks are (``greencrawl.worker.hooks``)."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from greencrawl.schema.errors import GreencrawlError, InvalidConfig, InvalidUrl
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.request import header_lines
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import Own
from greencrawl.worker.auth.base import Grant, Login, LoginFailed, LoginRefused, Verdict
from greencrawl.worker.auth.cookies import CookieStore, collected
from greencrawl.worker.auth.kinds.form_page.complaint import masked, shortened
from greencrawl.worker.hooks import RAISED, imported

if TYPE_CHECKING:
    import requests

_NOT_SENT = frozenset({"connection", "content-length", "content-type", "cookie", "host"})
"""Headers of a session that belong to single requests."""


class OwnKind:
    """A login by the class that the entry names.

    Secrets: username, password. Raises LoginRefused when the class cannot be loaded or made. An
    error in a method of the class becomes LoginRefused, too. Its text names the class, the type of
    the error and the line, but leaves out the message, which may hold a secret.
    """

    logs_in = True

    def __init__(self, entry: Own, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self.account = secrets["username"]
        self._password = secrets["password"]
        self._cookie_store = CookieStore(Origins(entry.hosts))
        self._login = self._made()

    def __repr__(self) -> str:
        return f"OwnKind({self.entry.name})"

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Call ``user_login``; raise LoginRefused if it left no cookie and no header to send."""
        before = dict(session.headers)
        try:
            self._login.user_login(session, self.account, self._password)
        except LoginRefused as error:
            raise LoginRefused(self._hidden(str(error))) from None
        except LoginFailed:
            raise
        except RAISED as error:
            raise self._blamed("user_login", error) from None
        headers = {
            str(name): str(value)
            for name, value in session.headers.items()
            if before.get(name) != value and name.lower() not in _NOT_SENT
        }
        try:
            header_lines(headers)
        except ValueError as error:
            raise LoginRefused(f"{self.entry.login}.user_login: {error}") from None
        cookies = collected(session.cookies)
        if not cookies and not headers:
            raise LoginRefused(f"{self.entry.login}.user_login left neither a cookie nor a header")
        return Grant(
            account=self.account, generation=0, made_ms=0, cookies=cookies, headers=headers
        )

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Add the login's cookies and headers to the request."""
        return url, self._cookie_store.prove(url, headers, grant)

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """Return "out" if ``logged_out`` says so, or if the page deletes a cookie of the login.

        Raises LoginRefused when ``logged_out`` raises.
        """
        lost = self._cookie_store.lost(fetched, grant)
        try:
            out = self._login.logged_out(fetched)
        except RAISED as error:
            raise self._blamed("logged_out", error) from None
        return "out" if out or lost else "in"

    def _made(self) -> Login:
        module, _, name = self.entry.login.partition(":")
        try:
            kind = getattr(imported(module, "login"), name, None)
        except InvalidConfig as error:
            raise LoginRefused(self._hidden(str(error))) from None
        if not (isinstance(kind, type) and issubclass(kind, Login)):
            raise LoginRefused(f"{self.entry.login} is no class made of worker.auth.Login")
        try:
            login = kind()
            login.login_url = canonicalise(self.entry.login_url) if self.entry.login_url else ""
        except RAISED as error:
            raise self._blamed("__init__", error) from None
        return login

    def _blamed(self, method: str, error: BaseException) -> Exception:
        """Turn an error of the user's class into LoginRefused; return an error of ours (such as the
        end of the session) as it is."""
        if isinstance(error, GreencrawlError) and not isinstance(error, InvalidUrl | InvalidConfig):
            return error
        module = self.entry.login.partition(":")[0]
        file = module.rpartition(".")[2] + ".py"
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename.endswith(f"/{file}")]
        where = f" ({file}, line {lines[-1]})" if lines else ""
        return LoginRefused(f"{self.entry.login}.{method} raised {type(error).__name__}{where}")

    def _hidden(self, text: str) -> str:
        return shortened(masked(text, (self.account, self._password)))
