"""Links that log out or change something, by their texts: whole ones, brackets and icons apart.

A link's text says less than its URL, which says whether there is something that it may concern. Of
titles of articles, one may be the word itself: its neighbours tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from greencrawl.schema.net.action_data import (
    CONTENT,
    MANUALS,
    TITLES,
    Action,
    cases,
    languages,
    phrases_of,
    spellings,
)

# What stands around a text without being of it: brackets, arrows, icons. speedups.c has the same.
_AROUND = (
    "\\x00-/:-@\\[-`{-\\xbf\\xd7\\xf7\u2000-\u2fff\u3000-\u303f\ue000-\uf8ff\ufe00-\ufe0f\ufeff"
    "\uff00-\uff0f\U0001f000-\U0001ffff"
)
_trim = re.compile(f"[{_AROUND}]+$|^[{_AROUND}]+").sub

MAX_TEXT = 64
"""Bytes of UTF-8 of a link's text that may be an action; a longer one is a title."""


def trimmed(text: str) -> str:
    """A link's text without what stands around it: "» Logout «" is "Logout"."""
    return _trim("", text)


class _Phrases(NamedTuple):
    actions: dict[str, Action]
    views: frozenset[str]
    long: frozenset[str]
    """Phrases that name what they change: "delete this article"."""


@cache
def _phrases() -> _Phrases:
    actions: dict[str, Action] = {}
    long: set[str] = set()
    views: set[str] = set()
    for language in languages():
        for word, action in phrases_of(language):
            for text in (trimmed(c) for s in spellings(word) for c in cases(s)):
                actions.setdefault(text, action)
                if action.word != word:
                    long.add(text)
        views |= {c for view in language.views for c in cases(view)}
    return _Phrases(actions, frozenset(views), frozenset(long))


def texts_of_actions() -> Mapping[str, Action]:
    """Texts of links that may be actions."""
    return _phrases().actions


def by_texts(urls: Sequence[str], found: Sequence[str | None]) -> dict[str, Action]:
    """URLs of a page's links that their texts tell to be actions.

    ``found`` are the texts beside ``urls``, trimmed: None is that of a link that has none. A word
    that logs out counts alone. Any other needs something that it may concern (a number or a
    query in the URL); and of titles of articles, one may be "Delete": where links of the same shape
    have other texts, and none of them is a word, it is one of them.
    """
    actions = texts_of_actions()
    suspects: dict[str, tuple[str, Action]] = {}
    where: dict[str, set[str]] = {}
    for place in [place for place, text in enumerate(found) if text in actions]:
        url, text = urls[place], found[place] or ""
        action = actions[text]
        if url and not _is_titled(url, text):
            if url not in suspects or action.kind == "log_out":
                suspects[url] = text, action
            where.setdefault(_shape(url), set()).add(url)
    told: dict[str, Action] = {}
    shapes: set[str] | None = None
    for url, (text, action) in suspects.items():
        if action.kind != "log_out":
            if not _concerns_something(url):
                continue
            if len(where[_shape(url)]) == 1 and text not in _phrases().long:
                if shapes is None:
                    shapes = _titles(urls, found)
                if _shape(url) in shapes:
                    continue
        told[url] = action
    return told


def _titles(urls: Sequence[str], found: Sequence[str | None]) -> set[str]:
    """The shapes of URLs whose links have texts that look like titles."""
    actions, views, _ = _phrases()
    return {
        _shape(url)
        for url, text in zip(urls, found, strict=True)
        if url and text and text not in actions and text not in views and not text.isdigit()
    }


def _shape(url: str) -> str:
    return re.sub(r"[0-9a-f]{8,}|\d+", "0", url)


def _concerns_something(url: str) -> bool:
    path, mark, _ = url[url.find("/", 8) :].partition("?")
    return bool(mark) or re.search(r"\d", re.sub(r"%[0-9A-Fa-f]{2}", "", path)) is not None


def _is_titled(url: str, text: str) -> bool:
    """Whether a page of an encyclopedia, a list of tags, say, is about what the text says."""
    path, _, query = url[url.find("/", 8) :].partition("?")
    slug = _slug(text)
    if any(
        _slug(value) == slug and key in TITLES
        for key, _, value in (pair.partition("=") for pair in query.lower().split("&"))
    ):
        return "action=" not in query
    segments = [segment for segment in path.lower().split("/") if segment]
    if query or len(segments) < 2 or _slug(segments[-1].partition(".")[0]) != slug:
        return False
    return segments[-2] in CONTENT or not MANUALS.isdisjoint(segments)


def _slug(text: str) -> str:
    return re.sub(r"[\s_+-]+", "-", unquote(text).lower()).strip("-")
