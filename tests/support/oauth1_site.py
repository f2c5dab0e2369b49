"""An OAuth 1.0a provider (RFC 5849) with oauthlib's server side, and pages behind its signatures.

It runs in the caller's gevent hub, as ``site_server`` does, on gevent's WSGI server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import Any
from urllib.parse import parse_qs, urlencode

from gevent.pywsgi import WSGIServer
from oauthlib.oauth1 import RequestValidator, WebApplicationServer

from tests.support.site_server import listeners

Answer = tuple[str, str, bytes]
"""Status line; Location of a redirect, or content type of any other answer; body."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A request for a page: its path with the query, the status, and the parameters of its
    header."""

    path: str
    status: int
    authorization: str
    nonce: str


@dataclass
class _Validator(RequestValidator):
    """The provider's data: one client, the given tokens, the seen nonces."""

    client_key: str
    client_secret: str
    tokens: dict[str, str] = field(default_factory=dict)
    request_tokens: dict[str, dict[str, str]] = field(default_factory=dict)
    nonces: set[tuple[str, str, str]] = field(default_factory=set)

    enforce_ssl = False
    dummy_client = "dummy-client-of-nobody"
    dummy_request_token = "dummy-request-token-00"
    dummy_access_token = "dummy-access-token-000"
    safe_characters = frozenset(f"{ascii_letters}{digits}-_")  # type: ignore[assignment]
    client_key_length = request_token_length = access_token_length = (8, 60)
    verifier_length = nonce_length = (8, 60)

    def get_client_secret(self, client_key: str, request: Any) -> str:
        return self.client_secret if client_key == self.client_key else "dummy"

    def get_request_token_secret(self, client_key: str, token: str, request: Any) -> str:
        return self.request_tokens.get(token, {}).get("oauth_token_secret", "dummy")

    def get_access_token_secret(self, client_key: str, token: str, request: Any) -> str:
        return self.tokens.get(token, "dummy")

    def validate_client_key(self, client_key: str, request: Any) -> bool:
        return client_key == self.client_key

    def validate_request_token(self, client_key: str, token: str, request: Any) -> bool:
        return token in self.request_tokens

    def validate_access_token(self, client_key: str, token: str, request: Any) -> bool:
        return token in self.tokens

    def validate_timestamp_and_nonce(
        self,
        client_key: str,
        timestamp: str,
        nonce: str,
        request: Any,
        request_token: str | None = None,
        access_token: str | None = None,
    ) -> bool:
        key = (client_key, timestamp, nonce)
        fresh = key not in self.nonces
        self.nonces.add(key)
        return fresh

    def validate_redirect_uri(self, client_key: str, redirect_uri: str, request: Any) -> bool:
        return redirect_uri == "oob" or redirect_uri.startswith("http://127.0.0.1:")

    def validate_requested_realms(self, client_key: str, realms: Any, request: Any) -> bool:
        return True

    def validate_realms(
        self, client_key: str, token: str, request: Any, uri: Any = None, realms: Any = None
    ) -> bool:
        return True

    def get_default_realms(self, client_key: str, request: Any) -> list[str]:
        return []

    def get_realms(self, token: str, request: Any) -> list[str]:
        return []

    def get_redirect_uri(self, token: str, request: Any) -> str:
        return self.request_tokens[token]["redirect_uri"]

    def save_request_token(self, token: dict[str, str], request: Any) -> None:
        self.request_tokens[token["oauth_token"]] = {
            **token,
            "redirect_uri": request.redirect_uri,
        }

    def verify_request_token(self, token: str, request: Any) -> bool:
        return token in self.request_tokens

    def save_verifier(self, token: str, verifier: dict[str, str], request: Any) -> None:
        self.request_tokens[token]["oauth_verifier"] = verifier["oauth_verifier"]

    def validate_verifier(self, client_key: str, token: str, verifier: str, request: Any) -> bool:
        return self.request_tokens[token].get("oauth_verifier") == verifier

    def invalidate_request_token(self, client_key: str, token: str, request: Any) -> None:
        del self.request_tokens[token]

    def save_access_token(self, token: dict[str, str], request: Any) -> None:
        self.tokens[token["oauth_token"]] = token["oauth_token_secret"]


class OAuth1Site:
    """A context manager. ``/`` links to ``pages`` pages ``/p/1?q=…``, whose queries hold characters
    that are hard to sign; each page requires a signature. The legs are ``/request_token``,
    ``/authorize`` (a form; whoever posts it says yes) and ``/access_token``.
    """

    def __init__(self, pages: int = 20, address: str = "127.0.0.6") -> None:
        self.pages = pages
        self.address = address
        self.port = 0
        self.client_key = f"client-{secrets.token_urlsafe(12)}"
        self.client_secret = f"secret-{secrets.token_urlsafe(18)}"
        self.token = f"token-{secrets.token_urlsafe(18)}"
        self.token_secret = f"tokensecret-{secrets.token_urlsafe(18)}"
        """A token that a provider shows to the client's owner."""
        self.asked: list[Signed] = []
        self._known = _Validator(
            self.client_key, self.client_secret, {self.token: self.token_secret}
        )
        self._provider = WebApplicationServer(self._known)
        self._server: WSGIServer | None = None

    def __enter__(self) -> OAuth1Site:
        listener = listeners([self.address])[0]
        self.port = listener.getsockname()[1]
        self._server = WSGIServer(listener, self._serve, log=None)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop(timeout=1)

    def url(self, path: str = "/") -> str:
        return f"http://{self.address}:{self.port}{path}"

    def page(self, number: int) -> str:
        """Return the path of a page, as in its link."""
        return f"/p/{number}?q=a%20b%2Bc%26d&q=%C3%BC&empty="

    def secrets(self) -> set[str]:
        """Return everything that only the client and the provider may know."""
        found = {self.client_secret, *self._known.tokens, *self._known.tokens.values()}
        for token in self._known.request_tokens.values():
            found |= {token["oauth_token"], token["oauth_token_secret"]}
        return found

    def revoke(self) -> None:
        """Make all tokens invalid."""
        self._known.tokens.clear()

    # -- WSGI

    def _serve(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        target = path + ("?" + query if query else "")
        headers = {
            "Authorization": environ.get("HTTP_AUTHORIZATION", ""),
            "Content-Type": environ.get("CONTENT_TYPE", ""),
        }
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length).decode() if length else ""
        method = environ["REQUEST_METHOD"]
        legs = {
            "/request_token": self._request_token,
            "/authorize": self._authorize,
            "/access_token": self._access_token,
        }
        if path == "/robots.txt":
            status, kind, content = "404 Not Found", "text/plain", b""
        else:
            leg = legs.get(path, self._page)
            status, kind, content = leg(self.url(target), method, body, headers)
        if path not in legs and path != "/robots.txt":
            nonce = headers["Authorization"].partition('oauth_nonce="')[2].partition('"')[0]
            self.asked.append(Signed(target, int(status[:3]), headers["Authorization"], nonce))
        name = "Location" if status.startswith("302") else "Content-Type"
        start(status, [(name, kind), ("Content-Length", str(len(content)))])
        return [content]

    def _page(self, uri: str, method: str, body: str, headers: dict[str, str]) -> Answer:
        if not headers["Authorization"].startswith("OAuth "):  # oauthlib raises ValueError
            return "401 Unauthorized", "text/plain", b"not signed"
        good, _ = self._provider.validate_protected_resource_request(
            uri, method, body, headers, realms=[]
        )
        if not good:
            return "401 Unauthorized", "text/plain", b"not signed as it must be"
        kind, _, number = uri.partition("?")[0].rpartition("/")
        if number and not (kind.endswith("/p") and 1 <= int(number) <= self.pages):
            return "404 Not Found", "text/plain", b""
        links = (
            ""
            if number
            else "".join(
                f'<a href="{self.page(n).replace("&", "&amp;")}">{n}</a>'
                for n in range(1, self.pages + 1)
            )
        )
        text = f"<title>Signed {number}</title>{links}"
        return "200 OK", "text/html; charset=utf-8", text.encode()

    def _request_token(self, uri: str, method: str, body: str, headers: dict[str, str]) -> Answer:
        _, content, status = self._provider.create_request_token_response(
            uri, method, body, headers
        )
        return _line(status), "application/x-www-form-urlencoded", (content or "").encode()

    def _access_token(self, uri: str, method: str, body: str, headers: dict[str, str]) -> Answer:
        _, content, status = self._provider.create_access_token_response(uri, method, body, headers)
        return _line(status), "application/x-www-form-urlencoded", (content or "").encode()

    def _authorize(self, uri: str, method: str, body: str, headers: dict[str, str]) -> Answer:
        token = parse_qs(uri.partition("?")[2]).get("oauth_token", [""])[0]
        if token not in self._known.request_tokens:
            return "400 Bad Request", "text/plain", b"unknown request token"
        if method != "POST":
            form = b'<form method="post"><button name="yes" value="1">Yes</button></form>'
            return "200 OK", "text/html; charset=utf-8", form
        verifier = secrets.token_urlsafe(12)
        self._known.save_verifier(token, {"oauth_verifier": verifier}, None)
        redirect = self._known.request_tokens[token]["redirect_uri"]
        if redirect == "oob":
            return "200 OK", "text/plain", verifier.encode()
        query = urlencode({"oauth_token": token, "oauth_verifier": verifier})
        return "302 Found", f"{redirect}?{query}", b""


def _line(status: int) -> str:
    return {200: "200 OK", 401: "401 Unauthorized"}.get(status, f"{status} Refused")
