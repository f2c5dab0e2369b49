"""The meaning of queries of URLs, by names of parameters; and folders that repeat themselves.

The known names are those of session ids, orders, searches and pages of lists. URLs that differ only
in the id of a session are one page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

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
_DIGITS = re.compile(r"\d+")
_LONG_NAME = 40
_LOOKED = 12
"""Folders of a path that are read."""

_SHOWN_NAMES = """
    asc ascending currency desc descending dir direction display format layout limit mode oby odir
    ord order order_by order_dir orderby orderdir ordering page_size pagesize per_page perpage
    print printable product_list_dir product_list_limit product_list_mode product_list_order
    replytocom sd share show sk sort sort_by sort_dir sort_order sortby sortdir sortorder st view
    viewmode
"""
SHOWN = frozenset(_SHOWN_NAMES.split())
"""Parameters that usually only say how a page is shown."""

SEARCHES = frozenset("keyword keywords q query s search search_query searchword".split())  # noqa: SIM905
"""Parameters by which sites are searched."""

LIST_PAGES = frozenset("from offset p page paged pageno pg pn skip start".split())  # noqa: SIM905
"""Parameters that tell the pages of a list apart."""


def plain(url: str) -> str:
    """Return a URL without ids of sessions; the same URL if it has none.

    Some names always mean one; others count if their value is random and long.
    """
    if "?" not in url and ";" not in url and "(" not in url and "%28" not in url:
        return url  # nearly all URLs
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


def params_of(query: str) -> dict[str, str]:
    """Return the values of a query by name; a part in brackets does not belong to a name."""
    found: dict[str, str] = {}
    for part in query.replace(";", "&").split("&") if query else ():
        name, _, value = part.partition("=")
        if "[" in name:
            name = name[: name.index("[")]
        elif "%5" in name:
            name = re.split("%5[Bb]", name)[0]
        found[_DIGITS.sub("{n}", name)[:_LONG_NAME]] = value
    return found


def without(url: str, names: Iterable[str]) -> str:
    """Return a URL without the parameters ``names`` of its query."""
    start, _, query = url.partition("?")
    left = set(names)
    rest = "&".join(
        part for part in query.split("&") if part and next(iter(params_of(part))) not in left
    )
    return f"{start}?{rest}" if rest else start


def view_of(name: str) -> str:
    """Return the word at the end of a shape that names a view of what is before it; "" if none
    does."""
    folder, _, word = name.rstrip("/").rpartition("/")
    return word if word.isalpha() and folder.count("/") > 2 else ""


def query_of(name: str) -> str:
    """Return a key for the sum of all shapes of a host with the same query, or the same word at
    their end.

    Return "" if pages of a list may differ by the query.
    """
    path, mark, query = name.partition("?")
    if not mark:
        view = view_of(path)
        return f"*/{view}" if view else ""
    if any(part.partition("=")[0] in LIST_PAGES for part in query.split("&")):
        return ""
    return f"*?{query}"


def repeated(words: list[str]) -> bool:
    """Return whether a segment comes three times, or several segments come twice in a row:
    /a/b/a/b."""
    if len(words) < 3:
        return False
    if max(Counter(words).values()) > 2:
        return True
    words = words[:_LOOKED]
    return any(
        words[i : i + size] == words[i + size : i + 2 * size]
        for size in range(2, len(words) // 2 + 1)
        for i in range(len(words) - 2 * size + 1)
    )
