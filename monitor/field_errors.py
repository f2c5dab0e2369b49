"""Errors in a field, in a person's words and language.

Records are checked by msgspec, whose messages speak of types: these messages are replaced. Our own
messages stay, since they say in words what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.monitor.words import Words

_KINDS = {
    "int": "mistake.whole", "float": "mistake.number", "bool": "mistake.bool",
    "str": "mistake.text", "array": "mistake.list", "object": "mistake.object",
}  # fmt: skip
_TYPE = re.compile(r"Expected `(?P<kind>\w+)(?: \| null)?`(?:, got `\w+`)?")
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<sign>>=|<=|>|<) (?P<bound>[\d.e+-]+)")
_LENGTH = re.compile(r"Expected `\w+` of length (?P<sign>>=|<=) (?P<bound>\d+)")
_CHOICE = re.compile(r"Invalid enum value .*", re.DOTALL)
_FIELD = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<name>[^`]*)`")
_BOUNDS = {">=": "least", ">": "above", "<=": "most", "<": "below"}


def plainly(text: Words, what: str, choices: Sequence[str] = ()) -> str:
    """Return msgspec's message ``what`` in words; ``choices`` are the allowed values if they are
    few."""
    if found := _TYPE.fullmatch(what):
        key = _KINDS.get(found["kind"])
        return text(key) if key else what
    if found := _BOUND.fullmatch(what):
        return text(f"mistake.{_BOUNDS[found['sign']]}", bound=f"{float(found['bound']):,.15g}")
    if found := _LENGTH.fullmatch(what):
        which = "longer" if found["sign"] == ">=" else "shorter"
        return text(f"mistake.{which}", n=int(found["bound"]))
    if _CHOICE.fullmatch(what):
        listed = ", ".join(choices)
        return text("mistake.choice", choices=listed) if listed else text("mistake.word")
    if found := _FIELD.fullmatch(what):
        which = "unknown" if found["how"] == "contains unknown" else "missing"
        return text(f"mistake.{which}", name=found["name"])
    return what


def field_errors(
    text: Words, error: msgspec.ValidationError, choices: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return (field, what is wrong with it) pairs; the field is a path, "" for the whole."""
    known = error_parts(error)
    if known is None:
        return [("", plainly(text, str(error), choices))]
    return [
        ("" if field == "body" else field, plainly(text, what, choices)) for field, what in known[2]
    ]


def sentence(text: Words, error: msgspec.ValidationError, choices: Sequence[str] = ()) -> str:
    """Return all mistakes in one line."""
    found = field_errors(text, error, choices)
    return "; ".join(f"{field}: {what}" if field else what for field, what in found)
