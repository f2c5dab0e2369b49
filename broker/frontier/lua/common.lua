-- Shared by every script; each file is sent as clock.lua .. common.lua .. file.
--
-- KEYS  1 prefix of the partition, gc:{p}     2 a key of the same tag that never exists
-- ARGV  1 epoch of the node   2 run_id read on this connection   3 logical ms expected, or ''
--       4 the script's own arguments, msgpack   5 the jumps of the clock that the caller knows
--
-- Answers: {'WAIT'} node not open, or another process of Redis than the owner's: nothing was done
--          {'MOVED'} another epoch: nothing was done
--          {'CLOCK', now, jumps} nothing was done: there were other jumps than the caller knows, and it
--            takes the node's time; or none, and it sets the clock, which is off by more than 2 s
--          {'GONE'} the crawl does not exist (any more)
--          {'OK', now, …} as the script says
--
-- BEATS: whether the script is a broker's (see clock.lua). DEL_FIRST: whether it must go on at the
-- memory limit.
local P = KEYS[1]
if DEL_FIRST then redis.call('DEL', KEYS[2]) end
local owner = redis.call('HMGET', 'gc:owner', 'state', 'epoch', 'run', 'offset', 'tick',
                         'used', 'gap', 'jumps', 'parts')
if owner[1] ~= 'open' or owner[3] ~= ARGV[2] then return {'WAIT'} end
if owner[2] ~= ARGV[1] then return {'MOVED'} end
local now, jumps = node_time(owner[4], owner[6], owner[7], owner[8], owner[9], BEATS)
if ARGV[3] ~= '' and (jumps ~= tonumber(ARGV[5]) or math.abs(now - tonumber(ARGV[3])) > 2000) then
  return {'CLOCK', now, jumps}
end
local args = cmsgpack.unpack(ARGV[4])
local ROBOTS_MS = 86400000

-- A hash as a table.
local function record(name)
  local flat, t = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do t[flat[i]] = flat[i + 1] end
  return t
end

local function num(v) return tonumber(v or 0) or 0 end

-- An entry is "depth[,redirects,errors,deliveries]" and the task's path, which starts with a letter.
local function entry_parts(entry)
  local head, path = string.match(entry, '^([%d,]+)(.*)$')
  local d, r, e, n = string.match(head, '^(%d+),?(%d*),?(%d*),?(%d*)$')
  return num(d), num(r), num(e), num(n), path
end

local function entry_make(depth, redirects, errors, deliveries, path)
  if redirects == 0 and errors == 0 and deliveries == 0 then return depth .. path end
  return depth .. ',' .. redirects .. ',' .. errors .. ',' .. deliveries .. path
end

-- Levels of a host that hold tasks are one character each ('A' is level 0), sorted.
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

-- The least delay of a host: by robots, by an operator, and the largest of the crawls that have tasks
-- waiting there.
local function floor_of(h)
  local d = math.max(num(h.rd), num(h.od))
  for f in pairs(h) do
    local id = string.match(f, '^c(%d+)$')
    if id then d = math.max(d, num(redis.call('HGET', P .. ':c:' .. id, 'delay'))) end
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
local function forget(host, id, h)
  local levels = h['v' .. id] or ''
  for i = 1, #levels do redis.call('DEL', list_key(id, host, string.sub(levels, i, i))) end
  redis.call('HDEL', P .. ':h:' .. host, 'c' .. id, 'v' .. id)
  redis.call('ZREM', P .. ':due:' .. id, host)
  h['c' .. id], h['v' .. id] = nil, nil
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

-- Put the host where it belongs in the due set of each of its crawls; with no task and no session
-- its record expires once all its times are past, but for one that an operator has set a delay in.
local function rescore(host, h)
  local crawls, delay = {}, math.max(num(h.ad), num(h.rd), num(h.od))
  local ids = {}
  for f in pairs(h) do
    local id = string.match(f, '^c(%d+)$')
    if id then ids[#ids + 1] = id end
  end
  for _, id in ipairs(ids) do
    local c = redis.call('HMGET', P .. ':c:' .. id, 'state', 'slots', 'delay')
    if c[1] then
      crawls[#crawls + 1] = {id, c[1], num(c[2])}
      delay = math.max(delay, num(c[3]))
    else
      forget(host, id, h)
    end
  end
  local score = math.max(opens_at(h, delay), 1)
  for _, c in ipairs(crawls) do
    local due = P .. ':due:' .. c[1]
    if num(h.busy) < capacity(h, c[3], delay) then
      redis.call('ZADD', due, score, host)
      if c[2] == 'active' and redis.call('ZRANGE', due, 0, 0)[1] == host then wake(c[1], score) end
    else
      redis.call('ZREM', due, host)
    end
  end
  if #crawls == 0 and num(h.busy) <= 0 then
    local hk = P .. ':h:' .. host
    if num(h.od) > 0 then
      redis.call('PERSIST', hk)
    else
      redis.call('PEXPIRE', hk, math.max(score, num(h.rob), now) - now + 3600000)
    end
  end
end

-- Put tasks back to a host's queues; each is {level character, entry}. front: they were there first.
-- Returns how many (0: the crawl is gone). The caller rescores the host.
local function put_back(crawl, host, h, tasks, front)
  if #tasks == 0 or redis.call('EXISTS', P .. ':c:' .. crawl) == 0 then return 0 end
  local cf, vf = 'c' .. crawl, 'v' .. crawl
  local levels = h[vf] or ''
  local from, to, step = 1, #tasks, 1
  if front then from, to, step = #tasks, 1, -1 end
  for i = from, to, step do
    redis.call(front and 'LPUSH' or 'RPUSH', list_key(crawl, host, tasks[i][1]), tasks[i][2])
    levels = levels_add(levels, tasks[i][1])
  end
  if not h[cf] then
    redis.call('PERSIST', P .. ':h:' .. host)
    redis.call('HINCRBY', P .. ':n:' .. crawl, 'hosts', 1)
  end
  h[cf], h[vf] = num(h[cf]) + #tasks, levels
  redis.call('HSET', P .. ':h:' .. host, cf, h[cf], vf, levels)
  redis.call('HINCRBY', P .. ':n:' .. crawl, 'wait', #tasks)
  return #tasks
end

-- The tasks that a session still holds, in order of their numbers: {number, level char, entry}.
local function held(s)
  local found = {}
  for f, v in pairs(s) do
    local n = string.match(f, '^t(%d+)$')
    if n then found[#found + 1] = {tonumber(n), string.sub(v, 1, 1), string.sub(v, 2)} end
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
      local entry = t[3]
      if charge then
        local d, r, e, n, path = entry_parts(entry)
        entry = entry_make(d, r, e, n + 1, path)
      end
      back[#back + 1] = {t[2], entry}
      fields[#fields + 1] = 't' .. t[1]
      s['t' .. t[1]] = nil
    end
  end
  if #fields == 0 then return 0 end
  redis.call('HDEL', P .. ':s:' .. token, unpack(fields))
  s.left = redis.call('HINCRBY', P .. ':s:' .. token, 'left', -#fields)
  if redis.call('EXISTS', P .. ':n:' .. s.crawl) == 1 then
    redis.call('HINCRBY', P .. ':n:' .. s.crawl, 'leased', -#fields)
  end
  put_back(s.crawl, s.host, h, back, true)
  return #fields
end

-- Free the slot that a session holds. Its fetching ended at `ended` at the latest (0: it sent nothing);
-- the host rests from then for its delay.
local function free_slot(token, s, h, ended)
  local host = P .. ':h:' .. s.host
  s.open = '0'
  redis.call('HSET', P .. ':s:' .. token, 'open', 0)
  h.busy = math.max(num(h.busy) - 1, 0)
  if ended > 0 then
    h.last = math.max(num(h.last), ended)
    h.next = math.max(num(h.next), ended + math.max(delay_of(h), num(s.delay)))
  end
  redis.call('HSET', host, 'busy', h.busy, 'next', num(h.next), 'last', num(h.last))
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
