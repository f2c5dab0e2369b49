-- Give worker processes their shares of what an address, or a domain, may be asked for: starts of
-- requests in a sliding window, and connections. What all hold never exceeds the caps.
--
-- args  {holder, ttl_ms, asks}; an ask is {name, window_ms, starts, connections}, each of the two
--       {cap, used, want}: what its crawl allows all processes together, what this one has in use, and
--       what it could use
-- {'OK', now, {{starts, connections, retry_ms}, …}}: the shares, good for ttl_ms from before the call; retry_ms
-- is when to ask again for more than was given
--
-- A record has for each holder {u = end of its shares, n = since when it has one, w = until when it
-- counts as waiting, q = since when it waits, 1 = starts, 2 = connections}; each of the two {h = held,
-- x = wanted, o = what it held before, t = until when that counts}. Who waits longer comes first. A share that ended or was lowered counts until the window is
-- over, since requests that began under it are in it.
local MARGIN = 1000 -- between the clocks of a holder and of this node
local holder, ttl = args[1], args[2]
local lost = num(redis.call('HGET', 'gc:owner', 'lost'))

local function held_by(v, i, window)
  local one = v[i]
  local n = (v.u + window + MARGIN > now) and one.h or 0
  if one.t > now then n = math.max(n, one.o) end
  return n
end

-- What `holder` is given of one of both. ahead: so many wait for longer, and have nothing.
local function share(record, mine, i, ask, window, claimants, ahead, starving)
  local cap, used, want = ask[1], ask[2], ask[3]
  local others, wanted = 0, 0
  local fair = math.max(1, math.floor(cap / claimants))
  for name, v in pairs(record) do
    if name ~= holder then
      others = others + held_by(v, i, window)
      if v.u > now or v.w > now then wanted = wanted + math.min(v[i].x, fair) end
    end
  end
  local held = held_by(mine, i, window)
  local grant = math.min(want, cap - others - ahead, math.max(fair, cap - wanted))
  if starving and mine.n > 0 and now - mine.n > ttl then grant = 0 end
  grant = math.max(grant, 0)
  if i == 2 then grant = math.max(grant, math.min(used, held)) end -- open ones stay; requests end
  if mine.u + window + MARGIN > now and mine[i].h > grant then
    mine[i].o, mine[i].t = held, math.max(mine.u, now) + window + MARGIN
  end
  mine[i].h, mine[i].x = grant, want
  return grant
end

local replies = {}
for k, ask in ipairs(args[3]) do
  local name, window = ask[1], ask[2]
  local key = P .. ':ad:' .. name
  local packed = redis.call('GET', key)
  local record = packed and cmsgpack.unpack(packed) or {}
  local mine = record[holder]
    or {u = 0, n = 0, w = 0, q = now, {h = 0, x = 0, o = 0, t = 0}, {h = 0, x = 0, o = 0, t = 0}}
  local claimants, ahead, starving, soonest, latest = 1, 0, false, math.huge, 0
  for other, v in pairs(record) do
    local ends = math.max(v.u + window + MARGIN, v.w, v[1].t, v[2].t)
    if ends <= now then
      record[other] = nil
    elseif other ~= holder then
      latest = math.max(latest, ends)
      if v.u > now or v.w > now then claimants = claimants + 1 end
      if v.w > now then
        starving = true
        if mine.n == 0 and v.q < mine.q then ahead = ahead + 1 end
      end
      if v.u + window + MARGIN > now then soonest = math.min(soonest, v.u + window + MARGIN) end
    end
  end
  if lost > 0 and now < lost + ttl + window + MARGIN then -- what was granted before is forgotten
    replies[k] = {0, 0, lost + ttl + window + MARGIN - now}
  else
    local starts = share(record, mine, 1, ask[3], window, claimants, ahead, starving and ask[3][1] < claimants)
    local connections = share(record, mine, 2, ask[4], window, claimants, ahead, starving and ask[4][1] < claimants)
    if starts == 0 or connections == 0 then
      if mine.n > 0 then mine.n, mine.q = 0, now end
      mine.w = now + 2 * ttl
    else
      if mine.n == 0 then mine.n = now end
      mine.w, mine.q = 0, now
    end
    mine.u = now + ttl
    record[holder] = mine
    latest = math.max(latest, mine.u + window + MARGIN, mine.w, mine[1].t, mine[2].t)
    redis.call('SET', key, cmsgpack.pack(record), 'PX', string.format('%.0f', latest - now + MARGIN))
    replies[k] = {starts, connections, soonest == math.huge and 0 or math.max(0, soonest - now)}
  end
end
return {'OK', now, replies}
