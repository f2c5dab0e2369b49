-- include urlset
-- Check a batch of URLs of one crawl against the seen-set, and queue the new ones.
--
-- args  {crawl, mode, batch, [fingerprint, host, level character .. entry] …flat}
-- {'OK', now, tick, flags, next}: a flag for each URL: '1' new and queued, '0' known, '2' beyond the
-- budget: nothing was done, and the caller commits it to the overflow and then marks it (mark.lua). next is
-- the head of the crawl's due set, 0 if this call added nothing to it.
--
-- {'DONE', now, version}: nothing was done, since a URL is new or forced, and the crawl is done here
-- since that version of its row: the caller makes the crawl active again in the store, sends that here,
-- and tries again. Marks are accepted at any time.
--
-- mode 0  queue new URLs
--      1  queue known URLs again, whatever the budget, once for each batch (a number of the log of
--         seeds; 0: each time), but not a URL whose forced task has not ended: that task serves both
--         requests. URLs that wait in the overflow by the data of this node are queued, too: the data may
--         be an older copy, and such a URL may have no row any more by which it could come back
--      2  only mark as seen, and count as finished, URLs from before a loss: 'S' (stored),
--         'D' (dead), 'P' (parked) or 'O' and the body's bytes instead of level and entry
--      4  the same at the memory limit, but only for URLs that this node knows as waiting in the overflow:
--         their rows were deleted when they were settled, so nothing else would remove them from the set of
--         such URLs. A URL that moves from this set to the seen-set takes no more memory than before
--      5  queue again URLs that are due in the crawl's calendar. '0': it is already on its way. '2': its host
--         has as many as it can use, or is blocked; '5': the host is down; '3': there is no room here
--      3  refill with URLs of the overflow; a few tasks of each crawl fit into any budget,
--         otherwise the tasks of another crawl, which may be paused or done, could stop it for ever
local id, mode, batch = tostring(args[1]), args[2], args[3]
local NEW, FORCE, MARK, REFILL, MARK_SPILLED, AGAIN = 0, 1, 2, 3, 4, 5
local ROBOTS, ERRAND, REREAD = 1, 2, 8 -- schema.records.TaskKind; it is packed above this many redirects:
local KIND = 64
local AT_HOST, LEAST_AT_HOST, AHEAD_MS = 128, 2, 60000 -- tasks of a host that are asked for again
local AGAIN_BYTES = 200 -- the bytes of one such task, at most, as a rule
local DOWN = 9 -- worker.retry.GIVE_UP_FAILURES
if mode == MARK_SPILLED then redis.call('DEL', KEYS[2]) end -- like scripts that must go on (common.lua)
local FORCED_MS = 7 * 86400000
local c = crawl_of(id)
if not c then return {'GONE'} end
local seen, spilled = urlset('z', id), urlset('y', id)
local done = mode == FORCE and batch > 0 and P .. ':f:' .. string.format('%.0f', batch)

-- Tasks that are on their way: those that were forced, and in a crawl with a calendar all queued tasks, also
-- new ones. In an older copy of the node a URL may still wait although it was fetched since, and is due again
-- by its date.
local again = (mode == AGAIN or mode == FORCE or c.cal and mode ~= MARK and mode ~= MARK_SPILLED)
    and urlset('g', id)
-- Return whether a task has no row in the store: such a task settles no due row.
local function apart(value)
  local kind = math.floor(num(string.match(value, '^.%d+,(%d+)')) / KIND)
  return kind == ROBOTS or kind == ERRAND or kind >= REREAD
end

-- Return whether a URL would be queued.
local function wanted(fp)
  if mode == REFILL then return not seen.has(fp) end
  if mode == FORCE then return not done or redis.call('SISMEMBER', done, fp) == 0 end
  return not spilled.has(fp) and not seen.has(fp)
end
local marking = mode == MARK or mode == MARK_SPILLED
if mode == AGAIN and c.state ~= 'active' then
  return {'OK', now, num(owner[5]), string.rep('3', (#args - 3) / 3), 0}
end
if c.state == 'done' and not marking then
  for i = 4, #args, 3 do
    if wanted(args[i]) then return {'DONE', now, num(c.ver)} end
  end
end
seen.grow((#args - 3) / 3)
if again then again.grow((#args - 3) / 3) end

local limits = redis.call('HMGET', 'gc:owner', 'full', 'budget', 'host_budget', 'forced', 'owed')
local full, budget, host_budget = limits[1] == '1', tonumber(limits[2]), tonumber(limits[3])
local bytes = budget and num(redis.call('GET', P .. ':b'))
local taken, added, queued = {}, 0, 0

-- Return whether a value still fits into the budgets of its host and its partition.
local function fits(name, cost, value)
  if mode == REFILL and tasks_of(c) + queued < LEAST_TASKS then return true end
  if full then return false end
  local h = host_of(name)
  local q = h.q[id]
  if mode == NEW and q and q.o and string.sub(value, 1, 1) >= q.o then return false end
  local at_host, extra = taken[name], 0
  if not at_host then
    at_host = 0
    for _, other in pairs(h.q) do at_host = at_host + other.b end
    if not q or tasks_in(q) == 0 then extra = HOST_BYTES end
  end
  if host_budget and at_host + cost > host_budget then return false end
  if budget and bytes + added + cost + extra > budget then return false end
  taken[name], added = at_host + cost, added + cost + extra
  return true
end

-- Return '1' if one more URL of a host may be asked for again, otherwise why not. Half of a partition's room
-- is kept for new URLs; a few tasks of each crawl always fit.
local rows_at = {}
local function again_fits(name, cost)
  if full or limits[5] then return '3' end -- a node first gets what it missed
  local h = host_of(name)
  if num(h.till) > now then return num(h.fail) >= DOWN and '5' or '2' end
  local q, delay, most = h.q[id], math.max(delay_of(h), c.delay), AT_HOST
  if delay > 0 then most = math.max(LEAST_AT_HOST, math.min(most, math.floor(AHEAD_MS / delay))) end
  local there = rows_at[name] or q and num(q.g) or 0
  if there >= most then return '2' end
  local on_way, extra = num(c.again) + queued, (not q or tasks_in(q) == 0) and HOST_BYTES or 0
  if on_way >= LEAST_TASKS and budget
      and (on_way * AGAIN_BYTES > budget / 2 or bytes + added + cost + extra > budget) then
    return '3'
  end
  rows_at[name], added = there + 1, added + cost + extra
  return '1'
end

-- Fingerprints that forced batches have queued are kept for a week, or until there are too many: then the
-- oldest batches are dropped. If such a batch is admitted again, its URLs are fetched again. :fl has their
-- numbers, :fn is the number of their fingerprints.
local done, forced = mode == FORCE and batch > 0 and P .. ':f:' .. string.format('%.0f', batch), 0
local function remember_forced()
  local name, list, sum = string.format('%.0f', batch), P .. ':fl', P .. ':fn'
  if redis.call('PTTL', done) == -1 then redis.call('RPUSH', list, name) end
  redis.call('PEXPIRE', done, FORCED_MS)
  local left, most = redis.call('INCRBY', sum, forced), tonumber(limits[4]) or math.huge
  while left > most and redis.call('LLEN', list) > 1 do
    local oldest = P .. ':f:' .. redis.call('LPOP', list)
    left = left - redis.call('SCARD', oldest)
    redis.call('UNLINK', oldest)
  end
  if redis.call('LLEN', list) == 1 then -- expired batches were still counted
    left = redis.call('SCARD', P .. ':f:' .. redis.call('LINDEX', list, 0))
  end
  redis.call('SET', sum, string.format('%.0f', left), 'PX', FORCED_MS)
  redis.call('PEXPIRE', list, FORCED_MS)
end

local flags, groups, arrivals, returned = {}, {}, {}, 0
local n, refetches, requeued = 0, 0, 0
for i = 4, #args, 3 do
  local fp, host, value = args[i], args[i + 1], args[i + 2]
  local flag, queue, cost = '0', false, 0
  if marking then
    if (mode == MARK or spilled.has(fp)) and seen.add(fp) then
      flag = '1'
      if spilled.remove(fp) then bump(id, 'over', -1) else bump(id, 'adm', 1) end
      bump(id, 'fin', 1)
      local kind = string.sub(value, 1, 1)
      local counter = kind == 'S' and 'stored' or kind == 'D' and 'dead' or kind == 'P' and 'f:parked'
      if counter then bump(id, counter, 1) end
      bump(id, 'bytes', tonumber(string.sub(value, 2)) or 0)
    end
  elseif mode == AGAIN then
    if not again.has(fp) then
      value = put_mark(value, fp)
      cost = cost_of(value)
      flag = again_fits(host, cost)
      queue = flag == '1'
      if queue then again.add(fp) seen.add(fp) end
    end
  elseif mode == FORCE then
    queue = not done or redis.call('SADD', done, fp) == 1
    if done and queue then forced = forced + 1 end
    if queue and not apart(value) then
      if again.add(fp) then
        value = put_mark(value, fp)
      else -- its task may be about to end: then finish.lua queues it again
        queue = false
        redis.call('SADD', P .. ':gf:' .. id, fp)
      end
    end
    if queue or not spilled.has(fp) then flag = seen.add(fp) and '1' or '0' end
    cost = cost_of(value)
  elseif mode == REFILL or not spilled.has(fp) then
    if seen.add(fp) then
      cost = cost_of(value)
      if fits(host, cost, value) then
        if again then value = put_mark(value, fp, true) end
        flag, queue = '1', not again or again.add(fp)
      else
        seen.remove(fp)
        flag = '2'
      end
    end
  end
  n = n + 1
  flags[n] = flag
  if queue then
    local g = groups[host]
    if not g then g = {bytes = 0}; groups[host] = g; arrivals[#arrivals + 1] = host end
    g[#g + 1] = value
    g.bytes = g.bytes + cost
    queued = queued + 1
    if mode == AGAIN or mode == FORCE and flag == '0' then requeued = requeued + 1 end
    if again then refetches = refetches + refetches_in({value}) end
    if spilled.remove(fp) then returned = returned + 1 end
  end
end
if done then remember_forced() end
seen.save()
spilled.save()
if again then again.save() end
if queued > 0 then
  bump(id, 'adm', queued - returned)
  if refetches > 0 then bump(id, 'again', refetches) end
  if requeued > 0 then bump(id, 'requeued', requeued) end
  bump(id, 'wait', queued)
  if returned > 0 then bump(id, 'over', -returned) end
end

local due, earliest = P .. ':due:' .. id, {}
local arrived = math.min(now, last_heartbeat + PAUSE_MS) -- hosts do not wait for a TIME that is ahead
for _, name in ipairs(arrivals) do
  local h, g = host_of(name), groups[name]
  local first = not h.q[id] or tasks_in(h.q[id]) == 0
  push(h, id, g, g.bytes, false)
  metered = metered + g.bytes
  if first then
    local delay = delay_of(h)
    if num(h.busy) < capacity(h, c.slots, delay) then
      redis.call('ZADD', due, math.max(arrived, opens_at(h, delay)), name)
      earliest[name] = true
    end
  end
end
save()
if not next(earliest) then return {'OK', now, num(owner[5]), table.concat(flags), 0} end
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
if c.state == 'active' and earliest[head[1]] then wake(id, num(head[2])) end
return {'OK', now, num(owner[5]), table.concat(flags), num(head[2])}
