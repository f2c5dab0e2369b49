-- include leases cache traps
-- Choose due hosts and open sessions with them.
--
-- args  {worker, incarnation, sequence, ttl ms, life ms, longest request ms, tasks a session,
--        again, {crawl, max sessions, token …} …}
-- {'OK', now, sessions, nexts, maintain_at}: a session is {token, crawl, revision, host, delay ms, least delay
-- ms, robots known, failures in a row, traps, level character .. entry, …}; nexts has the next due time (0:
-- none) of each given crawl.
-- {'OLD', now, newer}: the worker's watermark (see reconcile) is at or past this call, or the worker has
-- left: it opens nothing. newer is the worker's present incarnation if the caller's is older, otherwise 0.
--
-- again = 1 repeats a call whose answer was lost: for a token that exists the answer has its session.
-- `due` is a hint: a host that is busy, resting or blocked is moved to its right place.
-- A crawl with a quota leases no more tasks than that; when it has none left brokers get a message (quotas.py).
local PACED_MS, LOOK, OWED_MS = 30000, 16, 1000
local worker, inc, seq = args[1], args[2], args[3]
local ttl, life, longest, per, again = args[4], args[5], args[6], args[7], args[8] == 1
local ws = P .. ':ws:' .. worker
local mark = redis.call('HMGET', ws, '#inc', '#seq', '#gone', '#free')
if mark[1] then
  local last = num(mark[1])
  if inc < last then return {'OLD', now, last} end
  if inc == last and (mark[4] or seq <= num(mark[2])) then return {'OLD', now, 0} end
  if inc > last and string.find(' ' .. (mark[3] or '') .. ' ', ' ' .. inc .. ' ', 1, true) then
    return {'OLD', now, 0}
  end
end
local sessions, nexts = {}, {}
-- Sessions that a node forgot may still be fetching until `rest`, and the host's delay counts from there;
-- while SQL owes the node something no session opens.
local node = redis.call('HMGET', 'gc:owner', 'rest', 'owed', 'host_budget')
local rest = math.max(num(node[1]), node[2] and now + OWED_MS or 0)
local low = node[3] and tonumber(node[3]) / 2

local function answer(token, crawl, revision, h, delay, floor, tasks)
  local out = {token, tonumber(crawl), revision, h.name, delay, floor, num(h.rob) > now and 1 or 0,
               num(h.fail), traps_of(crawl, h.name)}
  for _, t in ipairs(tasks) do out[#out + 1] = t end
  sessions[#sessions + 1] = out
end

local function open_one(token, id, c, h, delay, floor)
  local want = math.min(per, c.quota or per)
  if delay > 0 then want = math.min(want, math.max(1, math.floor(PACED_MS / delay))) end
  local q = h.q[id]
  local tasks = pop(h, id, want)
  if #tasks == 0 then return 0 end
  if q.o and (not low or q.b < low) then
    note_low(id, h.name)
  end
  put(h, 'busy', num(h.busy) + 1)
  if delay > 0 then put(h, 'sole', delay) end
  local s = {'crawl', id, 'host', h.name, 'worker', worker, 'inc', inc, 'seq', seq, 'open', 1,
             'opened', now, 'end', now + life, 'left', #tasks, 'delay', delay, 'floor', floor,
             'asked', c.delay}
  for i, t in ipairs(tasks) do s[#s + 1] = 't' .. i; s[#s + 1] = t end
  redis.call('HSET', P .. ':s:' .. token, unpack(s))
  redis.call('ZADD', P .. ':sd', now + ttl + longest, token)
  redis.call('HSET', ws, token, inc .. ':' .. seq)
  bump(id, 'wait', -#tasks)
  bump(id, 'leased', #tasks)
  allow(id, -#tasks)
  answer(token, id, c.rev, h, delay, floor, tasks)
  return #tasks
end

-- Return the level of a crawl's queue at a host that is served next, '~' for none.
local function best_level(q)
  if not q or tasks_in(q) == 0 then return '~' end
  return string.sub(q.l or q.e[1], 1, 1)
end

local function candidates(id, c, want)
  local due = P .. ':due:' .. id
  local found = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, math.max(want * 2, LOOK))
  if c.order == 'best' and #found > 1 then
    local best = {}
    for i, host in ipairs(found) do best[host] = {best_level(host_of(host).q[id]), i} end
    table.sort(found, function(a, b)
      local x, y = best[a][1], best[b][1]
      if x ~= y then return x < y end
      return best[a][2] < best[b][2]
    end)
  end
  return found
end

for a = 9, #args do
  local want = args[a]
  local id, left = tostring(want[1]), want[2]
  local due, taken = P .. ':due:' .. id, 2
  local c = crawl_of(id)
  if again and c then
    for t = 3, #want do
      local s = record(P .. ':s:' .. want[t])
      if s.host then
        local tasks = {}
        for _, held_task in ipairs(held(s)) do tasks[#tasks + 1] = held_task[2] end
        answer(want[t], s.crawl, c.rev, host_of(s.host), num(s.delay), num(s.floor), tasks)
        left, taken = left - 1, t
      end
    end
  end
  local active = c and c.state == 'active'
  local quota = active and c.quota
  local function spent() return quota and c.quota <= 0 end
  if active and left > 0 and now >= rest then
    for _, host in ipairs(candidates(id, c, left)) do
      if left <= 0 or spent() then break end
      local h = host_of(host)
      local floor = floor_of(h)
      local delay = math.max(num(h.ad), floor)
      local at = math.max(opens_at(h, delay), delay > 0 and num(node[1]) + delay or 0)
      local function serves() return h.q[id] and tasks_in(h.q[id]) > 0 end
      if not serves() then
        redis.call('ZREM', due, host)
      elseif at > now then
        redis.call('ZADD', due, at, host)
      else
        local cap = capacity(h, c.slots, delay)
        while left > 0 and not spent() and num(h.busy) < cap and serves() do
          local n = open_one(want[taken + 1], id, c, h, delay, floor)
          if n == 0 then break end
          taken, left = taken + 1, left - 1
          cap = capacity(h, c.slots, delay)
        end
        if num(h.busy) >= cap or not serves() then redis.call('ZREM', due, host) end
      end
    end
  end
  local next = active and next_due(id) or 0
  local runs_out = quota and (spent() or quota > num(c.low) and c.quota <= num(c.low))
  if runs_out and next > 0 and num(c.wait) > c.quota then wake(id, 0) end
  nexts[#nexts + 1] = next > 0 and not spent() and math.max(next, rest) or 0
end
if #sessions > 0 then redis.call('PEXPIRE', ws, WORKER_MS) end
save()
return {'OK', now, sessions, nexts, next_maintenance()}
