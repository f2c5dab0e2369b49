"""The state of every server of the ring.

All servers are asked at the same time; each gives an answer or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import gevent
from msgspec import Struct, field

from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.admin import Admin
from greencrawl.store.mysql.cluster.topology import Server
from greencrawl.store.mysql.connection import is_gone

_VARIABLES = (
    "server_id", "version", "read_only", "gtid_domain_id", "gtid_binlog_pos", "gtid_slave_pos",
    "gtid_strict_mode", "log_bin", "rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled",
    "rpl_semi_sync_master_timeout", "rpl_semi_sync_master_wait_point",
    "innodb_flush_log_at_trx_commit", "sync_binlog",
)  # fmt: skip


_LACKING = 1236


class Following(Struct, frozen=True, kw_only=True):
    """The leader of a server. ``fetched`` is how far the server has copied; its position is how far
    it has applied."""

    leader: str
    fetching: bool
    applying: bool
    stopped: bool = False
    """True if a thread of the replication has stopped, and does not merely try to connect."""
    behind_seconds: float | None = None
    """Seconds, None while not connected."""
    error: str = ""
    until: bool = False
    """True if the server stops at a given position."""
    lacking: bool = False
    """True if the leader's log lacks the next transaction for this server."""
    fetched: dict[int, int] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Return whether the server is connected to its leader, and applies what it fetches."""
        return self.fetching and self.applying


class Observation(Struct, frozen=True, kw_only=True):
    """One server. ``error`` says why it could not be asked; the other fields mean nothing then."""

    server: Server
    error: str = ""
    refusal: Literal["", "account", "busy"] = ""
    """Why the server answered with an error; "" if no answer came.

    "account": it refuses our account or what we ask. "busy": it has too many connections, for
    example.
    """
    server_id: int = 0
    version: str = ""
    read_only: bool = True
    domain: int = 0
    position: dict[int, int] = field(default_factory=dict)
    """The last transaction of each GTID domain that it has written or applied."""
    epoch: int = 0
    """The epoch of its fence."""
    open: bool = False
    """True if its fence lets transactions of ``epoch`` through."""
    asks_ack: bool = False
    """True if commits wait here for an acknowledgement."""
    gives_ack: bool = False
    acknowledged: bool = False
    """True if commits really wait: the server has not fallen back to asynchronous commits."""
    clients: int = 0
    """Acknowledging servers that are connected."""
    hanging: int = 0
    """Commits that wait for an acknowledgement."""
    acks: int = 0
    """Commits that got an acknowledgement."""
    ack_timeout_ms: int = 0
    wait_point: str = ""
    flush: int = 0
    strict: bool = False
    uptime_seconds: int = 0
    following: Following | None = None

    @property
    def up(self) -> bool:
        """Return whether the server could be asked."""
        return not self.error

    @property
    def name(self) -> str:
        """Return ``host:port``, the name of the server everywhere."""
        return str(self.server)


def together(calls: Sequence[Callable[[], object]]) -> list[object]:
    """Run ``calls`` at the same time; an exception comes back as a value."""

    def safely(call: Callable[[], object]) -> object:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            return error

    started = [gevent.spawn(safely, call) for call in calls]
    gevent.joinall(started)
    return [one.value for one in started]


def observe(admins: Sequence[Admin]) -> list[Observation]:
    """Observe each server; those that do not answer in time have an ``error``."""

    def look(admin: Admin) -> Observation:
        try:
            return _look(admin)
        except GreencrawlError as error:
            return Observation(server=admin.server, error=str(error), refusal=_refusal(error))

    found = together([partial(look, admin) for admin in admins])
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if isinstance(one, Observation)]


def _refusal(error: GreencrawlError) -> Literal["", "account", "busy"]:
    if isinstance(error, InvalidConfig):
        return "account"
    return "" if error.__cause__ is None or is_gone(error.__cause__) else "busy"


def _look(admin: Admin) -> Observation:
    admin.probe()
    # Read the fence first: a steward that opens a server sets the domain before it, and read_only
    # after it.
    epoch, opened = admin.fence()
    has = admin.variables(*_VARIABLES)
    semi = admin.status("Rpl_semi_sync_master_%")
    uptime = admin.status("Uptime")
    return Observation(
        server=admin.server,
        server_id=has["server_id"],
        version=has["version"],
        read_only=bool(has["read_only"]),
        domain=has["gtid_domain_id"],
        position=gtid.later(gtid.parse(has["gtid_binlog_pos"]), gtid.parse(has["gtid_slave_pos"])),
        epoch=epoch,
        open=opened,
        asks_ack=bool(has["rpl_semi_sync_master_enabled"]),
        gives_ack=bool(has["rpl_semi_sync_slave_enabled"]),
        acknowledged=semi.get("rpl_semi_sync_master_status") == "ON",
        clients=int(semi.get("rpl_semi_sync_master_clients", 0)),
        hanging=int(semi.get("rpl_semi_sync_master_wait_sessions", 0)),
        acks=int(semi.get("rpl_semi_sync_master_yes_tx", 0)),
        ack_timeout_ms=has["rpl_semi_sync_master_timeout"],
        wait_point=has["rpl_semi_sync_master_wait_point"],
        flush=has["innodb_flush_log_at_trx_commit"],
        strict=bool(has["gtid_strict_mode"]) and bool(has["log_bin"]),
        uptime_seconds=int(uptime.get("uptime", 0)),
        following=_following(admin.slave()),
    )


def _following(row: Any) -> Following | None:
    if not row:  # there is no row while no master is named
        return None
    lag = row["Seconds_Behind_Master"]
    return Following(
        leader=str(Server(row["Master_Host"], row["Master_Port"])),
        fetching=row["Slave_IO_Running"] == "Yes",
        applying=row["Slave_SQL_Running"] == "Yes",
        stopped="No" in (row["Slave_IO_Running"], row["Slave_SQL_Running"]),
        behind_seconds=None if lag is None else float(lag),
        error=row["Last_SQL_Error"] or row["Last_IO_Error"],
        until=row["Until_Condition"] == "Gtid",
        lacking=row["Last_IO_Errno"] == _LACKING,
        fetched=gtid.parse(row["Gtid_IO_Pos"]),
    )
