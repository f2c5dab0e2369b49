-- include urlset
-- Seen-check and enqueue of a batch of URLs of one crawl.
--
-- args  {crawl, mode, batch, [fingerprint, host, level character, entry] …flat}
-- {'OK', now, tick, flags, next}: a flag for each URL: '1' new and queued, '0' known, '2' beyond the
-- budget: nothing was done, the caller commits it to the overflow and then marks it (mark.lua). next is
-- the head of the crawl's due set.
--
-- mode 0  queue what is new
--      1  queue again what was seen, whatever the budget, once for each batch (a number of the log of
--         seeds; 0: each time)
--      2  only mark as seen and count as finished what a lost node is told of the past: in the slot
--         of the level 'S' (stored), 'D' (dead) or 'O', in that of the entry the body's bytes
--      3  refill: what comes back from the overflow
local crawl, mode, batch = args[1], args[2], args[3]
local NEW, FORCE, MARK, REFILL = 0, 1, 2, 3
local FORCED_MS = 7 * 86400000
local c = crawl_of(crawl)
if not c then return {'GONE'} end
local id = tostring(crawl)
local seen, spilled = urlset('z', crawl), urlset('y', crawl)
seen.grow((#args - 3) / 4)

local limits = redis.call('HMGET', 'gc:owner', 'full', 'budget', 'host_budget')
local full, budget, host_budget = limits[1] == '1', tonumber(limits[2]), tonumber(limits[3])
local bytes = budget and num(redis.call('GET', P .. ':b'))
local taken, added = {}, 0

-- Whether a value still fits into the budgets of its host and its partition.
local function fits(h, value, ch)
  if full then return false end
  local cost, q = cost_of(value), h.q[id]
  if mode == NEW and q and q.o and ch >= q.o then return false end
  local at_host, extra = taken[h.name], 0
  if not at_host then
    at_host = 0
    for _, other in pairs(h.q) do at_host = at_host + bytes_in(other) end
    if not q or tasks_in(q) == 0 then extra = HOST_BYTES end
  end
  if host_budget and at_host + cost > host_budget then return false end
  if budget and bytes + added + cost + extra > budget then return false end
  taken[h.name], added = at_host + cost, added + cost + extra
  return true
end

local flags, groups, arrivals = {}, {}, {}
local done = mode == FORCE and batch > 0 and P .. ':f:' .. string.format('%.0f', batch)
for i = 4, #args, 4 do
  local fp, host, ch, entry = args[i], args[i + 1], args[i + 2], args[i + 3]
  local flag, queue = '0', false
  if mode == MARK then
    if seen.add(fp) then
      flag = '1'
      if spilled.remove(fp) then bump(crawl, 'over', -1) else bump(crawl, 'adm', 1) end
      bump(crawl, 'fin', 1)
      bump(crawl, 'stored', ch == 'S' and 1 or 0)
      bump(crawl, 'dead', ch == 'D' and 1 or 0)
      bump(crawl, 'bytes', tonumber(entry) or 0)
    end
  elseif mode == FORCE then
    if not spilled.has(fp) then
      local new = seen.add(fp)
      flag = new and '1' or '0'
      if done then queue = redis.call('SADD', done, fp) == 1 else queue = true end
    end
  elseif mode == NEW and spilled.has(fp) then
    flag = '0'
  elseif seen.add(fp) then
    if fits(host_of(host), ch .. entry, ch) then
      flag, queue = '1', true
    else
      seen.remove(fp)
      flag = '2'
    end
  end
  flags[#flags + 1] = flag
  if queue then
    local g = groups[host]
    if not g then g = {}; groups[host] = g; arrivals[#arrivals + 1] = host end
    g[#g + 1] = ch .. entry
    if mode == REFILL and spilled.remove(fp) then bump(crawl, 'over', -1) else bump(crawl, 'adm', 1) end
    bump(crawl, 'wait', 1)
  end
end
if done then redis.call('PEXPIRE', done, FORCED_MS) end
seen.save()
spilled.save()

local due = P .. ':due:' .. crawl
for _, host in ipairs(arrivals) do
  local h = host_of(host)
  local first = not h.q[id] or tasks_in(h.q[id]) == 0
  metered = metered + push(h, crawl, groups[host], false)
  if first then
    local delay = delay_of(h)
    if num(h.busy) < capacity(h, c.slots, delay) then
      redis.call('ZADD', due, math.max(now, opens_at(h, delay)), host)
    end
    groups[host] = nil
  end
end
save()
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
local earliest = head[1] and hosts[head[1]] and #arrivals > 0 and not groups[head[1]]
if earliest and c.state == 'active' then wake(crawl, num(head[2])) end
return {'OK', now, num(owner[5]), table.concat(flags), num(head[2])}
