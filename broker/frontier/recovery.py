"""Opening a node: when a frontier is new, after a clean stop, and after Redis came back otherwise.

A server that runs under another run_id than its owner record's may have lost its last writes. It is
given everything that SQL holds again: final states first, as marks, then the links of pages, then
seeds. All of that is idempotent, so a crash in between costs a repetition. Sessions that it forgot
may still be fetching: it opens no new one until the longest lease and the longest request are over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.frontier import keys
from broker.frontier.node import Node
from broker.frontier.partition import Mode
from broker.frontier.ring import settle
from schema.errors import InvalidConfig
from schema.log import logger
from schema.records import Admission
from store.base import Store

if TYPE_CHECKING:
    from broker.frontier.frontier import Frontier

log = logger("recovery")

CHUNK = 2000

_CLAIM = """
local o = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'run', 'clean')
if o[1] == 'open' and o[3] == ARGV[1] then return 'open' end
if o[2] ~= ARGV[2] then return 'moved' end
local how = (o[1] == 'new' and 'new') or (o[4] == '1' and 'clean') or 'lost'
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'state', 'open', 'run', ARGV[1])
redis.call('HDEL', KEYS[1], 'clean', 'rest')
if how == 'lost' then
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000) + redis.call('HGET', KEYS[1], 'offset')
  redis.call('HSET', KEYS[1], 'rest', now + ARGV[3])
end
return how
"""


def open_node(frontier: Frontier, node: Node, store: Store) -> None:
    """Open ``node`` for this run of its server, replaying the log where writes may be missing.

    Raises Unavailable; InvalidConfig if the server would evict keys.
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
    claim = (_CLAIM, 1, keys.OWNER, run, owner.get("epoch", ""), frontier.longest_hold_ms)
    how = node.command("EVAL", *claim).decode()
    node.adopt(node.owner())
    if how in ("new", "lost"):
        replay(frontier, node, store)
    if how != "open":
        log.info("node_opened", node=node.shown, after=how, epoch=node.epoch)


def mark_clean(node: Node) -> None:
    """Note that this server is about to be stopped in order, with nothing lost."""
    node.command("HSET", keys.OWNER, "clean", 1)


def replay(frontier: Frontier, node: Node, store: Store) -> None:
    """Put all that SQL holds of unfinished and finished crawls into a node again."""
    for crawl in store.crawls():
        frontier.put_crawl(crawl)
        done = 0
        for chunk in _chunks(_settled(store, crawl.id)):
            frontier.admit(crawl.id, chunk, mode=Mode.MARK)
            done += len(chunk)
        log.info("replay", crawl=crawl.name, settled=done)
        for chunk in _chunks(_owed(store, crawl.id)):
            frontier.admit(crawl.id, chunk)
    for host, until_ms, _ in store.blocks(0):
        frontier.block_until(host, until_ms)


def _settled(store: Store, crawl: int) -> Iterator[Admission]:
    for _, page in store.pages(crawl):
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
