-- Shared by every script; each file is sent as clock.lua .. common.lua .. file.
--
-- KEYS  1 prefix of the partition, gc:{p}     2 a key of the same tag that never exists
-- ARGV  1 epoch of the node   2 run_id read on this connection
--       3 the least and 6 the most logical ms that the caller expects, or ''
--       4 the script's own arguments, msgpack   5 the jumps of the clock that the caller knows
--       7 name and 8 epoch of the duty under which it is called, if any
--
-- Answers: {'WAIT'} node not open, or another process of Redis than the owner's: nothing was done
--          {'MOVED'} another epoch: nothing was done
--          {'OLD_DUTY'} another broker has taken the duty since: nothing was done
--          {'CLOCK', now, jumps} nothing was done: the number of jumps differs from the caller's, or the
--            caller expects another time: the call was late, or the clock is wrong
--          {'GONE'} the crawl does not exist (any more)
--          {'OK', now, …} as the script says
--
-- HEARTBEAT: whether the script is a broker's (see clock.lua); only calls with an expected time count.
-- DEL_FIRST: whether it must go on at the memory limit.
local P = KEYS[1]
if DEL_FIRST then redis.call('DEL', KEYS[2]) end
local owner = redis.call('HMGET', 'gc:owner', 'state', 'epoch', 'run', 'offset', 'tick',
                         'used', 'gap', 'jumps', 'parts')
if owner[1] ~= 'open' or owner[3] ~= ARGV[2] then return {'WAIT'} end
if owner[2] ~= ARGV[1] then return {'MOVED'} end
if ARGV[7] then
  local field, epoch = 'duty:' .. ARGV[7], tonumber(ARGV[8])
  local known = tonumber(redis.call('HGET', 'gc:owner', field) or 0)
  if epoch < known then return {'OLD_DUTY'} end
  if epoch > known then redis.call('HSET', 'gc:owner', field, epoch) end
end
local now, jumps, last_heartbeat = node_time(owner[4], owner[6], owner[7], owner[8], owner[9],
                                             HEARTBEAT and ARGV[3] ~= '')
if ARGV[3] ~= '' and (jumps ~= tonumber(ARGV[5]) or now < tonumber(ARGV[3]) or now > tonumber(ARGV[6])) then
  return {'CLOCK', now, jumps}
end
agree()
local args = cmsgpack.unpack(ARGV[4])
local ROBOTS_MS = 86400000
local INLINE_TASKS, INLINE_BYTES = 8, 640 -- queues up to this size stay inside their host's record
local TASK_BYTES, HOST_BYTES = 24, 240 -- what a task and a waiting host cost beside the task's path
local LEAST_TASKS = 32 -- a crawl may always have so many in a partition
local KEEP_MS = 7200000 -- an idle host's record is kept for so much longer than its robots.txt
local IDLE_MS = 3155760000000 -- the end that marks idle records: no TIME that jumps reaches it
local LONGEST_MS = 60000 -- a new crawl may have a delay up to this, and its hosts are rested
local DROPPED, LOOKS = 256, 8 -- idle hosts that one call drops at most; one call in LOOKS looks for them

local function num(v) return tonumber(v or 0) or 0 end

-- Records are read once and written once, by `save`. A crawl's record has its state, politeness and counters,
-- and the structure of its sets (keys.py); it is false if the partition does not know the crawl.
local crawls, changed = {}, {}
local function stored_crawl(id)
  local packed = redis.call('GET', P .. ':c:' .. id)
  return packed and cmsgpack.unpack(packed)
end
local function crawl_of(id)
  id = tostring(id)
  local c = crawls[id]
  if c == nil then
    c = stored_crawl(id)
    if c and c.gone then c = false end -- it is being deleted
    crawls[id] = c
  end
  return c
end

-- Add to a crawl's counter; nothing happens for a crawl that does not exist.
local metered = 0 -- bytes to be added to those of the partition
local still = {} -- crawls without a leased task here: noted for brokers that missed the message
local function bump(id, field, by)
  local c = crawl_of(id)
  if c then
    c[field] = (c[field] or 0) + by
    changed[tostring(id)] = true
    if field == 'leased' and c.leased == 0 then still[id] = true end
  end
end

-- Add so many tasks to a crawl's quota, or subtract them; nothing happens if the crawl has no quota.
local fed = {}
local function allow(id, n)
  local c = crawl_of(id)
  if c and c.quota then
    if c.quota <= 0 and c.quota + n > 0 then fed[tostring(id)] = true end
    bump(id, 'quota', n)
  end
end

-- Return the number of a crawl's tasks that take memory in this partition.
local function tasks_of(c) return num(c.wait) + num(c.leased) + num(c.later) end

-- An entry is "depth[,redirects,errors,deliveries[,mark]]" and the task's path, which starts with a
-- letter; a queued value is the character of its level ('A' is level 0) and the entry. Its bytes in the
-- budgets are the same from admission to its end.
--
-- A task that was forced has a mark; in a crawl with a calendar every task has one. The mark is the
-- task's fingerprint, with a leading 0 for its sign. The fingerprint is in the set 'g' of its crawl until
-- the task ends. In a crawl with a calendar, the mark of a task for a new URL begins with 00. A forced
-- task has no 00, whether its URL is new or not: each mark without 00 counts as a fetch of a known page
-- (`again` of the crawl). Levels are any character from 'A' on, so that no class of characters matches
-- one.
local MARK_AT = 11 -- the least position of a path after a mark
local function put_mark(value, fp, new)
  local head, path = string.match(value, '^(.[%d,]+)(.*)$')
  if not string.find(head, ',', 1, true) then head = head .. ',0,0,0' end
  return head .. (new and ',00' or ',') .. string.gsub(fp, '%-', '0') .. path
end
-- Return the fingerprint of a task with a mark, or nil, and whether its URL is new.
local function mark_of(value)
  if string.find(value, '%a', 2) < MARK_AT then return nil end
  local mark = string.match(value, '^.%d+,%d+,%d+,%d+,(%d+)')
  if not mark then return nil end
  local new = #mark > 2 and string.sub(mark, 1, 2) == '00'
  if new then mark = string.sub(mark, 3) end
  if #mark > 1 and string.sub(mark, 1, 1) == '0' then mark = '-' .. string.sub(mark, 2) end
  return mark, new
end
-- Return how many of these tasks fetch a known page again.
local function refetches_in(values)
  local n = 0
  for i = 1, #values do
    local mark, new = mark_of(values[i])
    if mark and not new then n = n + 1 end
  end
  return n
end

local function cost_of(value) return #value - string.find(value, '%a', 2) + 1 + TASK_BYTES end

-- Return levels of tasks (one character each, sorted) with the level `ch` added.
local function levels_add(levels, ch)
  if string.find(levels, ch, 1, true) then return levels end
  for i = 1, #levels do
    if string.sub(levels, i, i) > ch then
      return string.sub(levels, 1, i - 1) .. ch .. string.sub(levels, i)
    end
  end
  return levels .. ch
end

local function list_key(crawl, host, ch) return P .. ':w:' .. crawl .. ':' .. host .. ':' .. ch end

-- A host's record. Fields that are 0 are absent. `q` has for each crawl with tasks there
-- {b = bytes, e = values in order} or, for a long queue, {b, n = tasks, l = levels} and a list a level;
-- `o` is the best level that waits in the overflow, `g` counts tasks that fetch known pages again.
local hosts, dirty = {}, {}
local function host_of(name)
  local h = hosts[name]
  if not h then
    local packed = redis.call('GET', P .. ':h:' .. name)
    h = packed and cmsgpack.unpack(packed) or {}
    h.q = h.q or {}
    h.name = name
    hosts[name] = h
  end
  return h
end

local function tasks_in(q) return q.l and q.n or #q.e end

-- Put values of so many bytes into a crawl's queue at a host; front: before the others of their level. The
-- caller counts them.
local function push(h, id, values, bytes, front)
  local q = h.q[id]
  if not q then q = {b = 0, e = {}}; h.q[id] = q end
  local name = h.name
  dirty[name] = true
  local count = #values
  if count > 0 and tasks_in(q) == 0 then
    bump(id, 'hosts', 1)
    metered = metered + HOST_BYTES
  end
  q.b = q.b + bytes
  local c = crawl_of(id)
  if c and num(c.again) > 0 then -- otherwise none of these tasks fetches a known page again
    local again = num(q.g) + refetches_in(values)
    q.g = again > 0 and again or nil
  end
  local from, to, step = 1, count, 1
  if front then from, to, step = count, 1, -1 end
  local e = q.e
  if e and #e + count <= INLINE_TASKS and q.b <= INLINE_BYTES then
    for i = from, to, step do
      local ch, at = string.byte(values[i]), front and 1 or #e + 1
      if front then
        while e[at] and string.byte(e[at]) < ch do at = at + 1 end
      else
        while at > 1 and string.byte(e[at - 1]) > ch do at = at - 1 end
      end
      table.insert(e, at, values[i])
    end
    return
  end
  if e then -- the queue has become long
    q.l, q.n, q.e = '', #e, nil
    for _, value in ipairs(e) do
      local ch = string.sub(value, 1, 1)
      redis.call('RPUSH', list_key(id, name, ch), string.sub(value, 2))
      q.l = levels_add(q.l, ch)
    end
  end
  local by_level, levels = {}, {}
  for i = from, to, step do
    local ch = string.sub(values[i], 1, 1)
    local l = by_level[ch]
    if not l then l = {}; by_level[ch] = l; levels[#levels + 1] = ch end
    l[#l + 1] = string.sub(values[i], 2)
  end
  for _, ch in ipairs(levels) do
    redis.call(front and 'LPUSH' or 'RPUSH', list_key(id, name, ch), unpack(by_level[ch]))
    q.l = levels_add(q.l, ch)
  end
  q.n = q.n + count
end

-- Return the least delay of a host: by robots, by an operator, and the largest of the crawls with tasks that
-- wait there.
local function floor_of(h)
  local d = math.max(num(h.rd), num(h.od))
  for id in pairs(h.q) do
    local c = crawl_of(id)
    if c and c.delay > d then d = c.delay end
  end
  return d
end

-- Return the delay in force: what the host's answers have shown to be needed, at least `floor_of`.
local function delay_of(h) return math.max(num(h.ad), floor_of(h)) end

-- Return how many sessions a host may have at once: slots exist only without a delay and with known robots,
-- and not beside a session with a delay (`sole`, in ms), even if its crawl has nothing waiting there now.
local function capacity(h, slots, delay)
  if delay > 0 or h.sole or num(h.rob) <= now then return 1 end
  return slots
end

-- Return when a host may be opened: after its rest and its block, and after the delay that is in force now,
-- which may be longer than at the end of its last session.
local function opens_at(h, delay)
  local at = math.max(num(h.next), num(h.till))
  if h.last then at = math.max(at, h.last + delay) end
  return at
end

-- Tell brokers that something became due earlier, or with 0 that a crawl runs out of quota. The counter is
-- for brokers that missed a message.
local function wake(crawl, ms)
  redis.call('INCR', 'gc:wake')
  redis.call('PUBLISH', 'gc:wake', string.match(P, '{(%d+)}') .. ' ' .. crawl .. ' ' .. string.format('%.0f', ms))
end

-- Drop idle hosts whose times are all past, and those beyond the greatest number, longest past first. Hosts
-- with times that are not past, by the longest delay of any crawl, are never dropped. All of this is by
-- logical time: Redis itself would drop them when its clock jumps. A host that is in use again by now has a
-- record without an end: it only leaves the index.
local function drop_idle()
  if math.floor(now) % LOOKS > 0 then return end -- otherwise each page would cost a twentieth more
  local index = P .. ':hi'
  local limits = redis.call('HMGET', 'gc:owner', 'idle_hosts', 'longest')
  local most = tonumber(limits[1])
  local beyond = most and redis.call('ZCARD', index) - most or 0
  local past, many = now - ROBOTS_MS - KEEP_MS, DROPPED
  if beyond > 0 then past, many = now - math.max(num(limits[2]), LONGEST_MS), math.min(beyond, DROPPED) end
  local found = redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', past), 'LIMIT', 0, many)
  if #found == 0 then return end
  for _, name in ipairs(found) do
    local key = P .. ':h:' .. name
    if redis.call('PTTL', key) > 0 then redis.call('UNLINK', key) end
  end
  redis.call('ZREM', index, unpack(found))
end

-- Write changed records; they must not be used any more afterwards. A host's record without task and session
-- is *idle*: it is dropped once all its times are past, or sooner if there are many. A record with an
-- operator's delay is kept.
local function save()
  local idle = {}
  for name in pairs(dirty) do
    local h, key = hosts[name], P .. ':h:' .. name
    h.name = nil
    if next(h.q) then
      redis.call('SET', key, cmsgpack.pack(h))
    else
      local at = opens_at(h, delay_of(h))
      h.q = nil
      if num(h.busy) > 0 or num(h.od) > 0 then
        redis.call('SET', key, cmsgpack.pack(h))
      else
        redis.call('SET', key, cmsgpack.pack(h), 'PX', string.format('%.0f', IDLE_MS))
        idle[#idle + 1] = string.format('%.0f', at)
        idle[#idle + 1] = name
      end
      h.q = {}
    end
  end
  for id in pairs(changed) do redis.call('SET', P .. ':c:' .. id, cmsgpack.pack(crawls[id])) end
  for id in pairs(still) do redis.call('ZADD', 'gc:still', now, id) end
  for id in pairs(fed) do -- a due task was passed over: here, or elsewhere if there is too much quota here now
    local c, head = crawls[id], redis.call('ZRANGE', P .. ':due:' .. id, 0, 0, 'WITHSCORES')
    if c.state == 'active' then
      if head[2] then wake(id, num(head[2])) end
      if c.quota > num(c.wait) then wake(id, 0) end
    end
  end
  if metered ~= 0 and redis.call('INCRBY', P .. ':b', metered) == 0 then redis.call('DEL', P .. ':b') end
  if #idle > 0 then -- one command for all: a command costs as much as several members
    redis.call('ZADD', P .. ':hi', unpack(idle))
    drop_idle()
  end
end

-- Return the earliest time at which `maintain` has work: a retry or an expired session. 0: none.
local function next_maintenance()
  local a = redis.call('ZRANGE', P .. ':later', 0, 0, 'WITHSCORES')[2]
  local b = redis.call('ZRANGE', P .. ':sd', 0, 0, 'WITHSCORES')[2]
  if a and b then return math.min(tonumber(a), tonumber(b)) end
  return tonumber(a or b or 0)
end

local function next_due(crawl)
  return num(redis.call('ZRANGE', P .. ':due:' .. crawl, 0, 0, 'WITHSCORES')[2])
end
