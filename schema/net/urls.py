"""The identity of a URL: which URLs name the same resource, host or partition.

A *canonical* URL is the serialisation of the WHATWG URL standard (https://url.spec.whatwg.org,
parsed by ada) without fragment and without credentials. Nothing else is changed: no sorting of
parameters, no lower-casing of paths, no guesses about index pages.

Its *fingerprint* is the same for all spellings that RFC 3986 (6.2.2) calls equivalent: ``%7E`` and
``~``, ``%e9`` and ``%E9`` (:func:`respell`). No request uses that spelling: a task keeps the URL
that was found first.

Credentials (``user:password@``) are dropped rather than refused. So a link that carries them still
leads somewhere, and nobody's password is stored or sent; HTTP Basic is configured apart. A trailing
dot of a host name stays, since servers may tell the two names apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from string import hexdigits

import ada_url
import xxhash

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.suffixes import under_registry, under_suffix
from greencrawl.schema.text.encodings import encode_query, standard_name

MAX_URL = 8192
"""Characters of the longest canonical URL."""

SITEMAP_PLACE = "/sitemap.xml"
"""Where the sitemap of an origin is looked for if nobody names one."""

CANONICALISER = 2
"""Version of the rules in this module that a new frontier gets.

Under version 1 each canonical URL has a fingerprint of its own; under version 2 equivalent
spellings share one.
"""
CANONICALISERS = (1, 2)
"""The versions whose frontiers this program can run."""

_MAX_INPUT = 8 * MAX_URL

_C0_AND_SPACE = "".join(map(chr, range(0x21)))
_SHIFT = re.compile("[\x0e\x0f\x1b]").search  # ISO-2022-JP cannot encode these
_NO_TABS = {0x09: None, 0x0A: None, 0x0D: None}

# References that need no parser: the standard leaves them as they stand and only joins them to the
# base. They have no dot segments, no percent signs in the path, no ports, no numeric hosts. The
# groups are: absolute, under the base's origin, under its folder, and a query for the base's path.
_QUERY = r"\?[A-Za-z0-9&=_~.%+-]*"
_PLAIN = re.compile(
    rf"(?:(https?://(?:[a-z0-9_-]+\.)+[a-z]{{2,}}/[A-Za-z0-9/_~.-]*(?:{_QUERY})?)"
    rf"|(/(?!/)[A-Za-z0-9/_~.-]*(?:{_QUERY})?)"
    rf"|([A-Za-z0-9_~-][A-Za-z0-9/_~.-]*(?:{_QUERY})?)"
    rf"|({_QUERY}))(?:#.*)?\Z",
    re.DOTALL,
).match


# References of another scheme: mailto, javascript.
_FOREIGN = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII).match

# Absolute URLs of the plainest kind, which the standard leaves exactly as they stand.
_CANONICAL = re.compile(
    rf"https?://(?:[a-z0-9_-]+\.)+[a-z]{{2,}}/[A-Za-z0-9/_~.-]*(?:{_QUERY})?\Z"
).match


def canonicalise(url: str, base: str | None = None, encoding: str = "utf-8") -> str:
    """Return the canonical form of ``url``, resolved against ``base`` if one is given.

    Characters beyond ASCII are percent-encoded: in the query in ``encoding``, the encoding of the
    page, and elsewhere in UTF-8. ``encoding`` is a label of the Encoding standard; an unknown label
    means UTF-8. Idempotent. Raises :class:`InvalidUrl` for a URL that is not http(s), cannot be
    parsed, or is longer than ``MAX_URL``.
    """
    if base is None and len(url) <= MAX_URL and "/." not in url and _CANONICAL(url):
        return url
    given = url
    if len(url) > _MAX_INPUT:
        raise InvalidUrl(given, "too long")
    if not url.isascii() or (encoding != "utf-8" and _SHIFT(url)):
        url = _prepare(url, encoding)
    try:
        href = ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError:
        raise InvalidUrl(given, "cannot be parsed") from None
    if not href.startswith(("https://", "http://")):
        raise InvalidUrl(given, "neither http nor https")
    href = href.partition("#")[0]
    if "@" in href:
        href = _without_credentials(href)
    if len(href) > MAX_URL:
        raise InvalidUrl(given, "too long")
    return href


def resolved(references: Iterable[str], base: str, encoding: str = "utf-8") -> list[str]:
    """Run ``canonicalise`` for many references of a page: the same results, several times faster.

    ``base`` is canonical; "" stands for a URL that is not http(s). The base is parsed once. Most
    references are of the plainest kind; they are joined to it without a parser.
    """
    path = base.partition("?")[0]
    starts = ("", "", origin_of(base), path.rpartition("/")[0] + "/", path)
    urls: list[str] = []
    for reference in references:
        found = _PLAIN(reference)
        if found and "/." not in reference:
            kind = found.lastindex or 0
            url = starts[kind] + found[kind]
            urls.append(url if len(url) <= MAX_URL else "")
        elif reference[:1] == "#":
            urls.append(base)
        elif _FOREIGN(reference):
            urls.append("")
        else:
            try:
                urls.append(canonicalise(reference, base, encoding))
            except InvalidUrl:
                urls.append("")
    return urls


def _prepare(url: str, encoding: str) -> str:
    """Make a URL with characters beyond ASCII ready for ada, which knows only UTF-8."""
    # A lone surrogate is no character; the standard's strings have U+FFFD in its place.
    url = url.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if standard_name(encoding) in (None, "utf-8"):
        return url
    url = url.strip(_C0_AND_SPACE).translate(_NO_TABS)
    rest = url.partition("#")[0]  # the fragment is dropped anyway
    path, mark, query = rest.partition("?")
    plain = query.isascii() and not _SHIFT(query)
    return path + mark + (query if plain else encode_query(query, encoding))


def _without_credentials(href: str) -> str:
    scheme, _, rest = href.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


# Encoded octets that are unreserved or in lower case. A "%" that encodes nothing may stand before
# such an octet: decoding the octet must not make the "%" encode something. Most URLs have no such
# octet, even in other scripts. The first pattern quickly finds this: it begins with a fixed
# character, which is searched for.
_MAY_BE_RESPELT = re.compile("%(?=[2-7a-f]|.[a-f])").search
_RESPELT = re.compile(
    "%(?<!%%)(?<!%[0-9A-Fa-f]%)(?:[46][1-9A-Fa-f]|[57][0-9Aa]|3[0-9]|2[DdEe]|5[Ff]|7[Ee]"
    "|[0-9A-Fa-f][a-f]|[a-f][0-9A-F])"
)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SPELT = {
    encoded: letter if letter in _UNRESERVED else encoded.upper()
    for encoded in (f"%{high}{low}" for high in hexdigits for low in hexdigits)
    for letter in (chr(int(encoded[1:], 16)),)
}


def respell(canonical: str) -> str:
    """Return the one spelling for all that RFC 3986 (6.2.2) calls equivalent to this one.

    Unreserved characters are not encoded, hexadecimal digits are in upper case. Idempotent.
    """
    if "%" not in canonical or not _MAY_BE_RESPELT(canonical):
        return canonical
    return _RESPELT.sub(lambda found: _SPELT[found[0]], canonical)


def fingerprint(canonical: str, seed: int = 0, version: int = CANONICALISER) -> int:
    """Return the signed 64-bit XXH3 of a canonical URL, under the frontier's secret ``seed``.

    ``version`` is the version of the frontier's rules; see :data:`CANONICALISER`.
    """
    if "%" in canonical and version > 1:
        canonical = respell(canonical)
    return signed(xxhash.xxh3_64_intdigest(canonical.encode(), seed))


def signed(digest: int) -> int:
    """Return an unsigned number of 64 bits as a fingerprint."""
    return digest - (1 << 64) if digest >> 63 else digest


def origin_of(canonical: str) -> str:
    """Return the ``scheme://host[:port]`` of a canonical URL."""
    return canonical[: canonical.index("/", 8)]


def host_of(canonical: str) -> str:
    """Return the unit of politeness: the host name, with ``:port`` unless it is 80 or 443."""
    start = 8 if canonical[4] == "s" else 7
    host = canonical[start : canonical.index("/", start)]
    return host.rpartition(":")[0] if host.endswith((":80", ":443")) else host


def task_path(canonical: str) -> str:
    """Return a canonical URL without its host: a letter for its origin, then path and query.

    "h" and "s" are http and https on the port that ``host_of`` implies. The rare "H" is http on
    port 443, and "S" is https on port 80: ``host_of`` does not tell these apart.
    """
    secure = canonical[4] == "s"
    start = 8 if secure else 7
    end = canonical.index("/", start)
    odd = canonical.endswith((":80", ":443"), start, end)
    letter = ("S" if secure else "H") if odd else ("s" if secure else "h")
    return letter + canonical[end:]


_ORIGINS = {
    "h": ("http://", ""),
    "s": ("https://", ""),
    "H": ("http://", ":443"),
    "S": ("https://", ":80"),
}


def task_url(host: str, path: str) -> str:
    """Return the canonical URL with this ``host_of`` and this ``task_path``."""
    scheme, port = _ORIGINS[path[0]]
    return f"{scheme}{host}{port}{path[1:]}"


def hostname_of(host: str) -> str:
    """Return the name in a host that ``host_of`` wrote, without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and not port.endswith("]") else host


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """Return the registrable domain of a host, one label under a suffix that a registry runs.

    The port is ignored. An address, a bare suffix, or a name under no known suffix is its own
    domain.
    """
    name = hostname_of(host)
    return under_registry(name) or name


@lru_cache(maxsize=65_536)
def site_of(host: str) -> str:
    """Return the domain like :func:`registrable_domain`, or under a private suffix (github.io).

    It separates what people see as different sites: ``alice.github.io`` is not ``bob.github.io``.
    """
    name = hostname_of(host)
    return under_suffix(name) or name


@lru_cache(maxsize=65_536)
def partition_of(host: str, partitions: int) -> int:
    """Return which of ``partitions`` holds everything about the registrable domain of ``host``."""
    return xxhash.xxh3_64_intdigest(registrable_domain(host).encode()) % partitions
