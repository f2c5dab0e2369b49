"""Nodes: their members, their state, their orders; and who ordered what."""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import quote

import msgspec
from msgspec import Struct

from greencrawl.broker.service.members import NodeStays, UnknownNode
from greencrawl.broker.service.shared.crawl_actions import Missing
from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View, whole
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import (
    ALL,
    FOLLOWED,
    Facts,
    FailureKind,
    MemberState,
    NodeOptions,
    NodeOrders,
    OptionName,
)
from greencrawl.store.base import NEVER

BY = "monitor"
GONE = 20
"""At most this many members that have left or are lost are shown, the latest."""
LOGGED = 50
"""A page of the log has at most this many orders."""
NAMES: tuple[OptionName, ...] = get_args(OptionName)
_KINDS = frozenset(FailureKind)


class Node(Struct, frozen=True, kw_only=True):
    """A node with its processes; sums are over those that are here."""

    name: str
    kind: str
    members: tuple[MemberState, ...]
    ordered: NodeOptions

    @property
    def here(self) -> int:
        """Return how many processes reported lately."""
        return sum(one.status == "here" for one in self.members)

    def sum(self, fact: str) -> float:
        """Return the sum of a fact, over its processes that are here."""
        here = (one.facts for one in self.members if one.status == "here")
        return sum(float(getattr(facts, fact)) for facts in here)

    @property
    def said(self) -> list[tuple[str, str]]:
        """Return the node's orders."""
        return _said(self.ordered)

    @property
    def disk(self) -> float:
        """Return the used share of the fullest disk."""
        return max((one.facts.disk_used for one in self.members), default=0.0)


class Field(Struct, frozen=True, kw_only=True):
    """An option that may be ordered of a node; ``value`` is "" without an order."""

    name: str
    description: str
    choices: tuple[str, ...]
    value: str


def nodes(request: PageRequest) -> Data:
    """Return all nodes, those that are gone, and the orders for all."""
    found = request.service.members.list(gone=True)
    there = [one for one in found if not one.left_ms]
    gone = sorted((one for one in found if one.left_ms), key=lambda one: -one.left_ms)
    names = dict.fromkeys((one.node, one.kind) for one in sorted(there, key=lambda one: one.id))
    rows = [
        Node(
            name=name,
            kind=kind,
            members=tuple(one for one in there if (one.node, one.kind) == (name, kind)),
            ordered=_ordered(request, name).options,
        )
        for name, kind in names
    ]
    unheard = bool(rows) and not any(row.here for row in rows)
    return {
        "nodes": rows, "gone": gone[:GONE], "all": _said(_ordered(request, ALL).options),
        "redis_away": unheard and bool(request.service.frontier.nodes_away()),
    }  # fmt: skip


def node(request: PageRequest) -> Data:
    """Return one node's processes, and the options that each follows, with who set them."""
    name = request.path["node"]
    members = [one for one in request.service.members.list(gone=True) if one.node == name]
    if name != ALL and not members:
        raise Missing(f"no node is called {name[:100]!r}")
    there = [one for one in members if not one.left_ms]
    members = there or sorted(members, key=lambda one: one.left_ms)[-1:]
    return {"name": name, "members": members, "said": _text, "failures": _failures}


def form(request: PageRequest) -> Data:
    """Return a form with its orders: the options that its kind follows. Raises Missing."""
    name = request.path["node"]
    ordered = _ordered(request, name)
    followed = _followed(request, name)
    fields = [
        Field(
            name=one.name,
            description=_description(one.type),
            choices=_choices(one.type),
            value=_text(getattr(ordered.options, one.name)),
        )
        for one in msgspec.structs.fields(NodeOptions)
        if one.name in followed or getattr(ordered.options, one.name) is not None
    ]
    here = any(one.node == name and not one.left_ms for one in request.service.store.members())
    return {
        "name": name, "fields": fields, "revision": ordered.revision, "all": ALL,
        "gone": name != ALL and not here,
    }  # fmt: skip


def order(request: PageRequest, form: Form) -> Redirect:
    """Order the options of a form; the order for an option with an empty field is taken back."""
    name = request.path["node"]
    given = {one: form.text(f"o.{one}") for one in NAMES if f"o.{one}" in form}
    options = msgspec.convert({k: v for k, v in given.items() if v}, NodeOptions, strict=False)
    before = _ordered(request, name).options
    unset = tuple(
        one for one, said in given.items() if not said and getattr(before, one) is not None
    )
    revision = form.number("revision")
    try:
        done = request.service.members.order(name, options, unset, by_whom=BY, revision=revision)
    except UnknownNode as error:
        raise Missing(str(error)) from error
    if done is None:
        raise InvalidConfig([("revision", request.words("node.changed_meanwhile"))])
    back = f"/monitor/nodes/{quote(name, safe='')}" if form.text("stay") else "/monitor/nodes"
    return Redirect(back, "ordered")


def forget(request: PageRequest, form: Form) -> Redirect:
    """Forget a node that is gone for good. Raises Missing, and InvalidConfig if it is here
    again."""
    name = request.path["node"]
    try:
        request.service.members.forget(name, BY)
    except UnknownNode as error:
        raise Missing(str(error)) from error
    except NodeStays as error:
        raise InvalidConfig([("node", str(error))]) from error
    return Redirect("/monitor/nodes", "forgotten")


def orders(request: PageRequest) -> Data:
    """Return who ordered what, and who changed options of crawls, the latest first."""
    before = whole(request.asked("before"))
    rows = request.service.members.log(LOGGED, before=NEVER if before is None else before)
    full = len(rows) == LOGGED
    return {
        "rows": [(one, _changes(one.changed)) for one in rows],
        "next": f"?before={rows[-1].revision}" if full else "",
        "first": before is None,
        "all": ALL,
    }


def _ordered(request: PageRequest, name: str) -> NodeOrders:
    known = request.service.members.refresh().nodes
    return next((one for one in known if one.member == name), NodeOrders(member=name))


def _followed(request: PageRequest, name: str) -> set[OptionName]:
    """Return the options that a node follows; for ``all``, the options of any node.

    Raises Missing.
    """
    if name == ALL:
        return set(NAMES)
    kinds = {one.kind for one in request.service.store.members() if one.node == name}
    if not kinds:
        raise Missing(f"no node is called {name[:100]!r}")
    return {one for kind in kinds for one in FOLLOWED[kind]}


def _failures(facts: Facts) -> dict[str, int]:
    """Return failures by kind, without parked URLs, which workers count there, too."""
    return {kind: n for kind, n in facts.failures.items() if kind in _KINDS}


def _said(options: NodeOptions) -> list[tuple[str, str]]:
    return [(one, _text(value)) for one in NAMES if (value := getattr(options, one)) is not None]


def _changes(changed: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in changed.items()]


def _text(value: Any) -> str:
    """Return a value as fields show it; "" for what is not ordered."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _description(kind: Any) -> str:
    schema = msgspec.json.schema(kind)
    return str(schema.get("description", ""))


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the possible values, if there are only a few."""
    schema = msgspec.json.schema(kind)
    for one in schema.get("anyOf", [schema]):
        if one.get("type") == "boolean":
            return ("true", "false")
        if "enum" in one:
            return tuple(str(value) for value in one["enum"] if value is not None)
    return ()


VIEWS = (
    View(name="nodes", path="/monitor/nodes", part=nodes, nav=True),
    View(name="node", path="/monitor/nodes/{node}", part=node, frame=form),
    View(name="orders", path="/monitor/orders", frame=orders, nav=True),
)
ACTIONS = (
    Action(path="/monitor/nodes/{node}", run=order),
    Action(path="/monitor/nodes/{node}/forget", run=forget),
)
