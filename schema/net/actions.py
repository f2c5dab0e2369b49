"""Links that log out or change something when somebody who is logged in follows them.

Here by their URL; ``greencrawl.schema.net.action_texts`` does it by their text. They are told by
words in many languages (``action_words.toml``), and by what known software writes into
its URLs (``action_links.toml``). A word counts only as a whole: as a segment of the path, a key or
a value of the query, or all of a link's text. What a word does decides how much it takes beside
it. One that logs out needs nothing; one that deletes needs something to delete, or an article
titled "Delete" would be lost: a number in the URL, say.

Nothing is read before a crawl that logs in asks. A URL without any of the words costs a split and
one look-up of its pieces together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from greencrawl.schema.net.action_data import (
    CONTENT,
    MANUALS,
    TITLES,
    Action,
    Software,
    cases,
    languages,
    phrases_of,
    software,
    spellings,
    words_of,
)

_TABLE = bytes.maketrans(b"?&=;.!:ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"///////abcdefghijklmnopqrstuvwxyz")


def _split(url: str) -> list[bytes]:
    """A URL's pieces in lower case. Half of what a regular expression takes: most URLs need it."""
    pieces = url.encode().translate(_TABLE)
    return (pieces.replace(b"%2f", b"/") if b"%2f" in pieces else pieces).split(b"/")


_TARGETS = words_of(
    """
    next return returnto returnurl return_to redirect redirect_to redirecturl redir url uri
    back backurl from ref referer referrer goto continue dest destination target to
    came_from rurl forward success
    """
)
"""Keys whose values are where to go on."""
_COMMANDS = words_of(
    """
    action act ac a do op oper operation mod mode m cmd command task func function fn f
    method event e go job step what route r controller c case perform exec process opt
    option doaction submit button handler
    """
)
"""Keys whose values say what is to be done."""
_DATED = words_of(
    """
    blog blogs news archive archives story stories article articles press
    """
)
_OWN = words_of(
    """
    account accounts profile me my user users cart basket session settings self all bag
    wishlist membership subscription
    """
)
"""What there is one of for who is logged in: to delete it takes no number."""
_ALONE = frozenset(
    {"checkout", "check out", "add to cart", "add to basket", "place order", "unsubscribe"}
    | {"unfollow", "deactivate", "revoke", "opt out", "close account", "delete account"}
    | {"add to wishlist", "proceed to checkout", "leave group", "mark all read"}
)
"""English words that do something without saying to what."""
_PROGRAMS = words_of(
    """
    php do action aspx asp jsp jspa jsf cgi pl cfm py ashx fcgi dll
    """
)
_IDENTITY = re.compile(
    r"\d+(?:[-_.].*)?|(?=[a-f-]*\d)[0-9a-f-]{8,}|[a-z]{1,3}[-_]?\d+|.*[-_]\d+|\d.*\d.*"
).fullmatch
_YEAR = re.compile(r"(?:19|20)\d\d").fullmatch
_MONTH = re.compile(r"\d\d?").fullmatch
_LOCALE = re.compile(r"[a-z]{2}(?:[-_][a-z]{2,4})?").fullmatch


class _Urls(NamedTuple):
    words: dict[str, Action]
    """Whole pieces of URLs in lower case, in all encodings."""
    keys: frozenset[bytes]
    """Those, and what else has to be looked at."""
    paths: dict[str, list[Software]]
    """Last segments of the paths of software, percent-encoded parts decoded."""
    queries: dict[str, list[Software]]
    """Parameters, "key" or "key=value"."""


@cache
def _urls() -> _Urls:
    words: dict[str, Action] = {}
    for language in languages():
        for word, action in phrases_of(language):
            encodings = language.encodings if word == action.word else ()
            for piece in _pieces(word, encodings):
                words.setdefault(piece, action)
        for word, _ in language.words["delete"]:
            action = Action(word, "delete", language.name)
            for thing in language.objects:
                if thing.isascii() and word.isascii():  # post_delete
                    for piece in _pieces(f"{thing} {word}", ()):
                        words.setdefault(piece, action)
    for prefix in ("do", "user", "member", "account", "admin", "auth", "perform", "session"):
        for word in ("logout", "logoff", "signout", "signoff"):
            for piece in (f"{prefix}{word}", f"{prefix}-{word}", f"{prefix}_{word}"):
                words.setdefault(piece, Action(piece, "log_out", "English"))
    keys = {word.encode() for word in words}
    paths: dict[str, list[Software]] = {}
    queries: dict[str, list[Software]] = {}
    for one in software():
        for parameter in one.query:
            queries.setdefault(parameter, []).append(one)
            name, _, value = parameter.partition("=")
            keys.update(_split(_encoded(name)))
            keys.update(_split(_encoded(value))[-1:])
        for path in one.path:
            last = path.rpartition("/")[2]
            paths.setdefault(last, []).append(one)
            if not one.query:
                pieces = [p for p in _split(_encoded(last)) if p.decode() not in _PROGRAMS]
                keys.update(pieces[-1:])
    return _Urls(words, frozenset(keys - {b"", b"1", b"title"}), paths, queries)


def _encoded(text: str) -> str:
    return quote(text, safe="@%/.:!=").lower()


def _pieces(word: str, encodings: Iterable[str]) -> Iterator[str]:
    """A word as URLs write it, in lower case."""
    for spelled in spellings(word):
        parts = spelled.split(" ")
        for joint in ("-", "_", "+", " ", "") if len(parts) > 1 else ("",):
            for text in cases(joint.join(parts)):
                yield quote(text, safe="+'()*!~·").lower()
                if "'" in text:
                    yield quote(text, safe="+").lower()
                for encoding in () if text.isascii() else encodings:
                    try:
                        yield quote(text.encode(encoding), safe="+").lower()
                    except UnicodeEncodeError:
                        continue


def by_url(tail: str) -> tuple[Action, str] | None:
    """What the path and query of a canonical URL do, and where that stands; None if nothing."""
    if _urls().keys.isdisjoint(_split(tail)):
        return None
    path, _, query = tail.lower().partition("?")
    parameters = [
        (key, value) for key, _, value in (p.partition("=") for p in re.split("[&;]", query)) if key
    ]
    path, *rest = path.split(";")  # /index.php/action=logout, and ;jsessionid=
    parameters += [(key, value) for key, _, value in (p.partition("=") for p in rest) if value]
    segments = []
    for segment in filter(None, path.split("/")):
        key, mark, value = segment.partition("=")
        if mark:
            parameters.append((key, value))
        else:
            segments.append(segment)
    if (action := _of_query(parameters)) is not None:
        return action, "its query"
    if (action := _of_path(segments, parameters)) is not None:
        return action, "its path"
    action = _of_software(segments, parameters)
    return None if action is None else (action, "its URL")


def _of_software(segments: list[str], parameters: list[tuple[str, str]]) -> Action | None:
    urls = _urls()
    plain = [unquote(segment) for segment in segments]
    for key, value in parameters:
        for text in (f"{key}={unquote(value)}", key):
            for one in urls.queries.get(text, ()):
                if not one.path or _ends(plain, one.path):
                    return Action(text, one.kind, one.software)
    for one in urls.paths.get(plain[-1], ()) if plain else ():
        if not one.query and _ends(plain, one.path):
            return Action(plain[-1], one.kind, one.software)
    return None


def _ends(segments: list[str], paths: Iterable[str]) -> bool:
    path = "/" + "/".join(segments)
    return any(path.endswith("/" + end) for end in paths)


def _of_query(parameters: list[tuple[str, str]]) -> Action | None:
    words = _urls().words
    for key, value in parameters:
        if key in _TARGETS:
            continue
        action = words.get(value)
        if action is not None and (
            key in _COMMANDS or key[0] == "%" or (action.kind == "log_out" and key not in TITLES)
        ):
            return action
        if action is None and value and key not in TITLES - {"q"}:  # a route: site/logout
            *route, last = re.split(r"%2f|[/.:]", value)
            action = words.get(last) if route else None
            if action is not None and (action.kind == "log_out" or key in _COMMANDS):
                return action
        action = words.get(key)
        if action is not None and value not in ("0", "false", "no"):
            return action
    return None


def _of_path(segments: list[str], parameters: list[tuple[str, str]]) -> Action | None:
    words = _urls().words
    for at, segment in enumerate(segments):
        if ":" in segment:  # "Category:Delete" is a page; software's own names are known apart
            continue
        pieces = re.split("[.!]", segment)
        for piece in pieces:
            action = words.get(piece)
            if action is not None and _does(action, segments, at, pieces, parameters):
                return action
    return None


def _does(
    action: Action,
    segments: list[str],
    at: int,
    pieces: list[str],
    parameters: list[tuple[str, str]],
) -> bool:
    """Whether a segment that is a word's does what the word says, rather than being about it."""
    if not _PROGRAMS.isdisjoint(pieces[1:]):
        return True
    before = segments[at - 1] if at else ""
    after = segments[at + 1] if at + 1 < len(segments) else ""
    if not MANUALS.isdisjoint(segments[:at]) and not parameters:
        return False
    if action.kind == "log_out":
        return before not in CONTENT or bool(parameters)
    if before in ("tag", "tags", "tagged", "wiki", "w", "t", "term", "dictionary", "search"):
        return False
    if any(value for key, value in parameters if key not in TITLES | _TARGETS):
        return True
    if after and _IDENTITY(after):
        return True
    if before and _IDENTITY(before):
        return not _is_date(segments[:at])
    if before in CONTENT:
        return False
    if before in _OWN or action.word.lower() in _ALONE:
        return True
    first = 1 if segments and _LOCALE(segments[0]) else 0
    # /members/ann/delete
    return not after and at - first >= 2 and CONTENT.isdisjoint(segments[at - 1 : at])


def _is_date(before: list[str]) -> bool:
    """Whether segments end with a year or a month that a blog has in its URLs."""
    if _YEAR(before[-1]):
        return len(before) == 1 or before[-2] in _DATED
    dates = [segment for segment in before[-3:] if _MONTH(segment) or _YEAR(segment)]
    return len(dates) >= 2 and any(_YEAR(segment) for segment in dates)
