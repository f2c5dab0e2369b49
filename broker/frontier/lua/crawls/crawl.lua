-- Make a crawl known to the partition, or change its state and politeness.
--
-- args  {crawl, state, delay ms, slots, order, revision, weight, version, limited, afresh, calendar}
-- {'OK', now, next, tend}
--
-- state   active  hosts are leased              paused  they are not
--         stop    nor are they: a limit was reached, or it was stopped
--         halt    nor are they, and what is leased is given back (sessions/extend.lua)
--         done    nor are they, and nothing is taken in (queue/admit.lua)
-- version of the crawl's row in the store: what was read of an older one changes nothing. A crawl that is
-- done, or about to be, is lifted from that only by a later one: else who ends it would miss what came since.
-- calendar 1: known pages of it are asked for again (`cal`).
-- limited 1: it has a quota, which begins with nothing (quota.lua); afresh 1: again.
local id = tostring(args[1])
local c = stored_crawl(id) or {}
if c.gone then return {'OK', now, 0, next_tend()} end
if args[10] == 1 and c.quota then
  c.quota = 0
  crawls[id], changed[id] = c, true
end
if num(c.ver) > args[8] or c.state == 'done' and num(c.ver) == args[8] and args[2] ~= 'done' then
  save()
  return {'OK', now, 0, next_tend()}
end
c.state, c.delay, c.slots, c.order = args[2], args[3], args[4], args[5]
c.rev, c.weight, c.ver = args[6], args[7], args[8]
c.cal = args[11] == 1 or nil
if c.delay > num(redis.call('HGET', 'gc:owner', 'longest')) then
  redis.call('HSET', 'gc:owner', 'longest', c.delay) -- it never goes back: sessions may keep it still
end
if args[9] == 1 then c.quota = num(c.quota) else c.quota, c.low = nil, nil end
crawls[id], changed[id] = c, true
redis.call('HSET', P .. ':crawls', id, string.format('%.0f', args[8]))
save()
local due = next_due(id)
if c.state == 'active' and due > 0 then wake(id, due) end
return {'OK', now, c.state == 'active' and due or 0, next_tend()}
