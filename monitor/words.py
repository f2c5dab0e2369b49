"""Texts in the reader's language, and numbers, sizes and times as people write them.

All texts are in ``texts/``, a file for each language with the same keys (a test compares them). A
text may have forms: ``other``, and ``one`` for the number 1. A kind of failure has its English
label in :class:`greencrawl.schema.records.FailureKind`; a language without a text for it shows that
label.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from greencrawl.schema.records import FailureKind

TEXTS = Path(__file__).parent / "texts"
LANGUAGES = {"en": "en", "zh": "zh-Hans"}
"""Languages with texts → the value of ``lang`` in a document."""
DEFAULT = "en"
_SPANS = (("second", 60), ("minute", 60), ("hour", 24), ("day", 10**9))
_NOW_SECONDS = 5
_TABLES = ("kind", "state", "reason")
"""Placeholders in sentences of other parts: the value is a key in the table of that name."""
_SENTENCES = ("why", "detail")
"""Placeholders that stand for a further sentence."""
_DEEPEST = 4


@cache
def words(language: str) -> Words:
    """Read the texts of a language, once."""
    texts = {f"kind.{kind}": kind.label for kind in FailureKind}
    texts |= _flat(tomllib.loads((TEXTS / f"{language}.toml").read_text("utf-8")))
    file = TEXTS / "options" / f"{language}.toml"  # in English the records have these texts
    options = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    file = TEXTS / "reasons" / f"{language}.toml"
    reasons = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    return Words(language, texts, options, reasons)


def language_of(accept: str | None) -> str:
    """Return the preferred language of an ``Accept-Language`` header, of those that exist."""
    liked: list[tuple[float, str]] = []
    for part in (accept or "").split(","):
        tag, _, quality = part.strip().partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        language = tag.strip().lower().partition("-")[0]
        if language in LANGUAGES and weight > 0:
            liked.append((weight, language))
    return max(liked, key=lambda one: one[0], default=(0.0, DEFAULT))[1]


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return ``{"a": {"b": "…"}}`` as ``{"a.b": "…"}``; tables of forms stay as they are."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and not set(value) <= {"one", "other"}:
            found.update(_flat(value, f"{before}{name}."))
        else:
            found[before + name] = value
    return found


class Words:
    """The texts of one language.

    Calling it returns a text by its key, with its placeholders filled in.
    """

    def __init__(
        self,
        language: str,
        texts: Mapping[str, Any],
        options: Mapping[str, str],
        reasons: Mapping[str, str],
    ) -> None:
        self.language = language
        self.tag = LANGUAGES[language]
        self.texts = texts
        self.options = options
        """Descriptions of options, where the language has its own."""
        self.reasons = [(_Pattern(said), text) for said, text in reasons.items()]
        """English sentences that other parts of the system write, and their translations."""

    def __call__(self, key: str, **places: Any) -> str:
        """Return a text; ``n`` selects its form, and is written with thousands separators."""
        text = self.texts[key]
        if isinstance(text, dict):
            text = text["one"] if places["n"] == 1 and "one" in text else text["other"]
        if isinstance(places.get("n"), int):
            places["n"] = self.number(places["n"])
        return str(text).format(**places) if places else str(text)

    def described(self, option: str, description: str) -> Markup:
        """Return what an option does; ``description`` is the English text of its record."""
        if option in self.options:
            return Markup("<span>{}</span>").format(self.options[option])
        return Markup('<span lang="en">{}.</span>').format(description)

    def has(self, key: str) -> bool:
        """Return whether there is such a text."""
        return key in self.texts

    def either(self, key: str, otherwise: str) -> str:
        """Return a text, or ``otherwise`` if there is none: for names that programs give."""
        return self(key) if key in self.texts else otherwise

    def reason(self, said: str, deep: int = 0) -> Markup:
        """Return what another part of the system says, such as why a URL was not fetched.

        A sentence without a translation stays in English, and is marked as English.
        """
        if not self.reasons or not said:
            return escape(said)
        if deep == _DEEPEST:
            return _english(said)
        parts = _parts(said)
        known = [self._translated(one, deep) for one in parts]
        if not any(known):
            return _english(said)
        pairs = zip(parts, known, strict=True)
        return Markup("；").join(text or _english(one) for one, text in pairs)

    def _translated(self, said: str, deep: int) -> Markup | None:
        for pattern, text in self.reasons:
            found = pattern.places(said)
            if found is None or any(
                name in _TABLES and not self.has(f"{name}.{value}") for name, value in found.items()
            ):
                continue
            return Markup(text).format(
                **{name: self._place(name, value, deep) for name, value in found.items()}
            )
        return None

    def _place(self, name: str, value: str, deep: int) -> str:
        if name in _SENTENCES:
            return self.reason(value, deep + 1)
        return self(f"{name}.{value}") if name in _TABLES else value

    # -- numbers and times

    @staticmethod
    def number(count: float | None) -> str:
        """Return ``12,345``; ``0.3`` below ten, ``0.02`` below a tenth; a dash for an unknown
        number."""
        if count is None:
            return "–"
        if isinstance(count, float) and 0 < count < 0.095:
            return f"{count:.2f}" if count >= 0.005 else "<0.01"
        if isinstance(count, float) and count < 10:
            return f"{count:.1f}" if count else "0"
        return f"{count:,.0f}"

    @staticmethod
    def size(count: float) -> str:
        """Return bytes as ``1.5 MB`` (powers of 1000)."""
        for unit in ("B", "kB", "MB", "GB"):
            if count < 1000:
                return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
            count /= 1000
        return f"{count:.1f} TB"

    def span(self, seconds: float) -> str:
        """Return a time such as ``20 seconds`` or ``3 hours``, in its largest unit."""
        left = max(seconds, 0.0)
        for unit, most in _SPANS:
            if left < most:
                if unit == "second" and left < 1:
                    return self("time.ms", n=round(left * 1000))
                if unit == "second" and left < 10 and left != int(left):
                    return self("time.part", n=f"{left:.1f}")
                return self(f"time.{unit}", n=int(left))
            left /= most
        raise AssertionError("longer than time")

    def ago(self, at_ms: int, now_ms: int) -> str:
        """Return ``3 minutes ago``, ``in 2 hours``, or ``now``."""
        seconds = (now_ms - at_ms) / 1000
        if abs(seconds) < _NOW_SECONDS:
            return self("time.now")
        said = self.span(int(abs(seconds)))
        return self("time.ago", span=said) if seconds > 0 else self("time.in", span=said)

    @staticmethod
    def moment(at_ms: int) -> str:
        """Return date and time in UTC."""
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    def when(self, at_ms: int, now_ms: int) -> Markup:
        """Return a ``time`` element: how long ago, and the moment itself."""
        if not at_ms:
            return Markup("–")
        exact = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ago, moment = escape(self.ago(at_ms, now_ms)), self.moment(at_ms)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, moment, ago)


def _english(said: str) -> Markup:
    """Return a sentence marked as English, unless it was translated where it was made."""
    return Markup('<span lang="en">{}</span>').format(said) if said.isascii() else escape(said)


def _parts(said: str) -> list[str]:
    """Return the parts of a sentence, which semicolons separate: those outside of parentheses, or
    all if a parenthesis has no end."""
    found, held, depth = list[str](), list[str](), 0
    for part in said.split("; "):
        held.append(part)
        depth += part.count("(") - part.count(")")
        if depth <= 0:
            found.append("; ".join(held))
            held, depth = [], 0
    return found + held


class _Pattern:
    """A sentence with placeholders. The time to match is in proportion to the length of the
    text, even if strangers have written parts of it."""

    def __init__(self, said: str) -> None:
        found = list(string.Formatter().parse(said))
        self._texts = [text for text, *_ in found]
        self._names = [name for _, name, *_ in found if name is not None]
        if len(self._names) == len(self._texts):
            self._texts.append("")

    def places(self, said: str) -> dict[str, str] | None:
        """Return the values of the placeholders; None if the sentence does not match.

        Each value ends where the next text of the pattern first occurs.
        """
        first, *others = self._texts
        if not others:
            return {} if said == first else None
        if not said.startswith(first) or not said.endswith(others[-1]):
            return None
        at, end, found = len(first), len(said) - len(others[-1]), dict[str, str]()
        for name, text in zip(self._names, [*others[:-1], None], strict=True):
            till = end if text is None else said.find(text, at, end)
            if till <= at:
                return None
            found[name] = said[at:till]
            at = till + len(text or "")
        return found
