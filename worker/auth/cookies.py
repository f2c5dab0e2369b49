"""Cookies of a login (RFC 6265): which are sent with a URL, and how later answers change them.

Only the login's cookies are kept; others that a site sets during the crawl are ignored. They are
sent only to the entry's origins, whatever their domain says.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from requests.cookies import RequestsCookieJar

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.suffixes import is_suffix
from greencrawl.schema.net.urls import host_of, hostname_of, origin_of
from greencrawl.schema.records import Fetched
from greencrawl.worker.auth.base import Cookie, Grant, LoginRefused

_ORIGINS = 10_000
_GRANTS = 4
_SIGNS = 10_000
_JUST_MADE_MS = 120_000
MAX_COOKIE = 4096
"""The name and value of a cookie may have this many characters; browsers accept no more (RFC
6265bis, 5.6)."""
MAX_COOKIES = 300
MAX_COOKIES_CHARACTERS = 65_536
"""All cookies of a login together may have this many characters: no request could carry more, and
later answers may lengthen them."""
_DIGITS = 15
"""At most this many digits of a Max-Age are read: more would be beyond any clock."""

_SENDABLE = re.compile(r"[\x20-\x7e\x80-\xff]*")

_Key = tuple[str, str, str]


class _Sent(NamedTuple):
    """The cookies of an origin as (path, name=value), and until when they may be sent like this."""

    pairs: tuple[tuple[str, str], ...]
    everywhere: str
    """The whole header if every cookie has the path "/"; otherwise ""."""
    until: float


class Jar:
    """The cookies of one grant. ``clock`` returns seconds since 1970."""

    def __init__(
        self,
        cookies: Iterable[Cookie],
        origins: Origins,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._origins = origins
        self._clock = clock
        self._cookies = {_key(cookie): cookie for cookie in cookies}
        self._sent: dict[str, _Sent] = {}

    def cookies(self) -> list[Cookie]:
        """Return the present cookies, without those that an answer has deleted."""
        return list(self._cookies.values())

    def header(self, url: str) -> str:
        """Return the Cookie header for a canonical URL, "" if no cookie is sent there."""
        origin = url[: url.index("/", 8)]
        sent = self._sent.get(origin)
        if sent is None or self._clock() >= sent.until:
            sent = self._sent_to(origin)
        if sent.everywhere or not sent.pairs:
            return sent.everywhere
        path = url[len(origin) :].partition("?")[0]
        return "; ".join(pair for below, pair in sent.pairs if _path_matches(path, below))

    def take(self, fetched: Fetched) -> list[str]:
        """Apply an answer's changes to our cookies; return the names of those it deleted."""
        deleted = []
        for text in fetched.cookies:
            cookie = read_cookie(text, fetched.url, self._clock())
            kept = None if cookie is None else self._cookies.get(_key(cookie))
            if cookie is None or kept is None or cookie == kept:
                continue
            if kept.secure and not fetched.url.startswith("https:"):
                continue  # an answer without TLS may not replace it (RFC 6265bis, 5.7)
            if cookie.expires and cookie.expires <= self._clock():
                del self._cookies[_key(cookie)]
                deleted.append(cookie.name)
            else:
                self._cookies[_key(cookie)] = cookie
            self._sent.clear()
        return deleted

    def _sent_to(self, origin: str) -> _Sent:
        url = f"{origin}/"
        host = hostname_of(host_of(url))
        now = self._clock()
        going = [
            cookie
            for cookie in self._cookies.values()
            if _domain_matches(host, cookie)
            and (origin.startswith("https:") or not cookie.secure)
            and (not cookie.expires or cookie.expires > now)
        ]
        if not self._origins.hold(url):
            going = []
        going.sort(key=lambda cookie: -len(cookie.path))  # RFC 6265, section 5.4
        pairs = tuple((cookie.path, f"{cookie.name}={cookie.value}") for cookie in going)
        everywhere = "; ".join(pair for _, pair in pairs)
        if any(path != "/" for path, _ in pairs):
            everywhere = ""
        until = min((cookie.expires for cookie in going if cookie.expires), default=math.inf)
        if len(self._sent) >= _ORIGINS:
            self._sent.clear()
        sent = self._sent[origin] = _Sent(pairs, everywhere, until)
        return sent


class CookieStore:
    """The jars of an entry's grants in this process: several may be in use at once.

    An answer's changes are also put into the grant, for the caller that keeps it.
    """

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._jars: dict[tuple[int, int], Jar] = {}
        self._signs = Signs()

    def prove(self, url: str, headers: Mapping[str, str], grant: Grant | None) -> dict[str, str]:
        """Return ``headers`` with what the grant adds for ``url``: nothing for other origins."""
        if grant is None or not self._origins.hold(url):
            return dict(headers)
        cookie = self._jar(grant).header(url)
        return {**headers, **grant.headers, **({"Cookie": cookie} if cookie else {})}

    def lost(self, fetched: Fetched, grant: Grant | None) -> bool:
        """Apply an answer's changes; return True if it deleted a cookie that the login set."""
        if grant is None or not fetched.cookies or not self._origins.hold(fetched.url):
            return False
        jar = self._jar(grant)
        deleted = jar.take(fetched)
        grant.cookies = jar.cookies()
        names = grant.token.get("login")
        return any(
            self._signs.hold(f"cookie {name}", fetched.url, grant)
            for name in deleted
            if names is None or name in names
        )

    def _jar(self, grant: Grant) -> Jar:
        key = (grant.generation, grant.made_ms)
        jar = self._jars.get(key)
        if jar is None:
            while len(self._jars) >= _GRANTS:
                del self._jars[next(iter(self._jars))]
            jar = self._jars[key] = Jar(grant.cookies, self._origins)
        return jar


class Signs:
    """Signs of a logout that may be wrong: a site also deletes a cookie that shows a message once.

    If a URL shows a sign again right after a new login, it shows the sign to everybody. From then
    on this process ignores the sign.
    """

    def __init__(self, *, clock_ms: Callable[[], int] = epoch_ms) -> None:
        self._clock_ms = clock_ms
        self._seen: dict[tuple[str, str], int] = {}
        self._void: set[str] = set()

    def hold(self, sign: str, url: str, grant: Grant) -> bool:
        """Return whether ``sign``, which the answer to ``url`` shows, means that we are logged
        out."""
        if sign in self._void:
            return False
        before = self._seen.get((sign, url), grant.generation)
        if before < grant.generation and self._clock_ms() - grant.made_ms < _JUST_MADE_MS:
            self._void.add(sign)
            return False
        if len(self._seen) >= _SIGNS:
            self._seen.clear()
        self._seen[sign, url] = grant.generation
        return True


def read_cookie(text: str, url: str, now: float) -> Cookie | None:
    """Parse the value of a Set-Cookie header (RFC 6265, section 5.2) of an answer from ``url``.

    None for a value that no browser would accept. An ``expires`` in the past deletes the cookie; it
    is never 0 then.
    """
    pair, _, rest = text.partition(";")
    name, equals, value = pair.partition("=")
    name, value = name.strip(), value.strip()
    if len(name) + len(value) > MAX_COOKIE:
        return None
    if not equals or not name or not _SENDABLE.fullmatch(name + value):
        return None
    host = hostname_of(host_of(url))
    domain, host_only, path, secure = host, True, _default_path(url), False
    expires: float | None = None
    lasts: float | None = None
    for attribute in rest.split(";"):
        key, _, given = attribute.partition("=")
        key, given = key.strip().lower(), given.strip()
        if key == "domain" and given.strip("."):
            domain, host_only = given.removeprefix(".").lower(), False
        elif key == "path":
            path = given if given.startswith("/") else _default_path(url)
        elif key == "secure":
            secure = True
        elif key == "expires":
            expires = _moment(given)
        elif key == "max-age" and given.removeprefix("-").isdecimal() and given.isascii():
            lasts = 0 if given.startswith("-") else int(given[:_DIGITS])
    if not host_only and host != domain and not _below(host, domain):
        return None
    if lasts is not None:
        expires = now + lasts
    return Cookie(
        name,
        value,
        domain,
        path,
        secure=secure,
        host_only=host_only,
        expires=0 if expires is None else max(int(expires), 1),
    )


def _moment(date: str) -> float | None:
    """Return the seconds since 1970 of a date in a cookie, None if it is invalid."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def collected(jar: RequestsCookieJar) -> list[Cookie]:
    """Return a session's cookies after a login, as far as a header can carry them.

    Raises LoginRefused if there are more than any request could carry.
    """
    found = [
        Cookie(
            cookie.name,
            cookie.value or "",
            domain,
            cookie.path or "/",
            secure=bool(cookie.secure),
            host_only=not cookie.domain_specified,
            expires=int(cookie.expires or 0),
        )
        for cookie in jar
        if _SENDABLE.fullmatch(f"{cookie.name}={cookie.value or ''}")
        if len(cookie.name) + len(cookie.value or "") <= MAX_COOKIE
        for domain in _domains(cookie.domain)
        # Python's jar accepts a cookie for a public suffix
        if not (cookie.domain_specified and is_suffix(domain))
    ]
    size = sum(len(cookie.name) + len(cookie.value) for cookie in found)
    if len(found) > MAX_COOKIES or size > MAX_COOKIES_CHARACTERS:
        raise LoginRefused(f"the site set {len(found)} cookies of {size} characters: too many")
    return found


def _domains(domain: str) -> tuple[str, ...]:
    """Return the domains that a cookie in Python's jar may mean.

    The jar adds ``.local`` to a host name without a dot: ``intranet`` becomes ``intranet.local``,
    which may be the name of another host. So the cookie is kept for both names, and the origins of
    the entry decide where it is sent.
    """
    name = domain.removeprefix(".").lower()
    plain = name.removesuffix(".local")
    return (name,) if plain == name or "." in plain else (name, plain)


def _key(cookie: Cookie) -> _Key:
    return cookie.name, cookie.domain, cookie.path


def _domain_matches(host: str, cookie: Cookie) -> bool:
    """RFC 6265, section 5.1.3."""
    return host == cookie.domain or (not cookie.host_only and _below(host, cookie.domain))


def _below(host: str, domain: str) -> bool:
    return host.endswith(f".{domain}") and not host.rpartition(".")[2].isdecimal()


def _path_matches(path: str, below: str) -> bool:
    """RFC 6265, section 5.1.4."""
    if not path.startswith(below):
        return False
    return len(path) == len(below) or below.endswith("/") or path[len(below)] == "/"


def _default_path(url: str) -> str:
    path = url[len(origin_of(url)) :].partition("?")[0]
    return path.rpartition("/")[0] or "/"
