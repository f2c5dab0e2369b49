-- Sessions, and how tasks leave a host's queue and return to it.

-- Return a hash as a table.
local function record(name)
  local flat, t = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do t[flat[i]] = flat[i + 1] end
  return t
end

local function entry_parts(entry)
  local head, path = string.match(entry, '^([%d,]+)(.*)$')
  local d, r, e, n, mark = string.match(head, '^(%d+),?(%d*),?(%d*),?(%d*)(,?%d*)$')
  return num(d), num(r), num(e), num(n), path, mark
end

-- Return `mark` of entry_parts, with the comma before it.
local function entry_make(depth, redirects, errors, deliveries, path, mark)
  if redirects == 0 and errors == 0 and deliveries == 0 and mark == '' then return depth .. path end
  return depth .. ',' .. redirects .. ',' .. errors .. ',' .. deliveries .. mark .. path
end

-- Set a field of a record: remove it if it is 0.
local function put(h, field, value)
  h[field] = value ~= 0 and value or nil
  dirty[h.name] = true
end

-- Take up to `want` values of a crawl's queue at a host, the best first. The caller counts them.
local function pop(h, id, want)
  local q, got, name = h.q[id], {}, h.name
  if not q or tasks_in(q) == 0 then return got end
  dirty[name] = true
  if q.l then
    local levels = q.l
    while #got < want and #levels > 0 do
      local ch = string.sub(levels, 1, 1)
      local from = redis.call('LPOP', list_key(id, name, ch), want - #got) or {}
      for _, entry in ipairs(from) do got[#got + 1] = ch .. entry end
      if #got < want then levels = string.sub(levels, 2) end
    end
    -- this list may be empty now: `l` never names a list without tasks
    if #levels > 0 and redis.call('EXISTS', list_key(id, name, string.sub(levels, 1, 1))) == 0 then
      levels = string.sub(levels, 2)
    end
    q.l, q.n = levels, q.n - #got
  else
    local e = q.e
    local left = #e - want
    if left <= 0 then
      got, q.e = e, {}
    else
      for i = 1, want do got[i] = e[i] end
      for i = 1, left do e[i] = e[i + want] end
      for i = left + 1, left + want do e[i] = nil end
    end
  end
  for _, value in ipairs(got) do q.b = q.b - cost_of(value) end
  if q.g then
    local again = q.g - refetches_in(got)
    q.g = again > 0 and again or nil
  end
  if q.l == '' then
    if q.n ~= 0 then -- lost lists are no longer counted
      bump(id, 'wait', -q.n)
      metered = metered - q.b
      q.b, q.g = 0, nil
    end
    q.l, q.n, q.e = nil, nil, {}
  end
  if tasks_in(q) == 0 then
    bump(id, 'hosts', -1)
    metered = metered - HOST_BYTES
    if not q.o then h.q[id] = nil end
  end
  return got
end

-- Note a host that runs low while more of its URLs wait in the overflow; it may have no task here. It counts in
-- the budget like a host with tasks, until it is refilled.
local function note_low(id, name)
  if redis.call('SADD', P .. ':dry', id .. '\n' .. name) == 1 then metered = metered + HOST_BYTES end
end
local function clear_low(id, name)
  if redis.call('SREM', P .. ':dry', id .. '\n' .. name) == 1 then metered = metered - HOST_BYTES end
end

-- Delete the data of a deleted crawl at a host.
local function forget(h, id)
  local q, name = h.q[id], h.name
  if not q then return end
  if tasks_in(q) > 0 then metered = metered - q.b - HOST_BYTES end
  for i = 1, #(q.l or '') do redis.call('UNLINK', list_key(id, name, string.sub(q.l, i, i))) end
  redis.call('ZREM', P .. ':due:' .. id, name)
  clear_low(id, name)
  h.q[id], dirty[name] = nil, true
end

-- Put the host at its right place in the due set of each of its crawls.
local function rescore(h)
  local gone, name = {}, h.name
  for id in pairs(h.q) do
    if not crawl_of(id) then gone[#gone + 1] = id end
  end
  for _, id in ipairs(gone) do forget(h, id) end
  local delay = delay_of(h)
  local score = math.max(opens_at(h, delay), 1)
  for id, q in pairs(h.q) do
    local c, due = crawl_of(id), P .. ':due:' .. id
    if tasks_in(q) > 0 and num(h.busy) < capacity(h, c.slots, delay) then
      redis.call('ZADD', due, score, name)
      if c.state == 'active' and redis.call('ZRANGE', due, 0, 0)[1] == name then wake(id, score) end
    else
      redis.call('ZREM', due, name)
    end
  end
end

-- Return the tasks that a session still holds, in the order of their numbers: {number, value}.
local function held(s)
  local found = {}
  for f, v in pairs(s) do
    local n = string.match(f, '^t(%d+)$')
    if n then found[#found + 1] = {tonumber(n), v} end
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end

-- Records of a worker are dropped after so long without a call: then none of its sessions exists, and
-- no lease of an older incarnation can still arrive. In Redis' own time: an outage counts.
local WORKER_MS = 86400000

local function drop_session(token, s)
  redis.call('DEL', P .. ':s:' .. token)
  redis.call('ZREM', P .. ':sd', token)
  redis.call('HDEL', P .. ':ws:' .. s.worker, token)
end

-- Give a session's tasks back. only: a set of numbers, or nil for all. charge: count a delivery.
local function give_back(token, s, h, only, charge)
  local back, fields, bytes = {}, {}, 0
  for _, t in ipairs(held(s)) do
    if not only or only[t[1]] then
      local value = t[2]
      bytes = bytes + cost_of(value)
      if charge then
        local d, r, e, n, path, mark = entry_parts(string.sub(value, 2))
        value = string.sub(value, 1, 1) .. entry_make(d, r, e, n + 1, path, mark)
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
    push(h, s.crawl, back, bytes, true)
    bump(s.crawl, 'leased', -#back)
    bump(s.crawl, 'wait', #back)
    allow(s.crawl, #back)
  else
    metered = metered - bytes
  end
  return #fields
end

-- Free the slot of a session. Its fetching ended at `ended` at the latest (0: it sent nothing); the host
-- rests from then for its delay: that of the session, unless its crawl asks for a shorter one by now.
local function free_slot(token, s, h, ended)
  s.open = '0'
  redis.call('HSET', P .. ':s:' .. token, 'open', 0)
  put(h, 'busy', math.max(num(h.busy) - 1, 0))
  if h.busy == nil then h.sole = nil end
  if ended > 0 then
    h.last = math.max(num(h.last), ended)
    local rest, c = math.max(delay_of(h), num(s.delay)), crawl_of(s.crawl)
    if c and s.asked and c.delay < num(s.asked) then rest = math.max(delay_of(h), c.delay) end
    h.next = math.max(num(h.next), ended + rest)
  end
end
