-- Shared by every script; each file is sent as common.lua .. file.
--
-- KEYS  1 prefix of the partition, gc:{p}     2 a key of the same tag that never exists
-- ARGV  1 epoch of the node   2 run_id read on this connection   3 logical ms expected, or ''
--       4 the script's own arguments, msgpack
--
-- Answers: {'WAIT'} node not open, or another process of Redis than the owner's: nothing was done
--          {'MOVED'} another epoch: nothing was done
--          {'CLOCK', now} logical time is not what the caller expects: nothing was done
--          {'GONE'} the crawl does not exist (any more)
--          {'OK', now, …} as the script says
local P = KEYS[1]
if DEL_FIRST then redis.call('DEL', KEYS[2]) end
local owner = redis.call('HMGET', 'gc:owner', 'state', 'epoch', 'run', 'offset', 'tick')
if owner[1] ~= 'open' or owner[3] ~= ARGV[2] then return {'WAIT'} end
if owner[2] ~= ARGV[1] then return {'MOVED'} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(owner[4])
if ARGV[3] ~= '' and math.abs(now - tonumber(ARGV[3])) > 2000 then return {'CLOCK', now} end
local args = cmsgpack.unpack(ARGV[4])
local ROBOTS_MS = 86400000
local INLINE_TASKS, INLINE_BYTES = 8, 640 -- queues up to this size stay inside their host's record
local TASK_BYTES, HOST_BYTES = 24, 240 -- what a task and a waiting host cost beside the task's path
local KEEP_MS = 7200000 -- an idle host's record outlives its last time by this

-- A hash as a table.
local function record(name)
  local flat, t = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do t[flat[i]] = flat[i + 1] end
  return t
end

local function num(v) return tonumber(v or 0) or 0 end

-- Counters of crawls, and the partition's bytes, are summed up and written once, by `save`.
local bumps, metered = {}, 0
local function bump(crawl, field, by)
  local b = bumps[crawl]
  if not b then b = {}; bumps[crawl] = b end
  b[field] = (b[field] or 0) + by
end

-- What the partition knows of a crawl, or false: {state, delay, slots, order, rev} read once.
local crawls = {}
local function crawl_of(id)
  id = tostring(id)
  local c = crawls[id]
  if c == nil then
    local got = redis.call('HMGET', P .. ':c:' .. id, 'state', 'delay', 'slots', 'order', 'rev')
    c = got[1] and {state = got[1], delay = num(got[2]), slots = num(got[3]), order = got[4],
                    rev = num(got[5])}
    crawls[id] = c
  end
  return c
end

-- An entry is "depth[,redirects,errors,deliveries]" and the task's path, which starts with a letter;
-- a queued value is the character of its level ('A' is level 0) and the entry.
local function entry_parts(entry)
  local head, path = string.match(entry, '^([%d,]+)(.*)$')
  local d, r, e, n = string.match(head, '^(%d+),?(%d*),?(%d*),?(%d*)$')
  return num(d), num(r), num(e), num(n), path
end

local function entry_make(depth, redirects, errors, deliveries, path)
  if redirects == 0 and errors == 0 and deliveries == 0 then return depth .. path end
  return depth .. ',' .. redirects .. ',' .. errors .. ',' .. deliveries .. path
end

-- What a value counts against the budgets: the same from admission to its end.
local function cost_of(value)
  return #value - string.find(value, '%a', 2) + 1 + TASK_BYTES
end

-- Levels of a host that hold tasks are one character each, sorted.
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

-- A host's record, read once and written by `save`. Numbers that are 0 are left out of it. `q` has for
-- each crawl with tasks there {e = values in order} or, for a long queue, {l = levels, n = tasks,
-- b = bytes} and a list a level; `o` is the best level that waits in the overflow.
local hosts, order = {}, {}
local function host_of(name)
  local h = hosts[name]
  if not h then
    local packed = redis.call('GET', P .. ':h:' .. name)
    h = packed and cmsgpack.unpack(packed) or {}
    h.q = h.q or {}
    h.name = name
    hosts[name] = h
    order[#order + 1] = name
  end
  return h
end

local function tasks_in(q) return q.l and q.n or #q.e end

local function bytes_in(q)
  if q.l then return q.b end
  local sum = 0
  for _, value in ipairs(q.e) do sum = sum + cost_of(value) end
  return sum
end

-- Put values into a crawl's queue at a host; front: they were there first. The caller counts.
local function push(h, crawl, values, front)
  crawl = tostring(crawl)
  local q = h.q[crawl]
  if not q then q = {e = {}}; h.q[crawl] = q end
  h.dirty = true
  local was, added = tasks_in(q), 0
  for _, value in ipairs(values) do added = added + cost_of(value) end
  if was == 0 and #values > 0 then
    bump(crawl, 'hosts', 1)
    metered = metered + HOST_BYTES
  end
  if not q.l then
    local bytes = added
    for _, value in ipairs(q.e) do bytes = bytes + cost_of(value) end
    if was + #values <= INLINE_TASKS and bytes <= INLINE_BYTES then
      local from, to, step = 1, #values, 1
      if front then from, to, step = #values, 1, -1 end
      for i = from, to, step do
        local ch, at = string.byte(values[i]), 1
        while q.e[at] and (string.byte(q.e[at]) < ch or not front and string.byte(q.e[at]) == ch) do
          at = at + 1
        end
        table.insert(q.e, at, values[i])
      end
      return added
    end
    q.l, q.n, q.b = '', 0, 0
    local first = q.e
    q.e = nil
    for _, value in ipairs(first) do
      local ch = string.sub(value, 1, 1)
      redis.call('RPUSH', list_key(crawl, h.name, ch), string.sub(value, 2))
      q.l, q.n, q.b = levels_add(q.l, ch), q.n + 1, q.b + cost_of(value)
    end
  end
  local by_level, levels = {}, {}
  local from, to, step = 1, #values, 1
  if front then from, to, step = #values, 1, -1 end
  for i = from, to, step do
    local ch = string.sub(values[i], 1, 1)
    local l = by_level[ch]
    if not l then l = {}; by_level[ch] = l; levels[#levels + 1] = ch end
    l[#l + 1] = string.sub(values[i], 2)
  end
  for _, ch in ipairs(levels) do
    redis.call(front and 'LPUSH' or 'RPUSH', list_key(crawl, h.name, ch), unpack(by_level[ch]))
    q.l = levels_add(q.l, ch)
  end
  q.n, q.b = q.n + #values, q.b + added
  return added
end

-- Take up to `want` values of a crawl's queue at a host, the best first. The caller counts.
local function pop(h, crawl, want)
  crawl = tostring(crawl)
  local q, got = h.q[crawl], {}
  if not q or tasks_in(q) == 0 then return got end
  h.dirty = true
  if q.l then
    local levels = q.l
    while #got < want and #levels > 0 do
      local ch = string.sub(levels, 1, 1)
      local from = redis.call('LPOP', list_key(crawl, h.name, ch), want - #got) or {}
      for _, entry in ipairs(from) do got[#got + 1] = ch .. entry end
      if #got < want then levels = string.sub(levels, 2) end
    end
    -- a list that was emptied exactly is noticed here: `l` never names one without tasks
    if #levels > 0 and redis.call('EXISTS', list_key(crawl, h.name, string.sub(levels, 1, 1))) == 0 then
      levels = string.sub(levels, 2)
    end
    local n, bytes = q.n, q.b
    for _, value in ipairs(got) do n, bytes = n - 1, bytes - cost_of(value) end
    if #levels == 0 then -- lists that were lost leave no count behind
      bump(crawl, 'wait', -n)
      metered = metered - bytes
      q.l, q.n, q.b, q.e = nil, nil, nil, {}
    else
      q.l, q.n, q.b = levels, n, bytes
    end
  else
    local left = {}
    for i, value in ipairs(q.e) do
      if i <= want then got[i] = value else left[#left + 1] = value end
    end
    q.e = left
  end
  if tasks_in(q) == 0 then
    bump(crawl, 'hosts', -1)
    metered = metered - HOST_BYTES
    if not q.o then h.q[crawl] = nil end
  end
  return got
end

-- The level that is served next of a crawl's queue at a host, '~' for none.
local function best_level(q)
  if not q or tasks_in(q) == 0 then return '~' end
  return string.sub(q.l or q.e[1], 1, 1)
end

-- The least delay of a host: by robots, by an operator, and the largest of the crawls that have tasks
-- waiting there.
local function floor_of(h)
  local d = math.max(num(h.rd), num(h.od))
  for id in pairs(h.q) do
    local c = crawl_of(id)
    if c then d = math.max(d, c.delay) end
  end
  return d
end

-- The delay in force: never under the least, and what its answers have shown it needs.
local function delay_of(h) return math.max(num(h.ad), floor_of(h)) end

-- Sessions that a host may have at once: slots exist only without a delay and with known robots.
local function capacity(h, slots, delay)
  if delay > 0 or num(h.rob) <= now then return 1 end
  return slots
end

-- Forget what a deleted crawl left at a host.
local function forget(h, id)
  local q = h.q[id]
  if not q then return end
  if tasks_in(q) > 0 then metered = metered - bytes_in(q) - HOST_BYTES end
  for i = 1, #(q.l or '') do redis.call('DEL', list_key(id, h.name, string.sub(q.l, i, i))) end
  redis.call('ZREM', P .. ':due:' .. id, h.name)
  redis.call('SREM', P .. ':dry', id .. '\n' .. h.name)
  h.q[id], h.dirty = nil, true
end

-- Tell brokers that something became due earlier. The counter is for those that missed a message.
local function wake(crawl, ms)
  redis.call('INCR', 'gc:wake')
  redis.call('PUBLISH', 'gc:wake', string.match(P, '{(%d+)}') .. ' ' .. crawl .. ' ' .. string.format('%.0f', ms))
end

-- When a host may be opened: after its rest and its block, and after the delay that is in force now,
-- which may be longer than the one that was when its last session ended.
local function opens_at(h, delay)
  local at = math.max(num(h.next), num(h.till))
  if num(h.last) > 0 then at = math.max(at, num(h.last) + delay) end
  return at
end

-- Put the host where it belongs in the due set of each of its crawls.
local function rescore(h)
  local delay = delay_of(h)
  local gone = {}
  for id in pairs(h.q) do
    if not crawl_of(id) then gone[#gone + 1] = id end
  end
  for _, id in ipairs(gone) do forget(h, id) end
  local score = math.max(opens_at(h, delay), 1)
  for id, q in pairs(h.q) do
    local c, due = crawl_of(id), P .. ':due:' .. id
    if tasks_in(q) > 0 and num(h.busy) < capacity(h, c.slots, delay) then
      redis.call('ZADD', due, score, h.name)
      if c.state == 'active' and redis.call('ZRANGE', due, 0, 0)[1] == h.name then wake(id, score) end
    else
      redis.call('ZREM', due, h.name)
    end
  end
end

-- Write what changed: records, counters, the partition's bytes. A record without task and session
-- goes once all its times are past, but for one that an operator has set a delay in.
local NUMBERS = {'next', 'last', 'till', 'lvl', 'busy', 'ad', 'rd', 'od', 'lat', 'fail', 'rob'}
local function save()
  for _, name in ipairs(order) do
    local h = hosts[name]
    if h.dirty then
      local out, key = {}, P .. ':h:' .. name
      for _, field in ipairs(NUMBERS) do
        if num(h[field]) ~= 0 then out[field] = tonumber(h[field]) end
      end
      if next(h.q) then out.q = h.q end
      if next(h.q) or num(h.busy) > 0 or num(h.od) > 0 then
        redis.call('SET', key, cmsgpack.pack(out))
      else
        local past = math.max(opens_at(h, delay_of(h)), num(h.rob), now)
        redis.call('SET', key, cmsgpack.pack(out), 'PX', string.format('%.0f', past - now + KEEP_MS))
      end
    end
  end
  for id, fields in pairs(bumps) do
    if crawl_of(id) then
      for field, by in pairs(fields) do
        if by ~= 0 then redis.call('HINCRBY', P .. ':n:' .. id, field, by) end
      end
    end
  end
  if metered ~= 0 and redis.call('INCRBY', P .. ':b', metered) == 0 then redis.call('DEL', P .. ':b') end
end

-- The tasks that a session still holds, in order of their numbers: {number, value}.
local function held(s)
  local found = {}
  for f, v in pairs(s) do
    local n = string.match(f, '^t(%d+)$')
    if n then found[#found + 1] = {tonumber(n), v} end
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end

local function drop_session(token, s)
  redis.call('DEL', P .. ':s:' .. token)
  redis.call('ZREM', P .. ':sd', token)
  redis.call('HDEL', P .. ':ws:' .. s.worker, token)
end

-- Give a session's tasks back. only: a set of numbers, or nil for all. charge: count a delivery.
local function give_back(token, s, h, only, charge)
  local back, fields = {}, {}
  for _, t in ipairs(held(s)) do
    if not only or only[t[1]] then
      local value = t[2]
      if charge then
        local d, r, e, n, path = entry_parts(string.sub(value, 2))
        value = string.sub(value, 1, 1) .. entry_make(d, r, e, n + 1, path)
      end
      back[#back + 1] = value
      fields[#fields + 1] = 't' .. t[1]
      s['t' .. t[1]] = nil
    end
  end
  if #fields == 0 then return 0 end
  redis.call('HDEL', P .. ':s:' .. token, unpack(fields))
  s.left = redis.call('HINCRBY', P .. ':s:' .. token, 'left', -#fields)
  if crawl_of(s.crawl) then
    push(h, s.crawl, back, true)
    bump(s.crawl, 'leased', -#back)
    bump(s.crawl, 'wait', #back)
  else
    for _, value in ipairs(back) do metered = metered - cost_of(value) end
  end
  return #fields
end

-- Free the slot that a session holds. Its fetching ended at `ended` at the latest (0: it sent nothing);
-- the host rests from then for its delay.
local function free_slot(token, s, h, ended)
  s.open = '0'
  redis.call('HSET', P .. ':s:' .. token, 'open', 0)
  h.busy, h.dirty = math.max(num(h.busy) - 1, 0), true
  if ended > 0 then
    h.last = math.max(num(h.last), ended)
    h.next = math.max(num(h.next), ended + math.max(delay_of(h), num(s.delay)))
  end
end

-- Earliest moment at which `tend` has something to do: a retry or an expired session. 0: nothing.
local function next_tend()
  local a = redis.call('ZRANGE', P .. ':later', 0, 0, 'WITHSCORES')[2]
  local b = redis.call('ZRANGE', P .. ':sd', 0, 0, 'WITHSCORES')[2]
  if a and b then return math.min(tonumber(a), tonumber(b)) end
  return tonumber(a or b or 0)
end

local function next_due(crawl)
  return num(redis.call('ZRANGE', P .. ':due:' .. crawl, 0, 0, 'WITHSCORES')[2])
end
