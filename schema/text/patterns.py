"""Users' regular expressions, searched in time linear in the text (RE2).

Python's own engine may backtrack for ever on a pattern such as ``(a+)+$``, and would take a whole
process with it. RE2 has neither look-arounds nor back-references: :func:`problem` says so where a
pattern is given. ``\\d``, ``\\w`` and ``\\b`` mean ASCII; ``\\pL`` and ``\\p{Han}`` go beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import re2

PATTERN_BYTES = 8 * 1024 * 1024
"""The memory that one compiled pattern may take."""


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # it would write to standard error, beside our log
    options.never_capture = True
    options.max_mem = PATTERN_BYTES
    return options


_OPTIONS = _options()


class Pattern:
    """One compiled pattern; safe for many threads.

    Raises ValueError that says what is wrong with it.
    """

    def __init__(self, text: str) -> None:
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except (re2.error, UnicodeEncodeError) as error:
            raise ValueError(_why(text, error)) from None
        self.text = text

    def found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in ``text``.

        Other greenlets of the thread wait; other threads do not.
        """
        return self._compiled.search(text) is not None


class Patterns:
    """Patterns that are searched together for the first one that matches.

    If RE2 does not know a pattern, Python's engine searches it: the crawl was made when such
    patterns were allowed. New patterns of this kind are refused (:func:`problem`). Raises
    ``re.error`` for a pattern that neither engine knows.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._each: list[re.Pattern[str] | re2._Regexp] = []
        self.backtrack = False
        for text in self.texts:
            try:
                self._each.append(re2.compile(text, _OPTIONS))
            except (re2.error, UnicodeEncodeError):
                self._each.append(re.compile(text))
                self.backtrack = True
        self._any = self._joined()

    def _joined(self) -> re2._Regexp | None:
        """Join all patterns into one: with five patterns the search takes a fifth of the time."""
        if len(self.texts) < 2 or self.backtrack:
            return None
        try:
            return re2.compile("|".join(f"(?:{text})" for text in self.texts), _OPTIONS)
        except re2.error:  # too large together
            return None

    def first(self, text: str) -> str | None:
        """Return the first pattern that matches anywhere in ``text``."""
        if self._any is not None and self._any.search(text) is None:
            return None
        for pattern, given in zip(self._each, self.texts, strict=True):
            if pattern.search(text):
                return given
        return None


def problem(text: str) -> str | None:
    """Say what is wrong with a pattern, for the person who wrote it; None if nothing is."""
    try:
        Pattern(text)
    except ValueError as error:
        return str(error)
    return None


def _why(text: str, error: Exception) -> str:
    said = error.args[0] if isinstance(error, re2.error) else "lone surrogates"
    reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return f"{text!r} is no regular expression: {reason}"
    return (
        f"{text!r} cannot be matched in bounded time: {reason} (RE2 syntax: no look-around, no "
        "back-reference, repeats up to 1000)"
    )
