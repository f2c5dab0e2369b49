"""Digest and cookies of a login: by our code, and by code around libraries.

The library's answers to challenges are made by ``HTTPDigestAuth`` of requests. It keeps its state
for each greenlet, and the site would refuse the first request of each greenlet: so its state is set
before each call. The library's cookies are in a jar of ``http.cookiejar``, with our limits in its
policy.
"""

from __future__ import annotations

import http.cookiejar
from collections.abc import Iterable
from email.message import Message
from http.cookiejar import CookieJar, DefaultCookiePolicy

from requests.auth import HTTPDigestAuth
from requests.cookies import create_cookie

from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import host_of, hostname_of
from greencrawl.schema.records import Fetched
from greencrawl.worker.auth.base import Cookie
from greencrawl.worker.auth.cookies import MAX_COOKIE
from greencrawl.worker.auth.kinds.digest import Challenge


def answer(challenge: Challenge, username: str, password: str, method: str, target: str) -> str:
    """Return the Authorization header that requests makes; "" for an algorithm unknown to it."""
    auth = HTTPDigestAuth(username, password)
    auth.init_per_thread_state()
    state = auth._thread_local
    state.chal = {"realm": challenge.realm, "nonce": challenge.nonce}
    if challenge.qop:
        state.chal["qop"] = "auth"
    if challenge.named:
        state.chal["algorithm"] = challenge.algorithm + ("-sess" if challenge.session else "")
    if challenge.opaque is not None:
        state.chal["opaque"] = challenge.opaque
    state.last_nonce, state.nonce_count = challenge.nonce, challenge.count
    challenge.count += 1
    made = auth.build_digest_header(method, target) or ""
    return made.encode().decode("latin-1")


class _Request:
    """A request as http.cookiejar asks for it."""

    unverifiable = False

    def __init__(self, url: str) -> None:
        self._url = url
        self.type = url.partition(":")[0]
        self.host = host_of(url)
        self.origin_req_host = hostname_of(self.host)
        self.sent = ""

    def get_full_url(self) -> str:
        return self._url

    def has_header(self, name: str) -> bool:
        return False

    def get_header(self, name: str, default: str = "") -> str:
        return default

    def add_unredirected_header(self, name: str, value: str) -> None:
        self.sent = value


class _Answer:
    """An answer as http.cookiejar asks for it."""

    def __init__(self, cookies: Iterable[str]) -> None:
        self._message = Message()
        for text in cookies:
            self._message["Set-Cookie"] = text

    def info(self) -> Message:
        return self._message


def _key(cookie: http.cookiejar.Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name


class _Policy(DefaultCookiePolicy):
    def __init__(self, jar: LibraryJar) -> None:
        super().__init__(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain)
        self._own = jar

    def set_ok(self, cookie: http.cookiejar.Cookie, request: object) -> bool:
        kept = self._own.kept.get(_key(cookie))
        return (
            bool(super().set_ok(cookie, request))
            and kept is not None
            and len(cookie.name) + len(cookie.value or "") <= MAX_COOKIE
        )


class LibraryJar:
    """:class:`greencrawl.worker.auth.cookies.Jar` around a jar of http.cookiejar."""

    def __init__(self, cookies: Iterable[Cookie], origins: Origins) -> None:
        self._origins = origins
        self._jar = CookieJar(_Policy(self))
        for cookie in cookies:
            made = create_cookie(
                cookie.name,
                cookie.value,
                domain=cookie.domain if cookie.host_only else f".{cookie.domain}",
                path=cookie.path,
                secure=cookie.secure,
                expires=cookie.expires or None,
            )
            made.domain_specified = not cookie.host_only
            self._jar.set_cookie(made)
        self.kept = {_key(cookie): cookie for cookie in self._jar}

    def header(self, url: str) -> str:
        """Return the Cookie header for a canonical URL, "" if no cookie is sent there."""
        if not self._origins.hold(url):
            return ""
        request = _Request(url)
        self._jar.add_cookie_header(request)
        return request.sent

    def take(self, fetched: Fetched) -> list[str]:
        """Apply an answer's changes; return the names of the deleted cookies."""
        request = _Request(fetched.url)
        self._jar.extract_cookies(_Answer(fetched.cookies), request)
        before, self.kept = self.kept, {_key(cookie): cookie for cookie in self._jar}
        return [key[2] for key in before if key not in self.kept]
