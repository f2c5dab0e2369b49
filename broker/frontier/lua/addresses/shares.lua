-- Give worker processes their shares of the requests that an address, or a domain, may get: starts of
-- requests in a sliding window, and connections. The shares together never exceed the caps.
--
-- args  {holder, ttl_ms, asks}; an ask is {name, window_ms, starts, connections}, each of the two
--       {cap, used, want}: what its crawl allows all processes together, what this process uses, and
--       what it could use
-- {'OK', now, {{starts, connections, retry_ms}, …}}: the shares, valid for ttl_ms from before the call; retry_ms
-- is when to ask again for more than was given
--
-- A record has for each holder {u = end of its shares, n = since when it has one, w = until when it
-- counts as waiting, q = since when it waits, 1 = starts, 2 = connections}; each of the two {h = held,
-- x = wanted, o = what it held before: {{h, t = until when that counts}, …}, falling h and rising t}. The
-- holder that waits longest is first. A share that ended or was lowered counts until the window is over,
-- since requests that started with it are in that window.
local MARGIN = 1000 -- ms by which the clocks of a holder and of this node may differ
local ENDED = 16 -- records that one call drops at most
local holder, ttl = args[1], args[2]
local lost = num(redis.call('HGET', 'gc:owner', 'lost'))

local function held_by(v, i, window)
  local one = v[i]
  local n = (v.u + window + MARGIN > now) and one.h or 0
  for _, was in ipairs(one.o) do
    if was.t > now then n = math.max(n, was.h) end
  end
  return n
end

local function hold(mine, i, grant, want, window)
  local one, before = mine[i], {}
  for _, was in ipairs(one.o) do
    if was.t > now and was.h > grant then before[#before + 1] = was end
  end
  if mine.u + window + MARGIN > now and one.h > grant then
    while #before > 0 and before[#before].h <= one.h do before[#before] = nil end
    before[#before + 1] = {h = one.h, t = math.max(mine.u, now) + window + MARGIN}
  end
  one.h, one.x, one.o = grant, want, before
end

-- Return the share of `holder` of starts or of connections. names: the sorted holders that want some;
-- places: how many of these can have some at a time; ahead: how many holders have none and waited longer.
local function share(record, i, ask, window, names, places, ahead)
  local cap, want = ask[1], ask[3]
  local others, wanted, fair = 0, 0, 0
  for rank, name in ipairs(names) do
    local part = math.floor(cap / places) + (rank <= cap % places and 1 or 0)
    if name == holder then fair = part else wanted = wanted + math.min(record[name][i].x, part) end
  end
  for name, v in pairs(record) do
    if name ~= holder then others = others + held_by(v, i, window) end
  end
  return math.max(0, math.min(want, cap - others - ahead, math.max(fair, cap - wanted)))
end

-- Records are dropped by logical time, some with each call: Redis itself would drop them when its clock jumps.
local ends = P .. ':ade'
for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', string.format('%.0f', now), 'LIMIT', 0, ENDED)) do
  redis.call('UNLINK', P .. ':ad:' .. name)
  redis.call('ZREM', ends, name)
end

local replies = {}
for k, ask in ipairs(args[3]) do
  local name, window = ask[1], ask[2]
  local key = P .. ':ad:' .. name
  local packed = redis.call('GET', key)
  local record = packed and cmsgpack.unpack(packed) or {}
  local mine = record[holder] or {u = 0, n = 0, w = 0, q = now, {h = 0, x = 0, o = {}}, {h = 0, x = 0, o = {}}}
  local names, ahead, others_wait, first_free, latest = {holder}, 0, false, math.huge, 0
  for other, v in pairs(record) do
    local ends = math.max(v.u + window + MARGIN, v.w)
    for i = 1, 2 do
      local before = v[i].o
      if #before > 0 then ends = math.max(ends, before[#before].t) end
    end
    if ends <= now then
      record[other] = nil
    elseif other ~= holder then
      latest = math.max(latest, ends)
      if v.u > now or v.w > now then names[#names + 1] = other end
      if v.w > now then
        others_wait = true
        if mine.n == 0 and v.q < mine.q then ahead = ahead + 1 end
      end
      if v.u + window + MARGIN > now then first_free = math.min(first_free, v.u + window + MARGIN) end
    end
  end
  if lost > 0 and now < lost + ttl + window + MARGIN then -- what was granted before is forgotten
    replies[k] = {0, 0, lost + ttl + window + MARGIN - now}
  else
    table.sort(names)
    local places = math.min(#names, ask[3][1], ask[4][1])
    local starts, connections = 0, 0
    if not (others_wait and #names > places and mine.n > 0 and now - mine.n > ttl) then -- else others' turn
      connections = share(record, 2, ask[4], window, names, places, ahead)
      if connections > 0 then starts = share(record, 1, ask[3], window, names, places, ahead) end
      if starts == 0 then connections = 0 end -- a connection is of no use without a start
    end
    -- Requests that have started keep their connections.
    connections = math.max(connections, math.min(ask[4][2], held_by(mine, 2, window)))
    hold(mine, 1, starts, ask[3][3], window)
    hold(mine, 2, connections, ask[4][3], window)
    if starts == 0 or connections == 0 then
      if mine.n > 0 then mine.n, mine.q = 0, now end
      mine.w = now + 2 * ttl
    else
      if mine.n == 0 then mine.n = now end
      mine.w, mine.q = 0, now
    end
    mine.u = now + ttl
    record[holder] = mine
    latest = math.max(latest, mine.u + window + MARGIN, mine.w)
    for i = 1, 2 do
      local before = mine[i].o
      if #before > 0 then latest = math.max(latest, before[#before].t) end
    end
    redis.call('SET', key, cmsgpack.pack(record))
    redis.call('ZADD', ends, string.format('%.0f', latest + MARGIN), name)
    replies[k] = {starts, connections, first_free == math.huge and 0 or math.max(0, first_free - now)}
  end
end
return {'OK', now, replies}
