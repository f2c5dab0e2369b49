"""JMESPath (https://jmespath.org): how a person says where in a JSON answer things are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions

_ERRORS = (
    JMESPathError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What an expression may raise when it meets data that its author did not think of."""


class Expression:
    """One expression. Raises ValueError, saying what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._compiled = jmespath.compile(text)
            unknown = [name for name in _called(self._compiled.parsed) if not _known(name)]
        except (JMESPathError, RecursionError) as error:
            said = " ".join(str(error).split())[:200] or "nothing is there"
            raise ValueError(f"{text[:100]!r} is no JMESPath expression: {said}") from None
        if unknown:
            raise ValueError(f"{text[:100]!r}: JMESPath has no function {unknown[0]}()")

    def of(self, data: Any) -> Any:
        """What it finds in decoded JSON. Raises ValueError where it cannot be applied.

        Takes time and memory as the expression wants them: a few characters can double the data
        again and again.
        """
        try:
            return self._compiled.search(data)
        except _ERRORS as error:
            said = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.text[:100]!r} cannot be applied: {said}") from None


def problem(text: str) -> str | None:
    """What is wrong with an expression, for the person who wrote it; None if nothing is."""
    try:
        Expression(text)
    except ValueError as error:
        return str(error)
    return None


def _called(node: Any) -> Iterator[str]:
    """Names of the functions that a parsed expression calls; the parser leaves that to the call."""
    if node["type"] == "function_expression":
        yield node["value"]
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _called(child)


def _known(name: str) -> bool:
    return name in Functions.FUNCTION_TABLE
