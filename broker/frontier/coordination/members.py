"""The latest reports of members, as all brokers hear them: beats that end by themselves.

Kept in Redis, by the clock of the node: on the first node that answers, so it is looked for on
all. Lost with Redis, and told again with the next beat. Nothing is decided by it but what people
see, and who is taken for lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import BEAT_SECONDS, Facts
from greencrawl.schema.wire import from_msgpack, to_msgpack

MOST = 2000
"""Members whose beats are kept at most: some 4 KB each."""

BeatStatus = Literal["known", "new", "older", "full"]

_STATUS: dict[int, BeatStatus] = {2: "known", 1: "new", 0: "full", -1: "older"}

_DROP_OLD = f"""
redis.call('DEL', '{keys.NIL}')
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
"""
"""At the memory limit, too: what it holds is bounded by time and number."""

_BEAT = f"""{_DROP_OLD}
local known = redis.call('HGET', KEYS[2], ARGV[3])
local life = known and tonumber(string.match(known, '^%d+'))
if life and life > tonumber(ARGV[4]) then return -1 end
local same = life and life == tonumber(ARGV[4])
if not same and ARGV[5] == '0' then return 1 end
if not known and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[7]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4] .. ' ' .. ARGV[6])
return same and 2 or 1
"""
"""ARGV: logical ms, that up to which others are too old, member, incarnation, 1 if one that is not
known begins, what it tells, how many may be kept. Answers a key of ``_STATUS``."""

_GONE = """
local known = redis.call('HGET', KEYS[2], ARGV[1])
if known and string.match(known, '^%d+') == ARGV[2] then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
"""
"""ARGV: member, incarnation."""


class Beat(NamedTuple):
    """The last report of a member; ``heard_ms`` is by the clock of the broker that heard it."""

    incarnation: int
    heard_ms: int
    facts: Facts


class Beats(Protocol):
    """What is needed of :class:`MemberBeats`."""

    def beat(self, member: str, incarnation: int, facts: Facts, *, begins: bool) -> BeatStatus:
        """See :class:`MemberBeats`."""

    def gone(self, member: str, incarnation: int) -> None:
        """See :class:`MemberBeats`."""

    def heard(self) -> dict[str, Beat]:
        """See :class:`MemberBeats`."""


class MemberBeats:
    """The beats of all members on the nodes of a frontier."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def beat(self, member: str, incarnation: int, facts: Facts, *, begins: bool) -> BeatStatus:
        """A member is heard of. One that is ``new`` is kept only if it ``begins``; nothing is kept
        of an ``older`` life, nor of one that is new where there are too many (``full``).

        Raises Unavailable when no node answers.
        """
        told = to_msgpack([epoch_ms(), facts])
        why: Unavailable | None = None
        for node in self._nodes:
            try:
                now = node.now_ms()
                old = round(now - 1000 * BEAT_SECONDS)
                answer = node.command(
                    "EVAL", _BEAT, 2, keys.MEMBERS, keys.FACTS,
                    round(now), old, member, incarnation, int(begins), told, MOST,
                )  # fmt: skip
                return _STATUS[int(answer)]
            except Unavailable as error:
                why = error
        raise why or Unavailable("there is no Redis node")

    def gone(self, member: str, incarnation: int) -> None:
        """It has said that it leaves; forgotten in time where a node does not answer."""
        for node in self._nodes:
            with suppress(Unavailable):
                node.command("EVAL", _GONE, 2, keys.MEMBERS, keys.FACTS, member, incarnation)

    def heard(self) -> dict[str, Beat]:
        """Those of the last half minute, as far as nodes answer."""
        found: dict[str, Beat] = {}
        for node in self._nodes:
            with suppress(Unavailable):
                since = round(node.now_ms() - 1000 * BEAT_SECONDS)
                ids = node.command("ZRANGEBYSCORE", keys.MEMBERS, f"({since}", "+inf")
                told = node.command("HMGET", keys.FACTS, *ids) if ids else []
                for member, packed in zip(ids, told, strict=True):
                    if packed is not None:
                        beat = _read(packed)
                        name = member.decode()
                        if name not in found or found[name][:2] < beat[:2]:
                            found[name] = beat
        return found


def _read(packed: bytes) -> Beat:
    incarnation, _, told = packed.partition(b" ")
    heard_ms, facts = from_msgpack(told, tuple[int, Facts])
    return Beat(int(incarnation), heard_ms, facts)
