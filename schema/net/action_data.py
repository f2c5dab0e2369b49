"""The words and URLs that show that a link logs out or changes something.

They are in two files of data, with a source for each. ``action_words.toml`` has words by language,
``action_links.toml`` has what known software writes into its URLs.
``greencrawl.schema.net.actions`` says what they mean in a URL,
``greencrawl.schema.net.action_texts`` what they mean in the text of a link.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["log_out", "delete", "buy", "change"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_HERE = Path(__file__).parent


class Action(NamedTuple):
    """A word that was recognised: what it does, and in which language or software."""

    word: str
    kind: Kind
    origin: str

    def __str__(self) -> str:
        return f"action {self.word!r} ({self.kind.replace('_', ' ')}, {self.origin})"


class Language(NamedTuple):
    """A table of ``action_words.toml``; ``words`` by kind, each with its source."""

    name: str
    words: dict[Kind, list[tuple[str, str]]]
    objects: tuple[str, ...]
    between: tuple[str, ...]
    views: tuple[str, ...]
    encodings: tuple[str, ...]


class Software(NamedTuple):
    """A table of ``action_links.toml``."""

    software: str
    source: str
    kind: Kind
    path: tuple[str, ...]
    query: tuple[str, ...]


@cache
def languages() -> tuple[Language, ...]:
    """Read all languages from their file."""
    said = tomllib.loads((_HERE / "action_words.toml").read_text(encoding="utf-8"))
    sources = said["sources"]
    return tuple(_language(table, sources) for table in said["languages"].values())


def _language(table: Mapping[str, Any], sources: Mapping[str, str]) -> Language:
    words: dict[Kind, list[tuple[str, str]]] = {
        kind: [
            (word, sources[source]) for source, found in table.get(kind, {}).items()
            for word in found
        ]
        for kind in KINDS
    }  # fmt: skip
    parts = (tuple(table.get(name, ())) for name in ("objects", "between", "views", "encodings"))
    return Language(table["name"], words, *parts)


@cache
def software() -> tuple[Software, ...]:
    """Read the links of all known software from their file."""
    said = tomllib.loads((_HERE / "action_links.toml").read_text(encoding="utf-8"))
    return tuple(
        Software(
            one["software"],
            one["source"],
            one["kind"],
            tuple(one.get("path", ())),
            tuple(one.get("query", ())),
        )
        for one in said["links"]
    )


_DROPPED = dict.fromkeys(map(ord, " \t\n\r-_+'’\xa0\u0640\u200c\u200d\u200e\u200f"))
_ALIKE = str.maketrans({"ı": "i", "ß": "ss", "ø": "o", "đ": "d", "ł": "l", "æ": "ae"})
_MARKS = dict.fromkeys(range(0x300, 0x370))


def key_of(text: str) -> str:
    """Return the form that all spellings of a word share, such as "LOG-OUT" and "logout".

    It has no case, no accents ("Odhlásit" is "odhlasit"), and nothing that joins parts.
    """
    text = text.lower()
    if not text.isascii():
        bare = unicodedata.normalize("NFD", text).translate(_MARKS)
        text = unicodedata.normalize("NFC", bare).translate(_ALIKE)
    return text.translate(_DROPPED)


def phrases(
    language: Language, words: Iterable[str], form: Callable[[str], str] = str
) -> Iterator[tuple[str, str]]:
    """Yield (word, phrase) pairs: each of ``words`` alone, and with each object of the language.

    The objects stand before or behind the word: "delete post", "delete this post", "post_delete",
    "Beitrag löschen". A phrase comes in the given form, without blanks.
    """
    between = ("", *map(form, language.between))
    things = [form(thing) for thing in language.objects]
    for word in words:
        formed = form(word)
        yield word, formed
        for thing in things:
            for joint in between:
                yield word, formed + joint + thing
                yield word, thing + joint + formed


def keys(language: Language, kind: Kind) -> Iterator[tuple[str, Action]]:
    """Yield a language's words of a kind by their keys; words that delete come with objects,
    too."""
    words = [word for word, _ in language.words[kind]]
    if kind == "delete":
        found = phrases(language, words, key_of)
    else:
        found = ((word, key_of(word)) for word in words)
    for word, key in found:
        yield key, Action(word, kind, language.name)


def words_of(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


TITLES = words_of(
    """
    title titel titre titolo titulo page pagename pagina p q query search s text keyword
    keywords term tag tags topic name subject wd w word lemma article lang label category
    cat sort order orderby filter status type format highlight printable oldid version hl
    slug entry doc document path
    """
)
"""Keys of a query whose values are free text, a search, or how a page is shown."""
CONTENT = words_of(
    """
    wiki w tag tags tagged t term terms word words dictionary define definition glossary
    category categories search title topic-list article articles blog blogs news story
    stories tutorial tutorials page pages archive lexicon encyclopedia entry wiktionary
    subject subjects keyword keywords label labels song songs film films book books product
    products release posts
    """
)
"""Segments that stand before the name of something."""
DOCUMENTS = words_of("docs doc guide guides help faq kb learn")
"""Segments above documentation, or above texts by the users of a site."""
MANUALS = DOCUMENTS | words_of(
    """
    documentation manual manuals man man1 man2 man3 man8 reference ref handbook javadoc apidoc
    api-docs tutorial tutorials spec specs sql commands statements functions methods
    dictionary wiktionary thesaurus synonym synonyms glossary vocabulary grammar verb verbs
    conjugation conjugate translate translation
    """
)
"""Segments below which words are explained."""
