"""The change that an order makes, as the log of orders keeps it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from greencrawl.schema.records import FORGOTTEN, NodeOptions, NodeOrders


def changes(before: NodeOptions, after: NodeOptions) -> dict[str, Any]:
    """Return option → new value, for options that changed; None: the option is no longer
    ordered."""
    known = asdict(before)
    return {name: value for name, value in asdict(after).items() if value != known[name]}


def forgotten(known: NodeOrders, kept: NodeOptions) -> dict[str, Any]:
    """Return the entry of the log for a forgotten node; its orders in ``kept`` stay."""
    return {FORGOTTEN: True, **changes(known.options, kept)}
