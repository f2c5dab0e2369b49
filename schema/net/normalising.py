"""Rules that a crawl may choose, by which different URLs count as one.

Each rule may be wrong on some site. :func:`greencrawl.schema.net.urls.canonicalise` changes nothing
that a server could tell apart. The rules here go further, and the URL that they make is requested.
docs/library.md lists the rules with their risks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import get_args

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.urls import MAX_URL, canonicalise, respell
from greencrawl.schema.records.crawl import CrawlOptions, NormaliseRule

Rewrite = Callable[[str], str]

RULES: tuple[str, ...] = get_args(NormaliseRule)


def normalise(url: str, rules: Iterable[str]) -> str:
    """Return the canonical form of ``url``, rewritten by ``rules``; the order of the rules is free.

    Idempotent. Raises InvalidUrl like :func:`canonicalise`, and InvalidConfig for an unknown rule.
    """
    return rewriter(frozenset(rules))(canonicalise(url))


def queued_url(options: CrawlOptions, url: str) -> str:
    """Return the URL that is queued for ``url``: the canonical form, rewritten by the crawl's
    rules.

    The URL of a source is not rewritten: the source is recognised by this URL. Raises InvalidUrl.
    """
    found = canonicalise(url)
    if not options.normalise or any(canonicalise(one.url) == found for one in options.sources):
        return found
    return rewriter(frozenset(options.normalise))(found)


@lru_cache(maxsize=256)
def rewriter(rules: frozenset[str]) -> Rewrite:
    """Return a function that rewrites canonical URLs by ``rules``.

    Raises InvalidConfig for an unknown rule.
    """
    unknown = sorted(rules.difference(RULES))
    if unknown:
        why = f"there is no rule {unknown[0][:40]!r}; there are {', '.join(RULES)}"
        raise InvalidConfig([("normalise", why)])
    steps = [step for name, step in _STEPS if name in rules]

    def rewritten(url: str) -> str:
        found = url
        for step in steps:
            found = step(found)
        return found if len(found) <= MAX_URL else url

    return rewritten


# -- the whole URL

# A "%" that encodes nothing, and characters that RFC 3986 allows in no path and no query.
_NO_URL = re.compile(r"%(?![0-9A-Fa-f]{2})|[^!#-;=?-Z_a-z~]")
_PLACE = re.compile(r"https?://[^/]*").match


def _percent(url: str) -> str:
    found = _PLACE(url)
    assert found
    rest = _NO_URL.sub(lambda one: f"%{ord(one[0]):02X}", url[found.end() :])
    return found[0] + respell(rest)


def _host_dot(url: str) -> str:
    head, slash, rest = url.partition("://")
    host, _, path = rest.partition("/")
    name, colon, port = host.partition(":")
    if not name.endswith(".") or name == ".":
        return url
    return f"{head}{slash}{name[:-1]}{colon}{port}/{path}"


# -- the path

_SLASHES = re.compile(r"(?<!:)/{2,}")  # "/http://…" has a URL in it
_INDEX = re.compile(
    r"/(?:index\.(?:x?html?|shtml|php[3-7]?|aspx?|jsp|cfm|cgi)|default\.(?:html?|aspx?))\Z",
    re.IGNORECASE,
)
_SESSION_PATH = re.compile(
    r";(?:jsessionid|phpsessid|sid)=[^/;]*|/\([A-Z]\([0-9a-z]{24}\)\)(?=/)", re.IGNORECASE
)


def _of_path(change: Rewrite) -> Rewrite:
    def rewrite(url: str) -> str:
        base, mark, query = url.partition("?")
        start = base.index("/", 8)
        return base[:start] + change(base[start:]) + mark + query

    return rewrite


# -- the query

_TRACKING = frozenset([
    "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid",
    "fbclid", "msclkid", "twclid", "ttclid", "igshid", "igsh", "li_fat_id", "yclid", "ysclid",
    "_openstat", "mc_cid", "mc_eid", "_hsenc", "_hsmi", "hsctatracking", "mkt_tok", "oly_anon_id",
    "oly_enc_id", "vero_id", "vero_conv", "wickedid", "rb_clickid", "s_kwcid", "ef_id", "_ga",
    "_gl", "epik", "spm",
])  # fmt: skip
_TRACKING_STARTS = ("utm_", "mtm_", "pk_", "piwik_", "matomo_", "hsa_", "__hs")
_SESSIONS = frozenset([
    "phpsessid", "jsessionid", "sessionid", "session_id", "aspsessionid", "cfid", "cftoken",
    "zenid", "oscsid", "xtcsid",
])  # fmt: skip
_SESSIONS_BY_VALUE = frozenset(["sid", "s", "session", "sess"])
_TOKEN = re.compile(r"(?=[A-Za-z]*[0-9])[0-9A-Za-z]{16,}").fullmatch


def _of_query(change: Callable[[list[str]], list[str]]) -> Rewrite:
    """Apply ``change`` to the parameters between the "&"; without any parameter there is no "?"."""

    def rewrite(url: str) -> str:
        base, mark, query = url.partition("?")
        if not mark:
            return url
        before = query.split("&")
        after = change(before)
        if after == before:
            return url
        return f"{base}?{'&'.join(after)}" if after else base

    return rewrite


def _name(part: str) -> str:
    return part.partition("=")[0].lower()


def _is_tracking(part: str) -> bool:
    name = _name(part)
    return name in _TRACKING or name.startswith(_TRACKING_STARTS)


def _is_session(part: str) -> bool:
    name, _, value = part.partition("=")
    name = name.lower()
    if name in _SESSIONS or name.startswith("aspsessionid"):
        return True
    return name in _SESSIONS_BY_VALUE and _TOKEN(value) is not None


def _without_empty(parts: list[str]) -> list[str]:
    named = [part for part in parts if _name(part)]
    return [part[:-1] if part.find("=") == len(part) - 1 else part for part in named]


def _session_ids(url: str) -> str:
    found = _of_path(lambda path: _SESSION_PATH.sub("", path) or "/")(url)
    if found != url:  # a folder "/..;sid=1" did not look like ".." before
        try:
            found = canonicalise(found)
        except InvalidUrl:
            found = url
    return _of_query(lambda parts: [part for part in parts if not _is_session(part)])(found)


_STEPS: tuple[tuple[NormaliseRule, Rewrite], ...] = (
    ("percent", _percent),
    ("host-dot", _host_dot),
    ("session-ids", _session_ids),
    ("slashes", _of_path(lambda path: _SLASHES.sub("/", path))),
    ("index", _of_path(lambda path: _INDEX.sub("/", path))),
    ("tracking", _of_query(lambda parts: [part for part in parts if not _is_tracking(part)])),
    ("empty", _of_query(_without_empty)),
    ("query-order", _of_query(lambda parts: sorted(parts, key=_name))),
)
"""The order counts: a rule does not find what is percent-encoded, so decoding comes first."""
