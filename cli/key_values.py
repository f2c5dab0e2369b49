"""``KEY=VALUE`` arguments of a command, by the fields of a record."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
import msgspec.inspect as inspect

from greencrawl.cli.crawlfile import WANTED
from greencrawl.cli.options import UNBOUNDED, unwrap

_YES = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def parsed(pairs: Sequence[str], record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return field → value; None if the text is empty: then the field counts as not given.

    A list is given value by value, or as JSON; a table is given as JSON. Raises UsageError, which
    names what is wrong.
    """
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    known = {field.name: unwrap(field)[0] for field in info.fields}
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or name not in known:
            names = ", ".join(known)
            raise click.UsageError(f"{pair!r} is not KEY=VALUE, where KEY is one of: {names}")
        if isinstance(known[name], inspect.VarTupleType) and text and text[:1] != "[":
            found[name] = [*(found.get(name) or []), text]
        else:
            found[name] = _value(known[name], text)
    given = {name: value for name, value in found.items() if value is not None}
    try:
        made = msgspec.to_builtins(msgspec.convert(given, record, strict=False))
    except msgspec.ValidationError as error:
        raise click.UsageError(_wrong(str(error), known, given)) from error
    return {name: made[name] if name in given else None for name in found}


def _value(kind: inspect.Type, text: str) -> Any:
    if not text:
        return None
    if isinstance(kind, inspect.BoolType):
        return _YES.get(text.lower(), text)
    if text[:1] in "[{":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"{text[:100]!r} is no JSON: {error}") from error
    return text


def _wrong(message: str, known: Mapping[str, inspect.Type], given: Mapping[str, Any]) -> str:
    """Return msgspec's message in words: the field, and which values may stand there."""
    text, _, place = message.partition(" - at `$.")
    path = place.removesuffix("`")
    name = re.split(r"[.\[]", path)[0]
    kind = known.get(name)
    if kind is None:
        return message
    each = ""
    if isinstance(kind, inspect.VarTupleType) and path != name:
        each, kind = "each value of ", kind.item_type
    wanted = ("" if "." in path else _words(kind)) or WANTED.get(path) or f"is wrong: {text}"
    value = given[name]
    said = f", not {value[:100]!r}" if isinstance(value, str) and path == name else ""
    return f"{each}{name if each else path} {wanted}{said}"


def _words(kind: inspect.Type) -> str:
    """Return the allowed values of a type; "" if they need more than a line."""
    match kind:
        case inspect.BoolType():
            return "must be yes or no"
        case inspect.LiteralType(values=values):
            return f"must be one of {', '.join(map(str, values))}"
        case inspect.IntType(ge=low, le=high):
            return f"must be a whole number{_limits(low, high)}"
        case inspect.FloatType(ge=low, le=high):
            return f"must be a number{_limits(low, high)}"
        case inspect.StrType(min_length=low, max_length=high, pattern=None):
            long = f",{_limits(low or 0, high)} characters long" if high else ""
            return f"must be a text{long}"
    return ""


def _limits(low: float | None, high: float | None) -> str:
    if high is None or high == UNBOUNDED:
        return "" if low is None else f" from {low:,} on"
    return f" from {low or 0:,} to {high:,}"


def person() -> str:
    """Return the user who calls the command, for the log of orders."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        name = "unknown"
    return f"{name}@{socket.gethostname()}"[:100]
