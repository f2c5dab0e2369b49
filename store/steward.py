"""Says whether a store needs a steward, which code runs it, and what it observed of the servers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from greencrawl.store.mysql.cluster import topology

if TYPE_CHECKING:
    from greencrawl.store.mysql.cluster.steward.servers import Report
    from greencrawl.store.mysql.cluster.steward.steward import Steward


class RingServer(Struct, frozen=True, kw_only=True):
    """A server of a ring.

    ``lag_seconds`` is how far it lags behind the server that it ``follows``, None if that is not
    known; ``why`` says why it could not be asked.
    """

    name: str
    role: Literal["writer", "partner", "master", "replica"]
    up: bool
    follows: str = ""
    lag_seconds: float | None = None
    why: str = ""


class Ring(Struct, frozen=True, kw_only=True):
    """The server that takes writes, the ``epoch`` of its term, and the server that acknowledges
    them, "" if there is none.

    ``findings`` say what is wrong, and what to do; ``seen_ms`` is the time of this observation
    (Unix time).
    """

    epoch: int = 0
    writer: str = ""
    partner: str = ""
    servers: tuple[RingServer, ...] = ()
    findings: tuple[str, ...] = ()
    seen_ms: int = 0


def ring_of(steward: Steward | None) -> Ring | None:
    """Return what a running steward has observed in its last pass.

    It asks no server. None before the first pass, and for a store without a steward.
    """
    if steward is None or steward.seen is None:
        return None
    report, seen_ms = steward.seen
    term = report.term
    masters = {str(server) for server in steward.topology.masters}
    return Ring(
        epoch=term.epoch if term is not None else 0,
        writer=term.writer if term is not None else "",
        partner=term.partner if term is not None else "",
        servers=_servers(report, masters),
        findings=report.findings,
        seen_ms=seen_ms,
    )


def _servers(report: Report, masters: set[str]) -> tuple[RingServer, ...]:
    roles: dict[str, Literal["writer", "partner"]] = {}
    if report.term is not None:
        roles = {report.term.partner: "partner", report.term.writer: "writer"}
    return tuple(
        RingServer(
            name=one.name,
            role=roles.get(one.name, "master" if one.name in masters else "replica"),
            up=one.up,
            follows=one.following.leader if one.following is not None else "",
            lag_seconds=one.following.behind_seconds if one.following is not None else None,
            why=one.error,
        )
        for one in report.servers
    )


def steward_of(url: str, account: str = "") -> Steward | None:
    """Return the steward of a ring of masters; None for any other store.

    ``account`` is ``USER:PASSWORD``, "" for that of ``url``. Raises InvalidConfig.
    """
    if not url.startswith("mysql://"):
        return None
    servers = topology.parse(url)
    if not servers.ring:
        return None
    from greencrawl.store.mysql.cluster.steward.steward import Steward

    user, _, password = account.partition(":")
    return Steward(replace(servers, user=user, password=password) if user else servers)
