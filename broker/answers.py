"""Decodes a broker's answer to the record in it, or to the problem."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.transport import Lost, Reply
from greencrawl.schema.wire import from_json

T = TypeVar("T")


def query(**parameters: str | int | None) -> str:
    """Return a query string of the parameters that are not None, with its question mark."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def why(answer: Reply | Lost) -> str:
    """Return for people the reason why an answer is not usable."""
    if isinstance(answer, Lost):
        return answer.why
    return f"{answer.status} {problem(answer).get('detail', '')}".strip()


def problem(answer: Reply) -> dict[str, object]:
    """Return the problem in a 4xx or 5xx answer."""
    try:
        return from_json(answer.body, dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {
            "title": "not a problem body",
            "detail": answer.body[:200].decode("utf-8", "replace"),
        }


def content(answer: Reply) -> bytes:
    """Return the body. Raises Refused if the broker answered a 4xx."""
    if answer.status >= 400:
        raise Refused(answer.status, problem(answer))
    return answer.body


def decode(answer: Reply, reply: type[T]) -> T:
    """Return the record in the body. Raises Refused if the broker answered a 4xx, and Unavailable
    if no broker sent the answer."""
    try:
        return from_json(content(answer), reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"not a broker's answer: {error}") from error
