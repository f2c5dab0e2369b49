"""Options of a crawl as fields of a form, made from the record, which describes each of them.

A form is read field by field, so that all errors are shown at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
import msgspec.inspect as inspect
from msgspec import Struct

from greencrawl.monitor.field_errors import sentence
from greencrawl.monitor.page_request import Form
from greencrawl.monitor.words import Words
from greencrawl.schema.records import CrawlOptions

Kind = Literal["choice", "choices", "whole", "number", "text", "lines", "json"]
GROUPS: Mapping[str, tuple[str, ...]] = {
    "follow": (
        "scope", "include", "exclude", "depth", "order", "nofollow", "links", "sitemaps",
        "normalise", "follow_actions",
    ),
    "limits": ("max_pages", "max_bytes", "max_seconds", "host_pages", "shape_pages", "traps"),
    "politeness": (
        "delay", "slots", "address_rate", "address_connections", "domain_rate", "tries",
        "user_agent", "contact",
    ),
    "keep": (
        "max_body_bytes", "bodies", "main_text", "requisites", "noindex", "tdm", "canonical",
        "keep_versions",
    ),
}  # fmt: skip
"""Groups of fields in the form. Options that are in no group are in the last one, ``more``."""
BESIDE = frozenset({"seeds"})
"""Options that have a field of their own at the top."""


class Field(Struct, frozen=True, kw_only=True):
    """One option: its kind of field, and what the record says of it."""

    name: str
    kind: Kind
    description: str
    default: str
    """The default as text."""
    type: Any
    choices: tuple[str, ...] = ()
    least: float | None = None
    optional: bool = False
    """True if the field may be left empty."""
    standard: Any = None
    """The default itself."""

    def text(self, options: CrawlOptions) -> str:
        """Return the value of an option as the field shows it; lists a line each."""
        return self._text(getattr(options, self.name))

    def _text(self, value: Any) -> str:
        if value is None or value == ():
            return ""
        if self.kind == "json":
            return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2)
        if self.kind in ("lines", "choices"):
            return "\n".join(value)
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)

    def read(self, form: Form) -> Any:
        """Return the value in a form. Raises ValueError and msgspec's errors."""
        name = f"o.{self.name}"
        given: Any
        if name not in form or (self.kind in ("whole", "number") and not form.text(name)):
            return self.standard
        if self.kind in ("lines", "choices"):
            given = form.lines(name)
        else:
            text = form.text(name)
            if not text and (self.optional or self.kind == "json"):
                return None if self.optional else ()
            given = json.loads(text) if self.kind == "json" else text
        return msgspec.convert(given, self.type, strict=self.kind == "json")


def fields() -> tuple[Field, ...]:
    """Return all options, in the order of the record."""
    return _FIELDS


def groups() -> dict[str, list[Field]]:
    """Return options by group; those in no group are in ``more``."""
    by_name = {field.name: field for field in _FIELDS}
    grouped = {name for names in GROUPS.values() for name in names} | BESIDE
    found = {group: [by_name[name] for name in names] for group, names in GROUPS.items()}
    found["more"] = [field for field in _FIELDS if field.name not in grouped]
    return found


def read(form: Form, text: Words) -> tuple[CrawlOptions | None, dict[str, str]]:
    """Return the options in a form, or what is wrong by the name of the field, in words."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in _FIELDS:
        try:
            values[field.name] = field.read(form)
        except json.JSONDecodeError as error:
            wrong[field.name] = text("mistake.json", where=error.lineno, why=error.msg)
        except msgspec.ValidationError as error:
            wrong[field.name] = sentence(text, error, field.choices)
    if wrong:
        return None, wrong
    return CrawlOptions(**values), {}


def changed(before: CrawlOptions, after: CrawlOptions) -> Iterator[tuple[Field, str, str]]:
    """Yield (option, its value before, after) of those that differ."""
    for field in _FIELDS:
        old, new = field.text(before), field.text(after)
        if old != new:
            yield field, old, new


def sent(options: CrawlOptions) -> dict[str, str]:
    """Return the form of these options: field name → text."""
    return {f"o.{field.name}": field.text(options) for field in _FIELDS}


def _made() -> Iterator[Field]:
    info = inspect.type_info(CrawlOptions)
    assert isinstance(info, inspect.StructType)
    types = {one.name: one.type for one in msgspec.structs.fields(CrawlOptions)}
    for field in info.fields:
        kind, description, optional = _unwrapped(field.type)
        made = Field(
            name=field.name,
            kind=_kind(kind),
            description=description,
            default="",
            type=types[field.name],
            choices=_choices(kind),
            least=getattr(kind, "ge", None),
            optional=optional,
            standard=field.default,
        )
        yield msgspec.structs.replace(made, default=made._text(field.default))


def _unwrapped(kind: inspect.Type) -> tuple[inspect.Type, str, bool]:
    """Return (type, description, whether it may be left out)."""
    description, optional = "", False
    if isinstance(kind, inspect.Metadata):
        description = str((kind.extra_json_schema or {}).get("description", ""))
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        said_ones = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        optional = len(said_ones) < len(kind.types)
        if len(said_ones) == 1:
            (kind,) = said_ones
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind, description, optional


def _kind(kind: inspect.Type) -> Kind:
    match kind:
        case inspect.LiteralType():
            return "choice"
        case inspect.IntType():
            return "whole"
        case inspect.FloatType():
            return "number"
        case inspect.StrType():
            return "text"
        case inspect.VarTupleType(item_type=inspect.LiteralType()):
            return "choices"
        case inspect.VarTupleType(item_type=inspect.StrType()):
            return "lines"
        case inspect.VarTupleType(item_type=inspect.Metadata(type=inspect.StrType())):
            return "lines"
        case _:
            return "json"


def _choices(kind: inspect.Type) -> tuple[str, ...]:
    if isinstance(kind, inspect.VarTupleType):
        kind = kind.item_type
    return tuple(map(str, kind.values)) if isinstance(kind, inspect.LiteralType) else ()


_FIELDS = tuple(_made())
