"""Links whose texts show that they log out or change something.

Only a whole text counts, without brackets and icons. A link's text says less than its URL: the URL
shows whether the link has an object. Where a list links many articles, "Delete" may be the title of
one: the links beside it show that.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Literal, NamedTuple
from urllib.parse import unquote

from greencrawl.schema.net.action_data import (
    CONTENT,
    KINDS,
    MANUALS,
    TITLES,
    Action,
    key_of,
    keys,
    languages,
    phrases,
)

# Characters around a text that do not belong to it: brackets, arrows, icons. speedups.c has the
# same.
_AROUND = (
    "\\x00-/:-@\\[-`{-\\xbf\\xd7\\xf7\u2000-\u2fff\u3000-\u303f\ue000-\uf8ff\ufe00-\ufe0f\ufeff"
    "\uff00-\uff0f\U0001f000-\U0001ffff"
)
_around = re.compile(f"[{_AROUND}]*+").match

MAX_TEXT = 64
"""Bytes of UTF-8 of the longest link text that may be an action; a longer one is a title."""

_TITLED_LOG_OUT = 8
"""With this many titles beside it, a link "Log out" is an article, too; menus have fewer."""

_LONG = 500
"""Characters of a URL that is not worth caching: traps are full of such URLs."""

NONE, OTHER, WORD = range(3)


class LinkTexts(NamedTuple):
    """The texts of a page's links, and the URLs that they lead to.

    ``kinds`` has a byte for each link. :data:`NONE` means that there is no text, or only a number
    or an ASCII letter ("x"). :data:`WORD` means that the text may be a known word; ``words`` has it
    by the link's index. All else is :data:`OTHER`. ``forms`` are the URLs that the page's forms
    lead to.
    """

    urls: Sequence[str]
    kinds: bytes
    words: Mapping[int, str]
    forms: Collection[str] = ()

    def joined(self, more: LinkTexts) -> LinkTexts:
        """Return these links followed by those of ``more``, and the forms of both."""
        words = {len(self.urls) + place: text for place, text in more.words.items()}
        return LinkTexts(
            [*self.urls, *more.urls],
            self.kinds + more.kinds,
            {**self.words, **words},
            [*self.forms, *more.forms],
        )


def trimmed(text: str) -> str:
    """Return a link's text without the characters around it: "» Logout «" is "Logout".

    The text is read from both ends: a search for the end would take time in the square of its
    length.
    """
    return text[_length_around(text) : len(text) - _length_around(text[::-1])]


def _length_around(text: str) -> int:
    found = _around(text)
    return found.end() if found else 0


def texts_of(said: Iterable[tuple[str, str]], forms: Collection[str] = ()) -> LinkTexts:
    """Make the :class:`LinkTexts` of (URL, text) pairs, "" for no text; and of ``forms``."""
    urls: list[str] = []
    kinds = bytearray()
    words: dict[int, str] = {}
    for place, (url, given) in enumerate(said):
        urls.append(url)
        text = trimmed(given)
        if not says_something(text):
            kinds.append(NONE)
        elif is_known(text):
            kinds.append(WORD)
            words[place] = text
        else:
            kinds.append(OTHER)
    return LinkTexts(urls, bytes(kinds), words, forms)


Meaning = Action | Literal["view"]
"""What a link does by its text; "view" is neither an action nor a title."""


@cache
def _meanings() -> Mapping[str, Meaning]:
    found: dict[str, Meaning] = {}
    for language in languages():
        for kind in KINDS:
            for key, action in keys(language, kind):
                found.setdefault(key, action)
    for language in languages():
        for _, key in phrases(language, language.views, key_of):
            found.setdefault(key, "view")
    return found


@lru_cache(4096)
def _meaning(text: str) -> Meaning | None:
    return _meanings().get(key_of(text))


def says_something(text: str) -> bool:
    """Return whether a text is more than a number, a letter, or characters around a text."""
    text = trimmed(text)
    return text != "" and not (text.isascii() and (text.isdigit() or len(text) == 1))


def is_known(text: str) -> bool:
    """Return whether a text is a known word: an action, or one that merely shows something."""
    text = trimmed(text)
    return len(text.encode(errors="replace")) <= MAX_TEXT and _meaning(text) is not None


def written() -> Iterator[str]:
    """Yield each known text in the forms that it may be written in.

    A text may be written as it stands, in capitals, without accents, or with combining accents.
    Case, blanks and dashes may differ further.
    """
    for language in languages():
        plain = [word for kind in KINDS for word, _ in language.words[kind] if kind != "delete"]
        joined = [*(word for word, _ in language.words["delete"]), *language.views]
        for form in (str, str.upper, key_of, partial(unicodedata.normalize, "NFD")):
            if form is not str and _is_same("".join(map(form, joined)), "".join(joined)):
                continue
            yield from map(form, plain)
            yield from (phrase for _, phrase in phrases(language, joined, form))


def _is_same(text: str, other: str) -> bool:
    """Return whether two texts differ only in case and blanks."""
    return text.lower().replace(" ", "") == other.lower().replace(" ", "")


def by_texts(texts: LinkTexts, page: str = "") -> dict[str, Action]:
    """Find the links of a page whose texts show that they are actions; a link to ``page`` itself is
    not an action.

    A word that logs out counts alone. Any other word needs an object (a number or a query in the
    URL), and no link to the same URL may say something else. "Delete" may also be the title of an
    article. It is a title if twice as many links of the same shape have texts that are not known
    words. "Log out" is one among :data:`_TITLED_LOG_OUT` titles.
    """
    told: dict[str, Action] = {}
    unsure: dict[str, Action] = {}
    for place, text in texts.words.items():
        url = texts.urls[place]
        action = _action(url, text)
        if action is None or url == page:
            continue
        if action.kind == "log_out" and not _has_number(url[url.index("/", 8) :]):
            told[url] = action
        elif url not in unsure or action.kind == "log_out":
            unsure[url] = action
    if unsure:
        told |= _without_titles(unsure, texts)
    return told


def _action(url: str, text: str) -> Action | None:
    """Return what a link does by its text and its URL alone.

    Menus repeat, so most calls are a look-up.
    """
    return (_judged if len(url) <= _LONG else _judged.__wrapped__)(url, text)


@lru_cache(8192)
def _judged(url: str, text: str) -> Action | None:
    action = _meaning(text)
    if not url or not isinstance(action, Action) or _is_titled(url, text):
        return None
    tail = url[url.index("/", 8) :]
    if tail == "/":  # a script at the root logs out
        return None
    if action.kind == "log_out":
        return action
    if action.kind == "buy" and "?" not in tail:  # a button that leads to the product's page
        return None
    return action if _concerns_something(tail) else None


def _without_titles(unsure: Mapping[str, Action], texts: LinkTexts) -> dict[str, Action]:
    shapes = set(map(_shape, unsure))
    said: dict[str, set[str]] = {}
    for place, (url, kind) in enumerate(zip(texts.urls, texts.kinds, strict=True)):
        if not url or kind == NONE or _shape(url) not in shapes:
            continue
        meaning = _meaning(texts.words[place]) if kind == WORD else None
        if not isinstance(meaning, Action):
            said.setdefault(url, set()).add(meaning or "title")
    suspects = Counter(_shape(url) for url in unsure if url not in said)
    titles = Counter(_shape(url) for url, found in said.items() if "title" in found)
    told = {}
    for url, action in unsure.items():
        shape = _shape(url)
        if action.kind == "log_out":
            article = titles[shape] >= _TITLED_LOG_OUT
        else:
            article = url in said or titles[shape] >= 2 * suspects[shape]
        if not article:
            told[url] = action
    return told


_NUMBERS = re.compile(r"%[0-9A-Fa-f]{2}|[0-9a-f]{8,}|\d+")


def _shape(url: str) -> str:
    """Return a URL with its numbers, also hexadecimal ones, written as zeros."""
    return (_zeroed if len(url) <= _LONG else _zeroed.__wrapped__)(url)


@lru_cache(8192)
def _zeroed(url: str) -> str:
    return _NUMBERS.sub(lambda found: found[0] if found[0][0] == "%" else "0", url)


def _concerns_something(tail: str) -> bool:
    """Return whether a path and query name an object: by a query, or by a number near the end.

    A file needs the number in its name: in /docs/15/sql-delete.html the number is a version.
    """
    *above, last = tail.rsplit("/", 3)
    return (
        "?" in tail
        or _has_number(last)
        or (not _is_file(last) and _has_number("/".join(above[1:])))
    )


_is_file = re.compile(r"\.(?:x?html?|md|txt|pdf)$", re.IGNORECASE).search


def _has_number(tail: str) -> bool:
    return any(found[0] != "%" for found in _NUMBERS.findall(tail))


def _is_titled(url: str, text: str) -> bool:
    """Return whether a page is about the text itself, as in an encyclopedia or a list of tags."""
    path, _, query = url[url.find("/", 8) :].partition("?")
    key = key_of(text)
    if any(
        name in TITLES and key_of(unquote(value)) == key
        for name, _, value in (pair.partition("=") for pair in query.lower().split("&"))
    ):
        return "action=" not in query
    segments = [segment for segment in path.lower().split("/") if segment]
    if query or len(segments) < 2 or key_of(unquote(segments[-1].partition(".")[0])) != key:
        return False
    return segments[-2] in CONTENT or not MANUALS.isdisjoint(segments)
