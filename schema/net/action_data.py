"""The words and URLs by which links are known that log out or change something: two files of data.

``action_words.toml`` has words by language, ``action_links.toml`` what known software writes into
its URLs, both with a source each. ``greencrawl.schema.net.actions`` says what they mean in a link.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["log_out", "delete", "buy", "change"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_HERE = Path(__file__).parent


class Action(NamedTuple):
    """A word that was recognised: what it does, and in which language, or for which software."""

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
    """All languages, as their file has them."""
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
    parts = (tuple(table.get(name, ())) for name in ("objects", "views", "encodings"))
    return Language(table["name"], words, *parts)


@cache
def software() -> tuple[Software, ...]:
    """All links of known software, as their file has them."""
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


def cases(word: str) -> set[str]:
    """A word in the ways that people write it."""
    return {word, word.lower(), word.upper(), word.capitalize(), word.title()}


def spellings(word: str) -> set[str]:
    """A word as it stands, composed and decomposed; and without accents, where they are Latin."""
    spelled = {unicodedata.normalize("NFC", word), unicodedata.normalize("NFD", word)}
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return spelled | {bare} if bare.isascii() else spelled


def phrases_of(language: Language) -> Iterator[tuple[str, Action]]:
    """Words of a language, and phrases of a deletion and what it deletes."""
    for kind, found in language.words.items():
        for word, _ in found:
            yield word, Action(word, kind, language.name)
    for word, _ in language.words["delete"]:
        action = Action(word, "delete", language.name)
        for thing in language.objects:
            yield f"{word} {thing}", action
            if not thing.isascii():  # as Chinese and Japanese write it; in Japanese behind it
                yield f"{word}{thing}", action
                yield f"{thing}{word}", action
                yield f"{thing}を{word}", action
            else:
                yield f"{word} this {thing}", action


def words_of(words: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(words.split())


TITLES = words_of(
    """
    title titel titre titolo titulo page pagename pagina p q query search s text keyword
    keywords term tag tags topic name subject wd w word lemma article lang label category
    cat sort order orderby filter status type format
    """
)
"""Keys of a query whose values are what people wrote, or what they look for."""
CONTENT = words_of(
    """
    wiki w tag tags tagged t term terms word words dictionary define definition glossary
    category categories search title topic-list article articles blog blogs news story
    stories tutorial tutorials page pages archive lexicon encyclopedia entry wiktionary
    subject subjects keyword keywords label labels song songs film films book books product
    products release posts
    """
)
"""Segments behind which stands what something is called."""
MANUALS = words_of(
    """
    docs doc documentation manual manuals man reference ref guide guides help faq kb
    handbook javadoc apidoc api-docs learn tutorial tutorials spec specs
    """
)
"""Segments below which there is documentation."""
