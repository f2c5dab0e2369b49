"""Redis keeps a note that the store takes no writes, because the store cannot keep it then.

A broker that has just written under a duty says that the store is writable, for some seconds. A
broker that cannot write, and sees no other broker that says so, notes the outage if nobody noted it
before. The coordinator finds the note when it can write again. All is on the first node that
answers, so it is looked for on all. If Redis is lost meanwhile, or no node answers, nobody knows of
the outage.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Alert
from greencrawl.schema.wire import from_msgpack, to_msgpack

WRITABLE_SECONDS = 40.0
"""So long after somebody has written the store counts as writable."""
KEPT_SECONDS = 7 * 86_400.0
"""A note of an outage is kept for so long."""

_PUT = f"""
redis.call('DEL', '{keys.NIL}')
local put
if ARGV[3] == '' then
  put = redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
else
  put = redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], ARGV[3])
end
return put and 1 or 0
"""
"""ARGV: what to write, for how many ms; NX: only if nothing is there, XX: only if something is, or
nothing. At the memory limit, too."""


class Outage(Struct, frozen=True):
    """The store takes no writes since ``at_ms`` (epoch), as ``text`` says.

    ``told``: its webhook was told.
    """

    at_ms: int
    text: str
    told: bool = False

    def alert(self, over_ms: int = 0) -> Alert:
        """The alert that it is."""
        return Alert(
            kind="store_not_writable", subject="store", text=self.text, since_ms=self.at_ms,
            began_ms=self.at_ms, over_ms=over_ms, told=int(self.told),
        )  # fmt: skip


class Outages(Protocol):
    """What is needed of :class:`StoreOutages`."""

    def writable(self) -> None:
        """See :class:`StoreOutages`."""

    def begin(self, outage: Outage) -> bool:
        """See :class:`StoreOutages`."""

    def told(self, outage: Outage) -> None:
        """See :class:`StoreOutages`."""

    def open(self) -> Outage | None:
        """See :class:`StoreOutages`."""

    def end(self) -> None:
        """See :class:`StoreOutages`."""


class StoreOutages:
    """One broker's view. Every method raises Unavailable if no node answers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def writable(self) -> None:
        """The store has just taken a write."""
        milliseconds = round(1000 * WRITABLE_SECONDS)
        for node in self._nodes:
            try:  # one plain command: it is said all day
                node.command("SET", keys.WRITABLE, b"1", "PX", milliseconds)
                return
            except Unavailable:
                continue
        self._put(keys.WRITABLE, b"1", WRITABLE_SECONDS, "")

    def begin(self, outage: Outage) -> bool:
        """Note an outage; False if somebody did already, or has written just now."""
        if any(self._get(keys.WRITABLE)) or self.open() is not None:
            return False
        return self._put(keys.OUTAGE, to_msgpack(outage), KEPT_SECONDS, "NX")

    def told(self, outage: Outage) -> None:
        """People know of it."""
        known = Outage(outage.at_ms, outage.text, told=True)
        self._put(keys.OUTAGE, to_msgpack(known), KEPT_SECONDS, "XX")

    def open(self) -> Outage | None:
        """What is noted."""
        found = [from_msgpack(one, Outage) for one in self._get(keys.OUTAGE)]
        return min(found, key=lambda one: one.at_ms, default=None)

    def end(self) -> None:
        """It is over, and the store knows of it."""
        for node in self._nodes:
            with suppress(Unavailable):
                node.command("DEL", keys.OUTAGE)

    def _put(self, key: str, what: bytes, seconds: float, only: str) -> bool:
        why: Unavailable | None = None
        for node in self._nodes:
            try:
                put = node.command("EVAL", _PUT, 1, key, what, round(seconds * 1000), only)
                return bool(put)
            except Unavailable as error:
                why = error
        raise why or Unavailable("there is no Redis node")

    def _get(self, key: str) -> list[bytes]:
        found, answered = list[bytes](), False
        for node in self._nodes:
            with suppress(Unavailable):
                one = node.command("GET", key)
                answered = True
                if one is not None:
                    found.append(one)
        if not answered:
            raise Unavailable("no Redis node answers")
        return found
