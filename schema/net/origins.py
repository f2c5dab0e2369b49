"""Origins as people name them for an entry of ``auth``, and URLs measured against them.

``example.org`` is https on its standard port, ``example.org:8443`` is https on that port, and
``*.example.org`` is every host below (not ``example.org`` itself). ``http://…`` has to be written
out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.suffixes import is_suffix
from greencrawl.schema.net.urls import canonicalise, host_of, hostname_of, origin_of

_ADDRESS = re.compile(r"\[.*\]|[\d.]+")
_LEADS = re.compile(r"/|https?:", re.IGNORECASE)


class _Named(NamedTuple):
    """A parsed pattern. ``rest`` is host and port as a canonical URL has them."""

    scheme: str
    below: bool
    rest: str


class Origins:
    """A set of origins. Raises ValueError for a wrong pattern; :func:`problem` says why."""

    def __init__(self, patterns: Sequence[str]) -> None:
        named = [_read(pattern) for pattern in patterns]
        self._exact = frozenset(f"{n.scheme}://{n.rest}" for n in named if not n.below)
        self._below = tuple((f"{n.scheme}://", f".{n.rest}") for n in named if n.below)

    def hold(self, url: str) -> bool:
        """Return whether the origin of a canonical URL is in the set."""
        origin = url[: url.index("/", 8)]
        if origin in self._exact:
            return True
        return any(origin.startswith(s) and origin.endswith(end) for s, end in self._below)


def problem(pattern: str) -> str | None:
    """Say what is wrong with a pattern, for the person who wrote it; None if nothing is."""
    try:
        _read(pattern)
    except ValueError as error:
        return str(error)
    return None


def _read(pattern: str) -> _Named:
    scheme, colon, rest = pattern.partition("://")
    if not colon:
        scheme, rest = "https", pattern
    below = rest.startswith("*.")
    name = rest.removeprefix("*.")
    if any(char in name for char in "*@#?\\") or name != name.strip():
        raise ValueError(f"{pattern!r} is no origin: give a host, with `*.` before it, and a port")
    try:
        url = canonicalise(f"{scheme}://{name}")
    except InvalidUrl as error:
        raise ValueError(f"{pattern!r} is no origin ({error.reason})") from None
    origin = origin_of(url)
    if url != f"{origin}/":
        raise ValueError(f"{pattern!r} is no origin: without a path")
    host = hostname_of(host_of(url))
    if below and _ADDRESS.fullmatch(host):
        raise ValueError(f"{pattern!r}: nothing is below an address")
    if below and is_suffix(host):
        raise ValueError(f"{pattern!r} would name everybody's hosts under {host}")
    scheme, _, rest = origin.partition("://")
    return _Named(scheme, below, rest)


def same_page(url: str, login_url: str) -> bool:
    """Return whether the canonical ``url`` is the page at ``login_url``; its query may say more.

    A site may add a parameter that says where to go on. The parameters of ``login_url`` itself
    (``/?page=login``) must be there. A parameter of ``login_url`` that says where to go on
    (``?next=/start``, as a browser shows it) may have another value.
    """
    path, _, query = url.partition("?")
    login_path, _, login_query = login_url.partition("?")
    if path.rstrip("/") != login_path.rstrip("/"):
        return False
    if not login_query:
        return True
    given = parse_qsl(query, keep_blank_values=True)
    wanted = parse_qsl(login_query, keep_blank_values=True)
    names = {name for name, _ in given}
    return all(
        pair in given or (pair[0] in names and _LEADS.match(pair[1]) is not None) for pair in wanted
    )


def is_root(url: str) -> bool:
    """Return whether a canonical URL is that of a site's start page."""
    return url == f"{origin_of(url)}/"
