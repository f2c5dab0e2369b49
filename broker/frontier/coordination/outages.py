"""Notes in Redis that the store takes no writes: the store itself cannot keep such a note.

A broker that has just written under a duty says that the store is writable, for some seconds. A
broker that cannot write, and sees no such note of another broker, notes the outage unless it is
noted already. The coordinator finds the note when it can write again. Each note is written to the
first node that answers, so a reader asks all nodes. If Redis is lost meanwhile, or no node answers,
nobody knows of the outage.
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
"""How long after a write the store counts as writable."""
KEPT_SECONDS = 7 * 86_400.0
"""How long the note of an outage is kept."""

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
"""ARGV: the note, its life in ms, and a condition: NX (only if there is no note), XX (only if there
is one), or none. It also works at the memory limit."""


class Outage(Struct, frozen=True):
    """An outage: the store takes no writes since ``at_ms`` (Unix time), for the reason in ``text``.

    ``told``: a message about it was delivered.
    """

    at_ms: int
    text: str
    told: bool = False

    def alert(self, over_ms: int = 0) -> Alert:
        """Return the outage as an alert."""
        return Alert(
            kind="store_not_writable", subject="store", text=self.text, since_ms=self.at_ms,
            began_ms=self.at_ms, over_ms=over_ms, told=int(self.told),
        )  # fmt: skip


class Outages(Protocol):
    """The part of :class:`StoreOutages` that others use."""

    def writable(self) -> None:
        """See :class:`StoreOutages`."""

    def begin(self, outage: Outage) -> bool:
        """See :class:`StoreOutages`."""

    def note_told(self, outage: Outage) -> None:
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
        """Note that the store has just taken a write."""
        milliseconds = round(1000 * WRITABLE_SECONDS)
        for node in self._nodes:
            try:  # one plain command: it is sent all day
                node.command("SET", keys.WRITABLE, b"1", "PX", milliseconds)
                return
            except Unavailable:
                continue
        self._put(keys.WRITABLE, b"1", WRITABLE_SECONDS, "")

    def begin(self, outage: Outage) -> bool:
        """Note an outage; return False if it is noted already, or if a broker has just written."""
        if any(self._get(keys.WRITABLE)) or self.open() is not None:
            return False
        return self._put(keys.OUTAGE, to_msgpack(outage), KEPT_SECONDS, "NX")

    def note_told(self, outage: Outage) -> None:
        """Note that people were told of the outage."""
        known = Outage(outage.at_ms, outage.text, told=True)
        self._put(keys.OUTAGE, to_msgpack(known), KEPT_SECONDS, "XX")

    def open(self) -> Outage | None:
        """Return the noted outage."""
        found = [from_msgpack(one, Outage) for one in self._get(keys.OUTAGE)]
        return min(found, key=lambda one: one.at_ms, default=None)

    def end(self) -> None:
        """Delete the note: the outage is over, and the store has recorded it."""
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
