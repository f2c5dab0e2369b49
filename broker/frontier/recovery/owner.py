"""The states of a node's owner record: claimed, held during a replay, emptied, stopped."""

from __future__ import annotations

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.lua_scripts import CLOCK
from greencrawl.broker.frontier.nodes.node import Node

STALLED_MS = 10_000
"""Another broker takes over a replay that put nothing in for this long."""

_FIELDS = "'state', 'epoch', 'clean', 'owed', 'offset', 'used', 'gap', 'jumps', 'parts', 'run'"
_NOW = f"""{CLOCK}
redis.call('DEL', '{keys.NIL}')
local o = redis.call('HMGET', KEYS[1], {_FIELDS})
local now = node_time(o[5], o[6], o[7], o[8], o[9], true)
agree()
"""

_CLAIM = f"""{_NOW}
local run, epoch, clean, hold, stalled = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if tonumber(o[2]) >= tonumber(epoch) then return 'moved' end
local how = 'lost'
if o[1] == 'emptying' or o[1] == 'new' then how = o[1]
elseif o[3] == clean and not o[4] then how = 'clean'
elseif o[1] == 'open' and o[10] == run and o[2] == clean then how = o[4] and 'owed' or 'taken' end
if how == 'emptying' and o[4] and tonumber(o[4]) > now then return 'busy' end
local ahead = ARGV[8] ~= '' and now - ARGV[8] or 0
if ahead > 0 then
  now = now - ahead
  redis.call('HSET', KEYS[1], 'offset', (redis.call('HGET', KEYS[1], 'offset') or 0) - ahead)
end
redis.call('HSET', KEYS[1], 'run', run, 'epoch', epoch, 'gap', ARGV[6], 'parts', ARGV[7],
           'moved', redis.call('HINCRBY', KEYS[1], 'jumps', 1))
redis.call('HDEL', KEYS[1], 'clean')
if how ~= 'emptying' then redis.call('HSET', KEYS[1], 'state', 'open') end
if how == 'lost' or how == 'emptying' then
  redis.call('HSET', KEYS[1], 'rest', now + hold, 'lost', now)
end
if how ~= 'clean' and how ~= 'taken' then redis.call('HSET', KEYS[1], 'owed', now + stalled) end
return how
"""
"""Claims a node. Epochs only rise.

ARGV: run_id, epoch, epoch before it, longest hold ms, ms after which it is taken over, gap ms,
partitions, the latest time by what the caller knows or ''. Nothing was lost in two cases: the node
was shut down under that epoch (clean), or another broker opened it under this epoch since the
caller looked (taken; owed: its replay must go on). An earlier copy, or a machine whose clock is
ahead, may show a time in the future: it is set back.
"""

_HOLD = f"""{_NOW}
if o[10] ~= ARGV[1] or o[2] ~= ARGV[2] then return 0 end
if ARGV[3] == 'done' then
  redis.call('HDEL', KEYS[1], 'owed', 'debt')
  redis.call('HSET', KEYS[1], 'listed', 1)
  return 1
end
redis.call('HSET', KEYS[1], 'owed', now + ARGV[3])
if ARGV[4] == 'everything' then redis.call('HSET', KEYS[1], 'tick', 0) end
return 1
"""
"""Keeps the node owed a replay for some ms, or notes that the replay is done.

ARGV: run_id, epoch, ms or 'done'. A node that got all it was owed can name its crawls (``listed``,
see ``lua/crawls/known_crawls.lua``).
"""

_EMPTY = f"""{_NOW}
if tonumber(o[2]) >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'state', 'emptying', 'run', ARGV[1], 'epoch', ARGV[2], 'tick', 0,
           'owed', now + ARGV[3], 'rest', now + ARGV[4], 'lost', now)
redis.call('HDEL', KEYS[1], 'clean')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 5) == 'duty:' then redis.call('HDEL', KEYS[1], field) end
end
return 1
"""
"""Closes the node to be emptied; a store that lost data may know lower epochs of duties.

ARGV: run_id, epoch, ms until it is taken over, longest hold ms.
"""

_EMPTIED = f"""
redis.call('DEL', '{keys.NIL}')
local o = redis.call('HMGET', KEYS[1], 'state', 'run', 'epoch')
if o[1] ~= 'emptying' or o[2] ~= ARGV[1] or o[3] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'state', 'open', 'tick', 0, 'layout', {keys.LAYOUT})
return 1
"""


_CLEAN = f"""
redis.call('DEL', '{keys.NIL}')
return redis.call('HSET', KEYS[1], 'clean', ARGV[1])
"""


def claim(
    node: Node, run: str, epoch: int | str, known: int, rest_ms: int, gap_ms: int, partitions: int
) -> str:
    """Put a node under a new epoch.

    Returns how it was found, or "moved" or "busy": then it was not claimed. Raises Unavailable.
    """
    latest_ms = node.clock.latest_ms()
    latest = "" if latest_ms is None else round(latest_ms)
    what = (run, epoch, known, rest_ms, STALLED_MS, gap_ms, partitions, latest)
    how: str = node.command("EVAL", _CLAIM, 1, keys.OWNER, *what).decode()
    return how


def hold(
    node: Node, run: str, epoch: int | str, what: int | str = "", *, everything: bool = False
) -> bool:
    """Keep the node owed a replay for ``what`` ms more; "done" ends this. Return False if the node
    is no longer ours.

    Raises Unavailable.
    """
    how = (run, epoch, STALLED_MS if what == "" else what, "everything" if everything else "")
    return bool(node.command("EVAL", _HOLD, 1, keys.OWNER, *how))


def close_to_empty(node: Node, run: str, epoch: int | str, rest_ms: int) -> bool:
    """Close a node that is to be emptied; return False if another broker works on it.

    Raises Unavailable.
    """
    what = (run, epoch, STALLED_MS, rest_ms)
    return bool(node.command("EVAL", _EMPTY, 1, keys.OWNER, *what))


def open_emptied(node: Node, run: str, epoch: int | str) -> bool:
    """Open a node that is empty now; return False if it is no longer ours. Raises Unavailable."""
    return bool(node.command("EVAL", _EMPTIED, 1, keys.OWNER, run, epoch))


def mark_clean(node: Node) -> None:
    """Note that this server is about to be shut down, with nothing lost.

    The note has the epoch, which each opening raises. So a server that was restored to an earlier
    state does not count as cleanly shut down.
    """
    node.command("EVAL", _CLEAN, 1, keys.OWNER, node.epoch)
