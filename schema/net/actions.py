"""Links that log out or change something when somebody who is logged in follows them.

This module recognises them by their URL, ``greencrawl.schema.net.action_texts`` by their text. They
show in words of many languages (``action_words.toml``), and in what known software writes into its
URLs (``action_links.toml``). A word counts only as a whole: as a segment of the path, a key or a
value of the query, or all of a link's text. The effect of a word decides what else is needed. A
word that logs out needs nothing else. A word that deletes needs something to delete, such as a
number in the URL; otherwise an article titled "Delete" would be lost.

The data are read when a crawl with a login needs them for the first time. A URL without any of the
words costs a split and one look-up of its pieces together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from greencrawl.schema.net.action_data import (
    CONTENT,
    DOCUMENTS,
    KINDS,
    MANUALS,
    TITLES,
    Action,
    Language,
    Software,
    key_of,
    keys,
    languages,
    software,
    words_of,
)

_PIECES = bytes.maketrans(
    b"?&=;.!:ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"///////abcdefghijklmnopqrstuvwxyz"
)
_encoded_pieces = re.compile("%2f|[/?&=;.!:]", re.IGNORECASE).split

_TARGETS = words_of(
    """
    next return returnto returnurl return_to redirect redirect_to redirecturl redir url uri
    back backurl from ref referer referrer goto continue dest destination target to
    came_from rurl forward success
    """
)
"""Keys whose values are where a site redirects to afterwards."""
_COMMANDS = words_of(
    """
    action act ac a do op oper operation mod mode m cmd command task func function fn f
    method event e go job step what route r controller c case perform exec process opt
    option doaction submit button handler
    """
)
"""Keys whose values name the action."""
_DATED = words_of("blog blogs news archive archives story stories article articles press")
_OWN = words_of(
    """
    account accounts profile me my user users cart basket session settings self all bag
    wishlist membership subscription
    """
)
"""Things that a logged-in user has only one of: deleting them takes no number."""
_NO_OBJECT = words_of(
    """
    checkout addtocart addtobasket placeorder unsubscribe unfollow deactivate revoke optout
    closeaccount deleteaccount addtowishlist proceedtocheckout leavegroup markallread
    """
)
"""Keys: English words for an action that name no object."""
_ACCOUNTS = ("do", "user", "member", "account", "admin", "auth", "perform", "session")
_EXPLAINED = words_of("function method class sql func")
"""First parts of file names that explain a word: function.delete.php."""
_PROGRAMS = words_of("php do action aspx asp jsp jspa cgi pl cfm")
_LONGEST = 300
"""Characters of the longest piece of a URL that may be a word."""
_SHORT = 4
"""Bytes that are valid UTF-8 by chance: two letters in another encoding."""
_IDENTITY = re.compile(
    r"\d+(?:[-_.].*)?|(?=[a-f-]*\d)[0-9a-f-]{8,}|[a-z]{1,3}[-_]?\d+|.*[-_]\d+|\d.*\d.*"
).fullmatch
_YEAR = re.compile(r"(?:19|20)\d\d").fullmatch
_MONTH = re.compile(r"\d\d?").fullmatch
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}").fullmatch
_LOCALE = re.compile(r"[a-z]{2}(?:[-_][a-z]{2,4})?").fullmatch


class _Known(NamedTuple):
    words: dict[str, Action]
    """The key is :func:`key_of` of the word."""
    encoded: tuple[tuple[str, dict[str, Action]], ...]
    """Words beyond ASCII by encoding, for languages whose pages have their own encoding."""
    pieces: frozenset[bytes]
    """ASCII pieces of URLs that have to be looked at."""
    paths: dict[str, list[Software]]
    """The key is the last segment of the path, with percent-encoded parts decoded."""
    queries: dict[str, list[Software]]
    """The key is "key" or "key=value"."""


@cache
def _known() -> _Known:
    words: dict[str, Action] = {}
    encoded: dict[str, dict[str, Action]] = {}
    for language in languages():
        for key, action in _keys(language):
            words.setdefault(key, action)
            if not (key.isascii() and action.word.isascii()):
                for encoding in language.encodings:
                    encoded.setdefault(encoding, {}).setdefault(key, action)
    for word in ("logout", "logoff", "signout", "signoff"):
        for prefix in _ACCOUNTS:
            words.setdefault(prefix + word, Action(prefix + word, "log_out", "English"))
    pieces = {word.encode() for word in words if word.isascii()}
    paths: dict[str, list[Software]] = {}
    queries: dict[str, list[Software]] = {}
    for one in software():
        for parameter in one.query:
            queries.setdefault(parameter, []).append(one)
            key, _, value = parameter.partition("=")
            # In "title=special:logout" the value is the rare part, in "add=1" the key.
            pieces.add(_split(_ascii(key if len(value) < 3 else value))[-1])
        for path in one.path:
            last = path.rpartition("/")[2]
            paths.setdefault(last, []).append(one)
            if not one.query:
                pieces.update(_rare(_ascii(last)))
    return _Known(words, tuple(encoded.items()), frozenset(pieces), paths, queries)


def _keys(language: Language) -> Iterator[tuple[str, Action]]:
    """Yield a language's words by their keys, as they count in URLs.

    English words may be in ASCII. An ASCII word of another language counts only if it logs out or
    deletes: other words, such as "esta" or "folgen", are likely to mean something else in another
    language.
    """
    for kind in KINDS:
        local = kind in ("buy", "change") and language.name != "English"
        for key, action in keys(language, kind):
            if not (local and " " not in action.word and key.isascii()):
                yield key, action


def _ascii(text: str) -> str:
    return quote(text, safe="@%/.:!=").lower()


def _split(url: str) -> list[bytes]:
    """Split a URL into its pieces, in the form of :func:`key_of` for ASCII.

    This takes half as long as a regular expression, and most URLs need it.
    """
    pieces = url.encode().translate(_PIECES, b"-_+")
    return (pieces.replace(b"%2f", b"/") if b"%2f" in pieces else pieces).split(b"/")


def _rare(segment: str) -> list[bytes]:
    """Return the pieces of a software's last segment that other URLs do not have."""
    found = [piece for piece in _split(segment) if piece not in (b"php", b"jspa", b"default")]
    return found[-1:]


def _word(piece: str) -> Action | None:
    """Return the word in a piece of a URL, in UTF-8 or in the encoding of its language's pages."""
    return _looked_up(piece) if len(piece) <= _LONGEST else None


@lru_cache(16_384)
def _looked_up(piece: str) -> Action | None:
    known = _known()
    if "%" not in piece:
        return known.words.get(key_of(piece))
    given = unquote_to_bytes(piece)
    try:
        action = known.words.get(key_of(given.decode()))
        if action is not None or len(given) > _SHORT:
            return action
    except UnicodeDecodeError:
        pass
    for encoding, words in known.encoded:
        try:
            action = words.get(key_of(given.decode(encoding)))
        except UnicodeDecodeError:
            continue
        if action is not None:
            return action
    return None


def by_url(tail: str) -> tuple[Action, str] | None:
    """Return the action in the path and query of a canonical URL, and where it stands; or None."""
    if _known().pieces.isdisjoint(_split(tail)) and not (
        "%" in tail and any("%" in piece and _suspect(piece) for piece in _encoded_pieces(tail))
    ):
        return None
    path, _, query = tail.partition("?")
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


def _suspect(piece: str) -> bool:
    """Return whether an encoded piece of a URL may be a known word, or a word of known software."""
    return len(piece) <= _LONGEST and _suspected(piece)


@lru_cache(16_384)
def _suspected(piece: str) -> bool:
    return _word(piece) is not None or key_of(unquote(piece)) in _foreign()


@cache
def _foreign() -> frozenset[str]:
    """Return the words that software writes into URLs beyond ASCII, or with characters that are
    encoded there."""
    said = [text for one in software() for text in (*one.path, *one.query)]
    found = {key_of(unquote(piece)) for text in said for piece in _encoded_pieces(text)}
    return frozenset(text for text in found if quote(text) != text)


def _of_software(segments: list[str], parameters: list[tuple[str, str]]) -> Action | None:
    known = _known()
    plain = [unquote(segment).lower() for segment in segments]
    for key, value in parameters:
        key = unquote(key).lower()
        for text in (f"{key}={unquote(value).lower()}", key):
            for one in known.queries.get(text, ()):
                if not one.path or _ends(plain, one.path):
                    return Action(text, one.kind, one.software)
    for one in known.paths.get(plain[-1], ()) if plain else ():
        if not one.query and _ends(plain, one.path):
            return Action(plain[-1], one.kind, one.software)
    for key, value in parameters:  # parameters of a wiki
        title = unquote(value.replace("+", "_")).lower().replace(" ", "_")
        for one in known.paths.get(title, ()) if key.lower() == "title" else ():
            if not one.query:
                return Action(title, one.kind, one.software)
    return None


def _ends(segments: list[str], paths: Iterable[str]) -> bool:
    path = "/" + "/".join(segments)
    return any(path.endswith("/" + end) for end in paths)


def _of_query(parameters: list[tuple[str, str]]) -> Action | None:
    lower = [(key.lower(), value) for key, value in parameters]
    stays = any(key_of(key) == "checkin" for key, _ in lower)  # check-in at a hotel
    for key, value in lower:
        if key in _TARGETS:
            continue
        action = _word(value)
        if action is not None and (
            key in _COMMANDS or "%" in key or (action.kind == "log_out" and key not in TITLES)
        ):
            return action
        if action is None and value and key not in TITLES - {"q"}:  # a route: site/logout
            *route, last = _route(value)
            action = _word(last) if route else None
            if action is not None and (action.kind == "log_out" or key in _COMMANDS):
                return action
        action = _word(key)
        if action is None or value in ("0", "false", "no"):
            continue
        if action.kind != "buy" or not (stays or _DATE(unquote(value))):
            return action
    return None


_route = re.compile(r"%2f|[/.:]", re.IGNORECASE).split


def _of_path(segments: list[str], parameters: list[tuple[str, str]]) -> Action | None:
    lower = [segment.lower() for segment in segments]
    for at, segment in enumerate(segments):
        if ":" in segment:  # "Category:Delete" is a page; software has names of its own
            continue
        first, *others = re.split("[.!]", segment)
        ending = others[-1].lower() if others else ""
        for piece in [first] if first.lower() in _EXPLAINED else [first, *others]:
            action = _word(piece)
            if action is not None and _does(action, lower, at, parameters, ending):
                return action
    return None


def _does(
    action: Action, segments: list[str], at: int, parameters: list[tuple[str, str]], ending: str
) -> bool:
    """Return whether a segment that is a word does what the word says, rather than being about it.

    ``ending`` is what follows its last dot.
    """
    before = segments[at - 1] if at else ""
    after = segments[at + 1] if at + 1 < len(segments) else ""
    last = at + 1 == len(segments)
    said = [value for key, value in parameters if _speaks(key.lower()) and value]
    if not said and not MANUALS.isdisjoint(segments[:at]):
        # /docs/3/delete, but not /docs/sql/3/delete, nor /man/3/remove
        owner = segments[at - 2] if at >= 2 else ""
        return last and owner in DOCUMENTS and before.isdecimal()
    if action.kind == "log_out":
        if before in CONTENT and not said and ending not in _PROGRAMS:
            return False
        return last or action.origin == "English" or _is_identity(after)
    if before in _NAMES:
        return False
    if any(action.kind != "buy" or re.search(r"\d", value) for value in said):
        return True
    known = key_of(action.word) in _NO_OBJECT
    near_end = at + 2 >= len(segments)
    if after in _NUMBERS and at + 3 <= len(segments):  # /delete/id/3, as frameworks write it
        after, at = segments[at + 2], at + 1
    if _is_identity(after) and at + 3 >= len(segments) and (action.kind != "buy" or known):
        return True
    if near_end and before and _IDENTITY(before):
        return not _is_date(segments[:at]) and (action.kind == "delete" or not _YEAR(before))
    if before in CONTENT:
        return False
    if before in _OWN or known:
        return True
    first = 1 if segments and _LOCALE(segments[0]) else 0
    # /members/ann/delete, but not /std/fs/fn.remove.html
    return action.kind == "delete" and last and at - first >= 2 and not ending


_NUMBERS = words_of("id pk no num uid pid tid cid aid item_id")
"""Segments that stand before a number."""
_NAMES = words_of("tag tags tagged wiki w t term dictionary search")
"""Segments after which a word is always a name."""


def _speaks(key: str) -> bool:
    """Return whether a parameter may name the object of an action."""
    return key not in TITLES and key not in _TARGETS and not key.startswith("utm_")


def _is_identity(segment: str) -> bool:
    """Return whether a segment names one of many things. A year, or a text that ends in a year,
    does not."""
    return _IDENTITY(segment) is not None and not _YEAR(re.split("[-_]", segment)[-1])


def _is_date(before: list[str]) -> bool:
    """Return whether segments end with a year or a month, as URLs of blogs do."""
    if _YEAR(before[-1]):
        return len(before) == 1 or before[-2] in _DATED
    dates = [segment for segment in before[-3:] if _MONTH(segment) or _YEAR(segment)]
    return len(dates) >= 2 and any(_YEAR(segment) for segment in dates)
