"""Options that commands share, and those of ``crawl``: the fields of its record.

Names, limits, help texts and defaults of the crawl's options are only in :class:`CrawlOptions`;
this module turns each of its fields into a click option. An option that was not given is None, so
that a value from a TOML file or the record's default can count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec.inspect as inspect

from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.records.crawl import ADDRESS_CONNECTIONS, ADDRESS_RATE, DOMAIN_RATE
from greencrawl.schema.text.moments import SINCE, STATUS, since_ms, status_range

F = TypeVar("F", bound=Callable[..., Any])

UNBOUNDED = 2**53
"""This limit stands for no limit: larger JSON numbers lose digits."""

METAVARS = {
    "delay": "SECONDS",
    "address_rate": "N",
    "domain_rate": "N",
    "max_seconds": "SECONDS",
    "max_bytes": "BYTES",
    "max_body_bytes": "BYTES",
    "include": "REGEX",
    "exclude": "REGEX",
    "hook": "MODULE",
    "normalise": "RULE",
    "contact": "TEXT",
    "user_agent": "TEXT",
}
"""The placeholder of the value in the help, if N is not clear, or if a list would be too long."""


UNSAID = {
    "address_rate": ADDRESS_RATE,
    "address_connections": ADDRESS_CONNECTIONS,
    "domain_rate": DOMAIN_RATE,
}
"""The value of an option that is not given."""

_APART = frozenset({"seeds", "auth", "sources", "kernels", "recrawl"})
"""Fields without an option: seeds are the arguments, and tables are given in a TOML file."""


def fields() -> list[inspect.Field]:
    """Return the fields that become options of the command, in the order of the record."""
    info = inspect.type_info(CrawlOptions)
    assert isinstance(info, inspect.StructType)
    return [field for field in info.fields if field.name not in _APART]


def unwrap(field: inspect.Field) -> tuple[inspect.Type, str]:
    """Return (type, description) of a field, without the metadata around the type."""
    kind, description = field.type, ""
    if isinstance(kind, inspect.Metadata):
        description = str((kind.extra_json_schema or {}).get("description", ""))
        kind = kind.type
    if isinstance(kind, inspect.UnionType):  # None in the union: the option was not given
        (kind,) = (one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind, description


def default_text(field: inspect.Field) -> str:
    """Return the default as help and docs show it; "" becomes "none"."""
    if field.default in ((), ""):
        return "none"
    if field.default is None:
        return f"{UNSAID[field.name]:g}, but none in GREENCRAWL_ALLOW_NETWORKS"
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


class _WholeNumber(click.IntRange):
    name = "whole number"  # click says "integer range", also in its message for `ten`


class _Number(click.FloatRange):
    name = "number"


def _click_type(kind: inspect.Type) -> click.ParamType[Any]:
    match kind:
        case inspect.LiteralType(values=values):
            return click.Choice([str(value) for value in values])
        case inspect.IntType(ge=low, le=high):
            return _WholeNumber(low, None if high == UNBOUNDED else high)
        case inspect.FloatType(ge=low, le=high):
            return _Number(low, high)
        case _:
            return click.STRING


def _of_one(kind: inspect.Type) -> inspect.Type:
    """Return the type of one value of an option that may be repeated."""
    return kind.item_type if isinstance(kind, inspect.VarTupleType) else kind


def crawl_options(function: F) -> F:
    """Decorate a click command with one option for each field of the record."""
    for field in reversed(fields()):
        kind, description = unwrap(field)
        repeated = isinstance(kind, inspect.VarTupleType)
        more = "; may be repeated" if repeated else ""
        one = _of_one(kind)
        if field.name in METAVARS and isinstance(one, inspect.LiteralType):
            more += f"; a {METAVARS[field.name]} is one of {', '.join(map(str, one.values))}"
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            field.name,
            type=_click_type(one),
            multiple=repeated,
            default=None,
            metavar=METAVARS.get(field.name) or _metavar(kind),
            help=f"{description}{more}.  [default: {default_text(field)}]",
        )(function)
    return function


class _Parsed(click.ParamType[Any]):
    """An option whose text is parsed by a function that raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


since = click.option(
    "--since",
    type=_Parsed("time", since_ms),
    default=0,
    metavar="TIME",
    help=f"Only what was fetched at that moment or later: {SINCE}.  [default: all]",
)
"""Gives a command the argument ``since``: Unix milliseconds, 0 for all."""

status = click.option(
    "--status",
    type=_Parsed("status", status_range),
    default=(0, 999),
    metavar="STATUS",
    help=f"Only pages with {STATUS}.  [default: all]",
)
"""Gives a command the argument ``status``: the lowest and the highest wanted status."""


def _metavar(kind: inspect.Type) -> str | None:
    return "N" if isinstance(kind, inspect.IntType) else None


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the crawl that were given on the command line."""
    names = {field.name for field in fields()}
    return {
        name: value for name, value in values.items() if name in names and value not in (None, ())
    }
