"""A site with a login form, as a real HTTP server: sessions, CSRF tokens, redirects, and a log.

Pages under ``/in/`` are for logged-in users. ``anonymous`` says what a visitor without a session
gets there: a redirect to the login page, the form in the page's place with status 200, or a 401.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from gevent.pywsgi import WSGIServer

NAME, PASSWORD = "crawler", "correct horse & <battery>"

FORM = """<!doctype html><title>Log in</title>{error}
<form action="/search"><input name="q"></form>
<form method="post" action="{action}">
<input type="hidden" name="csrf" value="{token}">
<input name="username" autofocus><input type="password" name="password">
<input type="checkbox" name="remember" value="yes"><input type="hidden" name="next" value="/in/">
<input type="submit" value="Log in"></form>"""


@dataclass(frozen=True)
class LoggedRequest:
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def cookies(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in self.headers.get("cookie", "").split("; "))
        return {name: value for name, _, value in pairs if name}


@dataclass
class Answered:
    status: int = 200
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)


Page = Callable[[LoggedRequest], Answered]


def html(text: str, status: int = 200, *headers: tuple[str, str]) -> Answered:
    given = [("Content-Type", "text/html; charset=utf-8"), *headers]
    return Answered(status, text.encode(), given)


def redirect(target: str, *headers: tuple[str, str], status: int = 302) -> Answered:
    return Answered(status, b"", [("Location", target), *headers])


class LoginSite:
    """Serve on a free port of ``address``; use as a context manager.

    ``pages`` replaces single paths, for sites that are made otherwise. ``log`` is what was asked,
    in order; ``logins`` counts those that succeeded.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.anonymous: Literal["redirect", "form", "401"] = "redirect"
        self.action = ""
        self.pages: dict[str, Page] = {}
        self.log: list[LoggedRequest] = []
        self.logins = 0
        self._sessions: set[str] = set()
        self._tokens: set[str] = set()
        self._server = WSGIServer((address, 0), self._serve, log=None, error_log=None)

    def __enter__(self) -> LoginSite:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(timeout=1)

    def url(self, path: str = "/") -> str:
        return f"{self.origin}{path}"

    @property
    def origin(self) -> str:
        return f"http://{self.address}:{self._server.server_port}"

    def kill_sessions(self) -> None:
        """End all sessions."""
        self._sessions.clear()

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            k[5:].replace("_", "-").lower(): v for k, v in environ.items() if k[:5] == "HTTP_"
        }
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        asked = LoggedRequest(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("QUERY_STRING", ""),
            headers,
            environ["wsgi.input"].read(),
        )
        self.log.append(asked)
        answered = self.pages.get(asked.path, self._page)(asked)
        headers_out = [*answered.headers, ("Content-Length", str(len(answered.body)))]
        start(f"{answered.status} X", headers_out)
        return [answered.body]

    def _page(self, asked: LoggedRequest) -> Answered:
        if asked.path == "/login":
            return self.logged_in(asked) if asked.method == "POST" else self.form()
        if not asked.path.startswith("/in/"):
            return html("<p>For everybody</p>")
        if asked.cookies.get("session") in self._sessions:
            return html(f'<p>Page {asked.path} of {NAME}</p><a href="/logout">Log out</a>')
        if self.anonymous == "form":
            return self.form()
        if self.anonymous == "401":
            return html("no", 401)
        return redirect(f"/login?next={asked.path}", ("Set-Cookie", "session=; Max-Age=0; Path=/"))

    def form(self, error: str = "") -> Answered:
        """Return the login page, whose token is valid once and only with its cookie."""
        token = secrets.token_hex(8)
        self._tokens.add(token)
        cookie = ("Set-Cookie", f"csrf={token}; Path=/")
        text = FORM.format(action=self.action or "/login", token=token, error=error)
        return html(text, 200, cookie)

    def logged_in(self, asked: LoggedRequest) -> Answered:
        """Return the answer to the form."""
        given = asked.fields
        token = given.get("csrf", "")
        if token not in self._tokens or asked.cookies.get("csrf") != token:
            return html("<p class=error>CSRF verification failed</p>", 403)
        self._tokens.discard(token)
        if (given.get("username"), given.get("password")) != (NAME, PASSWORD):
            who = given.get("username", "")
            return self.form(f'<p class="errornote">No, {who}, that is wrong</p>')
        session = secrets.token_hex(16)
        self._sessions.add(session)
        self.logins += 1
        cookie = ("Set-Cookie", f"session={session}; Path=/; HttpOnly; Max-Age=3600")
        return redirect(given.get("next", "/in/"), cookie)
