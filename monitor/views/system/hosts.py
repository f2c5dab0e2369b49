"""Hosts: slow, blocked or slowed-down ones, and the state of one."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from greencrawl.broker.service.shared.queries import host_name
from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, HostPatch, HostState

CRAWLS = 5
"""A host's page links to the host's pages in at most this many crawls, the newest."""
SHOWN = 200
"""At most this many blocked hosts, and as many hosts with an operator's delay, are shown."""


def hosts(request: PageRequest) -> Data:
    """Return hosts that may need attention."""
    store = request.service.store
    slowest: list[tuple[HostState, HostState | None]] = []
    why = ""
    try:
        slowest = [(one, _state(request, one.host)) for one in request.figures.system().slowest]
    except Unavailable as error:
        why = str(error)
    blocks = sorted(store.blocks(request.now_ms), key=lambda one: one[1])
    delays = sorted(store.delays().items())
    return {
        "slowest": slowest, "why": why, "blocks": blocks[:SHOWN], "delays": delays[:SHOWN],
        "more": max(len(blocks), len(delays)) > SHOWN,
    }  # fmt: skip


def _state(request: PageRequest, name: str) -> HostState | None:
    """Return the state of a listed host; None if its node does not answer."""
    try:
        return request.figures.host(name)
    except Unavailable:
        return None


def host(request: PageRequest) -> Data:
    """Return the state of one host. Raises InvalidUrl for an invalid host."""
    name = host_name(request.path["host"])
    state = request.figures.host(name)
    return {"name": name, "host": state, "operator_ms": request.service.store.delay(name)}


def name(request: PageRequest) -> Data:
    """Return the data that do not change: the name of the host as the frontier spells it, and the
    latest crawls that may have its pages."""
    name = host_name(request.path["host"])
    mine = [one for one in request.figures.crawls() if _in_scope(one, name)]
    return {"name": name, "crawls": mine[-CRAWLS:]}


def _in_scope(crawl: Crawl, name: str) -> bool:
    """Return whether the roots of a crawl allow pages of a host."""
    bare = name.partition(":")[0]
    return any(
        root == "*" or root.partition("/")[0] == name or f".{bare}".endswith(f".{root}")
        for root in crawl.roots
    )


def change(request: PageRequest, form: Form) -> Redirect:
    """Set the least delay of a host, or block it (both in seconds); 0 ends delay or block."""
    named = host_name(request.path["host"])
    given = {one: form.text(one) for one in ("delay", "block") if form.text(one)}
    patch = msgspec.convert(given, HostPatch, strict=False)
    request.service.frontier.patch_host(named, patch)
    return Redirect(_place(named), "host_changed")


def _place(named: str) -> str:
    return f"/monitor/hosts/{quote(named, safe='')}"


VIEWS = (
    View(name="hosts", path="/monitor/hosts", part=hosts, nav=True),
    View(name="host", path="/monitor/hosts/{host}", part=host, frame=name),
)
ACTIONS = (Action(path="/monitor/hosts/{host}", run=change),)
