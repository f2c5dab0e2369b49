"""The directives of a page to robots: robots meta elements, X-Robots-Tag, and TDMRep in both
places.

Commas, semicolons and blanks separate directives; upper and lower case are equal. In a header, a
name with a colon, such as ``otherbot:``, says for which agent the following directives hold.
Generic directives and directives for our agent hold together, and so do directives of meta elements
and headers: the strictest one counts. TDMRep has its own rule: a meta element counts more than the
header, and the header more than the site's file
(https://www.w3.org/community/reports/tdmrep/CG-FINAL-tdmrep-20240202/, "Processing priority").

At most :data:`MAX_CHARS` characters of a page's headers are read, and as many of its meta elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Directives
from greencrawl.schema.text.declared import policy_url
from greencrawl.worker.extract.sources.headers import relations

MAX_CHARS = 8192
"""At most this many characters of directives are read."""
KEPT = ("noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "noai", "noimageai")
"""Words that are kept, in this order."""
_MEANS = {"none": ("noindex", "nofollow"), **{word: (word,) for word in KEPT}}
_WITH_VALUE = frozenset({"max-snippet", "max-image-preview", "max-video-preview"})
_SHORT = 200
_EVERYBODY = frozenset({"*", "robots"})

_WORD = re.compile(r"([^\s,;:=]+)(?:\s*([:=]))?")
_VALUE = re.compile(r"\s*[^\s,;]*")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES = {
    "z": 0, "gmt": 0, "ut": 0, "utc": 0, "bst": 1, "cet": 1, "cest": 2, "eet": 2, "eest": 3,
    "msk": 3, "jst": 9, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7,
}  # fmt: skip
"""How many hours a zone is ahead of UTC."""
_DATE = re.compile(
    r"\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,?\s*)?"
    r"(?:(?P<day>\d{1,2})[\s-]{1,3}"
    rf"(?P<name>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?,?[\s-]{{1,3}}(?P<year>\d{{4}}|\d\d)"
    r"|(?P<iso>\d{4})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<date>\d\d)(?!\d))"
    r"(?:(?:\s{1,3}|(?P<t>t))(?P<hour>\d{1,2})(?P<colon>(?(t):?|:))(?P<minute>\d\d)"
    r"(?:(?P=colon)(?P<second>\d\d)(?:[.,]\d{1,9})?)?)?"
    rf"(?:\s{{0,3}}(?:(?P<zone>{'|'.join(_ZONES)})(?![a-z0-9])|(?P<sign>[+-])"
    r"(?P<hours>\d\d):?(?P<minutes>\d\d)?))?",
    re.IGNORECASE | re.ASCII,
)
"""RFC 822, RFC 850 or ISO 8601 (also ``20261123T101500Z``), and common variants of them."""


def of_headers(
    headers: Mapping[str, str],
    tags: Sequence[str],
    agent: str,
    site: Directives | None = None,
) -> Directives | None:
    """Return the directives in an answer's headers for ``agent``, None if there are none.

    ``agent`` is a product token in lower case; ``tags`` are the values of X-Robots-Tag, if there
    are several; ``site`` has the directives for this answer in a file of its site.
    """
    tag = headers.get("x-robots-tag")
    said = site
    if "tdm-reservation" in headers or "tdm-policy" in headers:
        said = _reserved(said, headers.get("tdm-reservation"), headers.get("tdm-policy"))
    if tag is not None:
        said = _told(said, tags or (tag,), agent)
    return said


def canonical_of(headers: Mapping[str, str], url: str) -> str:
    """Return the canonical URL in a Link header of the answer to ``url`` (RFC 6596), "" if none."""
    links = headers.get("link")
    if links is None or "canonical" not in links.lower():
        return ""
    for relation in relations(links[:MAX_CHARS]):
        if "canonical" in relation.rel.lower().split():
            try:
                return canonicalise(relation.reference, url)
            except InvalidUrl:
                return ""
    return ""


def with_metas(said: Directives | None, metas: Iterable[tuple[str, str]]) -> Directives | None:
    """Return the directives ``said`` by headers, together with those of meta elements (name in
    lower case, content).

    These meta elements have the names ``robots``, our agent's, ``tdm-reservation`` and
    ``tdm-policy``.
    """
    told: list[str] = []
    tdm: dict[str, str] = {}
    for name, content in metas:
        if name.startswith("tdm-"):
            tdm.setdefault(name, content)
        else:
            told.append(content)
    if tdm:
        said = _reserved(said, tdm.get("tdm-reservation"), tdm.get("tdm-policy"))
    return _told(said, told) if told else said


def _told(
    said: Directives | None, values: Iterable[str], agent: str | None = None
) -> Directives | None:
    """Return ``said`` with the directives in ``values``; with ``agent`` if they may name agents."""
    words: set[str] = set()
    times: list[int] = []
    left = MAX_CHARS
    for value in values:
        value_words, value_times = (_kept if len(value) <= _SHORT else _read)(value[:left], agent)
        words |= value_words
        times += value_times
        left -= len(value)
        if left <= 0:
            break
    if not words and not times:
        return said
    before = said or Directives()
    words.update(before.robots)
    if before.unavailable_after_ms is not None:
        times.append(before.unavailable_after_ms)
    return replace(
        before,
        robots=tuple([word for word in KEPT if word in words]),
        unavailable_after_ms=min(times, default=None),
    )


def _read(text: str, agent: str | None) -> tuple[frozenset[str], tuple[int, ...]]:
    """Return the words and times (Unix milliseconds) of ``text`` that hold for us."""
    words: set[str] = set()
    times: list[int] = []
    ours, at = True, 0
    while found := _WORD.search(text, at):
        at, word = found.end(), found[1].lower()
        if found[2] and word == "unavailable_after":
            date = _DATE.match(text, at)
            if date:
                at = date.end()
                moment = _moment(date)
                if ours and moment is not None:
                    times.append(moment)
        elif found[2] and word in _WITH_VALUE:
            value = _VALUE.match(text, at)
            at = value.end() if value else at
        elif word in _MEANS:
            if ours:
                words.update(_MEANS[word])
        elif found[2] == ":" and agent is not None and not word[0].isdigit():
            ours = word in _EVERYBODY or word == agent
    return frozenset(words), tuple(times)


_kept = lru_cache(maxsize=512)(_read)
"""``_read`` with a cache for short texts: most often all pages of a site say the same."""


def _moment(date: re.Match[str]) -> int | None:
    """Return the Unix milliseconds of a match of :data:`_DATE`, None for an impossible date.

    A date alone means its start, and a time without a zone is in UTC.
    """
    if date["iso"]:
        year, month, day = int(date["iso"]), int(date["month"]), int(date["date"])
    else:
        year, day = int(date["year"]), int(date["day"])
        if len(date["year"]) == 2:
            year += 1900 if year >= 70 else 2000
        month = _MONTHS.index(date["name"].lower()) + 1
    ahead = timedelta(hours=_ZONES[date["zone"].lower()] if date["zone"] else 0)
    if date["sign"]:
        ahead = timedelta(hours=int(date["hours"]), minutes=int(date["minutes"] or 0))
        ahead = -ahead if date["sign"] == "-" else ahead
    hour, minute, second = (int(date[part] or 0) for part in ("hour", "minute", "second"))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - ahead
    except (ValueError, OverflowError):
        return None
    return int(moment.timestamp() * 1000)


def _reserved(
    said: Directives | None, reservation: str | None, policy: str | None
) -> Directives | None:
    """Return ``said`` with TDMRep from a place that counts more; unknown values change nothing."""
    before = said or Directives()
    tdm, where = before.tdm, before.tdm_policy
    parts = {part.strip() for part in (reservation or "")[:MAX_CHARS].split(",")}
    if "1" in parts:
        tdm = "reserved"
    elif parts == {"0"}:
        tdm = "open"
    if policy is not None:
        where = policy_url(policy)
    after = replace(before, tdm=tdm, tdm_policy=where if tdm == "reserved" else "")
    return None if after == Directives() else after
