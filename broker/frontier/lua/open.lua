-- Choose due hosts and open sessions with them.
--
-- args  {worker, incarnation, sequence, ttl ms, life ms, longest request ms, tasks a session,
--        again, {crawl, max sessions, max tasks, token …} …}
-- {'OK', now, sessions, nexts, tend}: a session is {token, crawl, revision, host, delay ms,
-- least delay ms, robots known, failures in a row, level character .. entry, …}; nexts one next-due time (0: none) per crawl given.
-- {'OLD', now}: the worker's watermark (see reconcile) is at or past this call: opens nothing.
--
-- again = 1 repeats a call whose answer was lost: a token that is there is answered with its session.
-- `due` is a hint: a host found busy, resting or blocked is moved to where it belongs.
local PACED_MS, LOOK = 30000, 16
local worker, inc, seq = args[1], args[2], args[3]
local ttl, life, longest, per, again = args[4], args[5], args[6], args[7], args[8] == 1
local ws = P .. ':ws:' .. worker
local mark = redis.call('HMGET', ws, '#inc', '#seq')
if mark[1] and (inc < num(mark[1]) or (inc == num(mark[1]) and seq <= num(mark[2]))) then
  return {'OLD', now}
end
local sessions, nexts = {}, {}
local rest = num(redis.call('HGET', 'gc:owner', 'rest')) -- lost sessions may be fetching until then

local function answer(token, s, revision, h, tasks)
  local out = {token, tonumber(s.crawl), revision, s.host, num(s.delay), num(s.floor),
               num(h.rob) > now and 1 or 0, num(h.fail)}
  for _, t in ipairs(tasks) do out[#out + 1] = t end
  sessions[#sessions + 1] = out
end

local function pop(host, id, h, want)
  local got, levels = {}, h['v' .. id] or ''
  while #got < want and #levels > 0 do
    local ch = string.sub(levels, 1, 1)
    local from = redis.call('LPOP', list_key(id, host, ch), want - #got)
    for _, entry in ipairs(from or {}) do got[#got + 1] = ch .. entry end
    if not from or #got < want then levels = string.sub(levels, 2) end
  end
  -- a list that was emptied exactly is noticed here, so that `levels` never names one without tasks
  if #levels > 0 and redis.call('EXISTS', list_key(id, host, string.sub(levels, 1, 1))) == 0 then
    levels = string.sub(levels, 2)
  end
  return got, levels
end

local function open_one(token, id, c, host, h, delay, floor, max_tasks)
  local want = math.min(per, max_tasks)
  if delay > 0 then want = math.min(want, math.max(1, math.floor(PACED_MS / delay))) end
  local tasks, levels = pop(host, id, h, want)
  local hk, cf, vf = P .. ':h:' .. host, 'c' .. id, 'v' .. id
  if #tasks == 0 then -- its lists are gone: were the host left due, brokers would ask without end
    redis.call('HINCRBY', P .. ':n:' .. id, 'wait', -num(h[cf]))
    redis.call('HINCRBY', P .. ':n:' .. id, 'hosts', -1)
    redis.call('HDEL', hk, cf, vf)
    h[cf], h[vf] = nil, nil
    return 0
  end
  local left = num(h[cf]) - #tasks
  h.busy = num(h.busy) + 1
  if left > 0 and #levels > 0 then
    h[cf], h[vf] = left, levels
    redis.call('HSET', hk, cf, left, vf, levels, 'busy', h.busy)
  else
    h[cf], h[vf] = nil, nil
    redis.call('HDEL', hk, cf, vf)
    redis.call('HSET', hk, 'busy', h.busy)
    redis.call('HINCRBY', P .. ':n:' .. id, 'hosts', -1)
  end
  local s = {'crawl', id, 'host', host, 'worker', worker, 'inc', inc, 'seq', seq, 'open', 1,
             'opened', now, 'end', now + life, 'left', #tasks, 'delay', delay, 'floor', floor}
  for i, t in ipairs(tasks) do s[#s + 1] = 't' .. i; s[#s + 1] = t end
  redis.call('HSET', P .. ':s:' .. token, unpack(s))
  redis.call('ZADD', P .. ':sd', now + ttl + longest, token)
  redis.call('HSET', ws, token, inc .. ':' .. seq)
  redis.call('HINCRBY', P .. ':n:' .. id, 'wait', -#tasks)
  redis.call('HINCRBY', P .. ':n:' .. id, 'leased', #tasks)
  answer(token, {crawl = id, host = host, delay = delay, floor = floor}, num(c.rev), h, tasks)
  return #tasks
end

local function candidates(id, c, want)
  local due = P .. ':due:' .. id
  local hosts = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, math.max(want * 2, LOOK))
  if c.order == 'best' and #hosts > 1 then
    local best = {}
    for i, host in ipairs(hosts) do
      best[host] = {redis.call('HGET', P .. ':h:' .. host, 'v' .. id) or '~', i}
    end
    table.sort(hosts, function(a, b)
      local x, y = string.sub(best[a][1], 1, 1), string.sub(best[b][1], 1, 1)
      if x ~= y then return x < y end
      return best[a][2] < best[b][2]
    end)
  end
  return hosts
end

for a = 9, #args do
  local want = args[a]
  local id, left, max_tasks = want[1], want[2], want[3]
  local due, taken = P .. ':due:' .. id, 3
  local c = record(P .. ':c:' .. id)
  if again then
    for t = 4, #want do
      local s = record(P .. ':s:' .. want[t])
      if s.host then
        local tasks = {}
        for _, held_task in ipairs(held(s)) do tasks[#tasks + 1] = held_task[2] .. held_task[3] end
        local h = record(P .. ':h:' .. s.host)
        answer(want[t], s, num(c.rev), h, tasks)
        left, taken = left - 1, t
      end
    end
  end
  if c.state == 'active' and left > 0 and now >= rest then
    for _, host in ipairs(candidates(id, c, left)) do
      if left <= 0 or max_tasks <= 0 then break end
      local h = record(P .. ':h:' .. host)
      local floor = floor_of(h)
      local delay = math.max(num(h.ad), floor)
      local at = opens_at(h, delay)
      if not h['c' .. id] then
        redis.call('ZREM', due, host)
      elseif at > now then
        redis.call('ZADD', due, at, host)
      else
        local cap = capacity(h, num(c.slots), delay)
        while left > 0 and max_tasks > 0 and num(h.busy) < cap and h['c' .. id] do
          local n = open_one(want[taken + 1], id, c, host, h, delay, floor, max_tasks)
          if n == 0 then break end
          taken, left, max_tasks = taken + 1, left - 1, max_tasks - n
        end
        if num(h.busy) >= cap or not h['c' .. id] then redis.call('ZREM', due, host) end
      end
    end
  end
  local next = c.state == 'active' and next_due(id) or 0
  nexts[#nexts + 1] = next > 0 and math.max(next, rest) or 0
end
return {'OK', now, sessions, nexts, next_tend()}
