"""JMESPath (https://jmespath.org): expressions that find things in a JSON answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that an expression may raise on data that its author did not expect.

The library's own errors are ValueErrors.
"""


class Expression:
    """A JMESPath expression. Raises ValueError that says what is wrong with it."""

    def __init__(self, text: str) -> None:
        import jmespath  # crawls without sources do not need it
        from jmespath.functions import Functions

        self.text = text
        try:
            self._compiled = jmespath.compile(text)
            called = [*_called(self._compiled.parsed)]
        except (ValueError, RecursionError) as error:
            said = _line(error) or "nothing is there"
            raise ValueError(f"{text[:100]!r} is no JMESPath expression: {said}") from None
        for name in called:
            if name not in Functions.FUNCTION_TABLE:
                raise ValueError(f"{text[:100]!r}: JMESPath has no function {name}()")

    def of(self, data: Any) -> Any:
        """Return what the expression finds in decoded JSON. Raises ValueError if it fails.

        Time and memory depend on the expression: a few characters can double the data again and
        again.
        """
        try:
            return self._compiled.search(data)
        except _ERRORS as error:
            raise ValueError(f"{self.text[:100]!r} cannot be applied: {_line(error)}") from None


def problem(text: str) -> str | None:
    """Say what is wrong with an expression, for the person who wrote it; None if nothing is."""
    try:
        Expression(text)
    except ValueError as error:
        return str(error)
    return None


def _called(node: Any) -> Iterator[str]:
    """Yield the functions that a parsed expression calls: the parser does not check them."""
    if node["type"] == "function_expression":
        yield node["value"]
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _called(child)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
