"""Ids of sessions in URLs, by their names: URLs that are equal but for them are one page."""

from __future__ import annotations

import re

_SUSPECT = re.compile(
    r"[;(?&](?:[a-z_.]*s|cf)(?:ess|id|token|=|\()|%28s|zenid=", re.IGNORECASE
).search
_IN_PATH = re.compile(
    r";(?:[a-z_]*sess(?:ion)?_?(?:id|key)?|[a-z_]*sid)=[^/?;]*"
    r"|/(?:\(|%28)(?:[ASFX](?:\(|%28)[A-Za-z0-9_-]+(?:\)|%29))+(?:\)|%29)(?=/)",
    re.IGNORECASE,
).sub
_SURE = re.compile(
    r"phpsessid|jsessionid|asp\.net_sessionid|aspsessionid\w*|cfid|cftoken|oscsid|zenid|xtcsid",
    re.IGNORECASE,
).fullmatch
_LIKELY = re.compile(r"\w*sess(?:ion)?_?(?:id|key|hash)?|\w{0,4}sid", re.IGNORECASE).fullmatch
_ID = re.compile(r"[\w.,!-]{4,}").fullmatch
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.,!-]{16,}").fullmatch
_HEX = re.compile(r"[0-9a-fA-F]{32}").fullmatch


def plain(url: str) -> str:
    """A URL without ids of sessions; itself if it has none.

    Some names are of nothing else; others count if their value is random and long.
    """
    if "?" not in url and ";" not in url and "(" not in url and "%28" not in url:
        return url  # as most
    if _SUSPECT(url) is None:
        return url
    start, mark, query = url.partition("?")
    start = _IN_PATH("", start)
    if not mark:
        return start
    rest = "&".join(part for part in query.split("&") if not _is_session(part))
    return f"{start}?{rest}" if rest else start


def _is_session(part: str) -> bool:
    name, _, value = part.partition("=")
    if _SURE(name):
        return _ID(value) is not None
    if _LIKELY(name):
        return _RANDOM(value) is not None
    return name in ("s", "S") and _HEX(value) is not None
