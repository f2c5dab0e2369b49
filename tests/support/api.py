"""A JSON API for tests: routes on gevent's WSGI server, and a log of the requests.

It runs in the caller's gevent hub. An API is as strict as a real one: it answers anything outside
of its documentation with an error, and keeps that in ``complaints``.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_plus

from gevent.pywsgi import WSGIServer

from tests.support.site_server import listeners

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    ``given`` are its parameters: those of the query, and those of a form in the body.
    """

    method: str
    path: str
    query: str
    given: dict[str, str]
    authorization: str
    url: str
    body: str = ""
    content_type: str = ""

    @property
    def basic(self) -> tuple[str, str]:
        """Return name and password of HTTP Basic as RFC 6749 (2.3.1) encodes them; empty
        without."""
        scheme, _, value = self.authorization.partition(" ")
        if scheme != "Basic":
            return "", ""
        name, _, password = b64decode(value).decode().partition(":")
        return unquote_plus(name), unquote_plus(password)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def reply(status: int, value: Any, kind: str = "application/json; charset=utf-8") -> Reply:
    """Return a reply with ``value`` as JSON."""
    return Reply(status, json.dumps(value).encode(), {"Content-Type": kind})


Api = TypeVar("Api", bound="ApiServer")
Route = Callable[[Call], Reply]


class ApiServer:
    """A context manager. ``routes`` are (method, pattern of the whole path, function that
    answers)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.port = 0
        self.calls: list[tuple[Call, int]] = []
        """Each request and the status of its answer."""
        self.complaints: list[str] = []
        self.instead: list[Reply] = []
        """Replies to the next requests, whatever they ask for."""
        self.routes: list[tuple[str, str, Route]] = []
        self._server: WSGIServer | None = None

    def __enter__(self: Api) -> Api:
        listener = listeners([self.address])[0]
        self.port = listener.getsockname()[1]
        named = {"SERVER_NAME": self.address}  # else it is looked up, which may take seconds
        self._server = WSGIServer(listener, self._serve, log=None, environ=named)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop(timeout=1)

    @property
    def origin(self) -> str:
        return f"http://{self.address}:{self.port}"

    def url(self, path: str = "/") -> str:
        return self.origin + path

    def asked(self, path: str) -> list[Call]:
        """Return the requests of a path, in order."""
        return [call for call, _ in self.calls if call.path == path]

    def complain(self, call: Call, what: str) -> None:
        self.complaints.append(f"{call.method} {call.path}: {what}")

    def undocumented(self, call: Call, documented: Iterable[str]) -> list[str]:
        """Return given parameters that the documentation does not name."""
        found = sorted(set(call.given) - set(documented))
        if found:
            self.complain(call, f"not documented: {', '.join(found)}")
        return found

    def _serve(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length).decode() if length else ""
        kind = environ.get("CONTENT_TYPE", "")
        query, path = environ["QUERY_STRING"], environ["PATH_INFO"]
        given = dict(parse_qsl(query, keep_blank_values=True))
        if kind.startswith(FORM):
            given |= dict(parse_qsl(body, keep_blank_values=True))
        call = Call(
            environ["REQUEST_METHOD"],
            path,
            query,
            given,
            environ.get("HTTP_AUTHORIZATION", ""),
            self.url(path + ("?" + query if query else "")),
            body,
            kind,
        )
        made = self.instead.pop(0) if self.instead and path != "/robots.txt" else self._reply(call)
        self.calls.append((call, made.status))
        start(f"{made.status} Status", [*made.headers.items()])
        return [made.body]

    def _reply(self, call: Call) -> Reply:
        for method, pattern, route in self.routes:
            if call.method == method and re.fullmatch(pattern, call.path):
                return route(call)
        return reply(404, {"error": "not found"})
