"""The latest reports of members, as all brokers see them: beats that expire by themselves.

A beat is one key in Redis, and one command: an idle system must leave Redis alone. A beat is
written to the first node that answers, so a reader asks all nodes. If Redis loses a beat, the next
beat replaces it; at the memory limit Redis refuses beats. Beats decide only what people see, and
which members count as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import BEAT_SECONDS, Facts
from greencrawl.schema.wire import from_msgpack, to_msgpack

BeatStatus = Literal["known", "new", "older"]

_GONE = """
local known = redis.call('GET', KEYS[1])
if known and string.match(known, '^%d+') == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
"""ARGV: incarnation."""


class Beat(NamedTuple):
    """The last report of a member; ``heard_ms`` is by the clock of the broker that heard it."""

    incarnation: int
    heard_ms: int
    facts: Facts


class Beats(Protocol):
    """The methods of :class:`MemberBeats` that other modules use."""

    def beat(self, member: str, incarnation: int, facts: Facts) -> BeatStatus:
        """See :class:`MemberBeats`."""

    def life(self, member: str) -> int:
        """See :class:`MemberBeats`."""

    def gone(self, member: str, incarnation: int) -> None:
        """See :class:`MemberBeats`."""

    def heard(self, members: Iterable[str]) -> dict[str, Beat]:
        """See :class:`MemberBeats`."""


class MemberBeats:
    """The beats of all members on the nodes of a frontier."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def beat(self, member: str, incarnation: int, facts: Facts) -> BeatStatus:
        """Keep a member's report; return whether this life of the member was ``known`` or is
        ``new``.

        A report of an ``older`` life is not kept. Raises Unavailable when no node answers, or when
        the first node that answers is at its memory limit.
        """
        told = _written(incarnation, epoch_ms(), facts)
        why: Unavailable | None = None
        for node in self._nodes:
            try:
                before = self._put(node, member, told)
            except Unavailable as error:
                why = error
                continue
            known = 0 if before is None else _incarnation(before)
            if known <= incarnation:
                return "known" if known == incarnation else "new"
            assert before is not None
            self._put(node, member, before)  # the later life's report is put back
            return "older"
        raise why or Unavailable("there is no Redis node")

    def life(self, member: str) -> int:
        """Return the latest incarnation that reported lately; 0 for none, as far as nodes
        answer."""
        return max((beat.incarnation for beat in self.heard([member]).values()), default=0)

    @staticmethod
    def _put(node: Node, member: str, told: bytes) -> bytes | None:
        """Keep a report, and return the one before."""
        before: bytes | None = node.command(
            "SET", keys.beat(member), told, "PX", round(1000 * BEAT_SECONDS), "GET"
        )
        return before

    def gone(self, member: str, incarnation: int) -> None:
        """Forget a member that said that it leaves; if a node does not answer, its report
        expires."""
        for node in self._nodes:
            with suppress(Unavailable):
                node.command("EVAL", _GONE, 1, keys.beat(member), incarnation)

    def heard(self, members: Iterable[str]) -> dict[str, Beat]:
        """Return the members' beats of the last 45 seconds, as far as nodes answer."""
        names, found = list(members), dict[str, Beat]()
        for node in self._nodes if names else ():
            with suppress(Unavailable):
                told = node.command("MGET", *map(keys.beat, names))
                for name, packed in zip(names, told, strict=True):
                    if packed is not None:
                        beat = _read(packed)
                        if name not in found or found[name][:2] < beat[:2]:
                            found[name] = beat
        return found


def _written(incarnation: int, heard_ms: int, facts: Facts) -> bytes:
    return b"%d %b" % (incarnation, to_msgpack([heard_ms, facts]))


def _incarnation(packed: bytes) -> int:
    return int(packed.partition(b" ")[0])


def _read(packed: bytes) -> Beat:
    incarnation, _, told = packed.partition(b" ")
    heard_ms, facts = from_msgpack(told, tuple[int, Facts])
    return Beat(int(incarnation), heard_ms, facts)
