"""Opening a node: when a frontier is new, after a clean stop, and after Redis came back otherwise.

A server that runs under another run_id than its owner record's may have lost its last writes. It is
given everything that SQL holds again: final states first, as marks, then the links of pages, then
seeds. All of that is idempotent. While it goes on the node is *owed*: no crawl ends meanwhile, and
whoever finds that nobody is at it any more begins again, so a crash in between costs a repetition.
Sessions that the node forgot may still be fetching: it opens no new one until the longest lease and
the longest request are over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from broker.frontier import keys
from broker.frontier.node import Node
from broker.frontier.partition import Mode
from broker.frontier.ring import settle
from schema.errors import FrontierMismatch, InvalidConfig, Unavailable, UnknownCrawl
from schema.log import logger
from schema.records import Admission
from store.base import Store

if TYPE_CHECKING:
    from broker.frontier.frontier import Frontier

log = logger("recovery")

CHUNK = 2000
STALLED_MS = 30_000
"""A replay that put nothing in for so long is taken over."""

_CLAIM = """
local o = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'run', 'clean')
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000) + (redis.call('HGET', KEYS[1], 'offset') or 0)
if o[1] == 'open' and o[3] == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'clean')
  local owed = redis.call('HGET', KEYS[1], 'owed')
  if not owed or tonumber(owed) > now then return 'open' end
  redis.call('HSET', KEYS[1], 'owed', now + ARGV[4])
  return 'owed'
end
if o[2] ~= ARGV[2] then return 'moved' end
local how = (o[1] == 'new' and 'new') or (o[4] == '1' and 'clean') or 'lost'
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'state', 'open', 'run', ARGV[1])
redis.call('HDEL', KEYS[1], 'clean')
if how == 'lost' then redis.call('HSET', KEYS[1], 'rest', now + ARGV[3]) end
if how ~= 'clean' then redis.call('HSET', KEYS[1], 'owed', now + ARGV[4]) end
return how
"""

_SETTLE = """
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return 0 end
if ARGV[2] == 'done' then return redis.call('HDEL', KEYS[1], 'owed') end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000) + (redis.call('HGET', KEYS[1], 'offset') or 0)
redis.call('HSET', KEYS[1], 'owed', now + ARGV[2])
return 1
"""


def open_node(frontier: Frontier, node: Node, store: Store) -> None:
    """Open ``node`` for this run of its server, replaying the log where writes may be missing.

    Raises Unavailable; InvalidConfig if the server would evict keys, FrontierMismatch if another
    one stands at this address now.
    """
    policy = node.command("CONFIG", "GET", "maxmemory-policy")
    if policy and policy[1] != b"noeviction":
        raise InvalidConfig(
            [
                (
                    "GREENCRAWL_REDIS",
                    f"{node.shown} evicts keys by {policy[1].decode()}: "
                    "set its maxmemory-policy to noeviction",
                )
            ]
        )
    owner = node.owner() or settle(node, frontier.identity.id, node.id, "lost")
    run = node.run_id()
    if owner.get("frontier") != frontier.identity.id or owner.get("id") != node.id:
        raise FrontierMismatch(f"Redis at {node.shown} is not the node that stood there before")
    claim = (_CLAIM, 1, keys.OWNER, run, owner["epoch"], frontier.longest_hold_ms, STALLED_MS)
    how = node.command("EVAL", *claim).decode()
    node.adopt(node.owner())
    if how in ("new", "lost", "owed"):
        try:
            replay(frontier, node, store, run)
            node.command("EVAL", _SETTLE, 1, keys.OWNER, run, "done")
        except BaseException:
            with suppress(Unavailable):
                node.command("EVAL", _SETTLE, 1, keys.OWNER, run, 0)  # for the next to begin again
            raise
    if how != "open":
        log.info("node_opened", node=node.shown, after=how, epoch=node.epoch)


def mark_clean(node: Node) -> None:
    """Note that this server is about to be stopped in order, with nothing lost."""
    node.command("HSET", keys.OWNER, "clean", 1)


def replay(frontier: Frontier, node: Node, store: Store, run: str) -> None:
    """Put all that SQL holds of unfinished and finished crawls into a node again.

    Raises Unavailable, also when this run of the server is over.
    """

    def put(crawl: int, items: Iterator[Admission], mode: Mode) -> int:
        count = 0
        for chunk in _chunks(items):
            frontier.admit(crawl, chunk, mode=mode)
            count += len(chunk)
            if not node.command("EVAL", _SETTLE, 1, keys.OWNER, run, STALLED_MS):
                raise Unavailable(f"Redis at {node.shown} was restarted again")
        return count

    for crawl in store.crawls():
        frontier.put_crawl(crawl)
    frontier.respill(node)
    for crawl in store.crawls():
        try:
            stored = put(crawl.id, _stored(store, crawl.id), Mode.MARK_STORED)
            settled = put(crawl.id, _settled(store, crawl.id), Mode.MARK)
            owed = put(crawl.id, _owed(store, crawl.id), Mode.NEW)
        except UnknownCrawl:
            continue  # deleted meanwhile
        log.info("replay", crawl=crawl.name, stored=stored, settled=settled, known=owed)
    for host, until_ms, _ in store.blocks(0):
        frontier.block_until(host, until_ms)


def _stored(store: Store, crawl: int) -> Iterator[Admission]:
    for _, page in store.pages(crawl):
        if 200 <= page.status < 300:
            yield Admission(page.url)


def _settled(store: Store, crawl: int) -> Iterator[Admission]:
    for _, page in store.pages(crawl):
        if not 200 <= page.status < 300:
            yield Admission(page.url)
    for final in store.finals(crawl):
        yield Admission(final.url)


def _owed(store: Store, crawl: int) -> Iterator[Admission]:
    for _, page in store.pages(crawl):
        yield from page.links
    for batch in store.seeds(crawl):
        yield from batch.urls


def _chunks(items: Iterator[Admission]) -> Iterator[list[Admission]]:
    chunk: list[Admission] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
