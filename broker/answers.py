"""Reads a broker's answer: the record in it, or the problem."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from greencrawl.broker.transport import Lost, Reply
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.wire import from_json

T = TypeVar("T")


def query(**parameters: str | int | None) -> str:
    """The parameters that are not None, behind a question mark."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def why(answer: Reply | Lost) -> str:
    """Why an answer is none, for people."""
    if isinstance(answer, Lost):
        return answer.why
    return f"{answer.status} {problem(answer).get('detail', '')}".strip()


def problem(answer: Reply) -> dict[str, object]:
    """The problem in an answer of 4xx or 5xx."""
    try:
        return from_json(answer.body, dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {
            "title": "not a problem body",
            "detail": answer.body[:200].decode("utf-8", "replace"),
        }


def content(answer: Reply) -> bytes:
    """The body. Raises Refused where the broker answered a 4xx."""
    if answer.status >= 400:
        raise Refused(answer.status, problem(answer))
    return answer.body


def decode(answer: Reply, reply: type[T]) -> T:
    """The record in the body. Raises Refused, and Unavailable for what no broker answers."""
    try:
        return from_json(content(answer), reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"not a broker's answer: {error}") from error
