-- Make a crawl known to the partition, or change its state and politeness.
--
-- args  {crawl, state, delay ms, slots, order, revision, weight, version, limited, afresh, calendar}
-- {'OK', now, next, maintain_at}
--
-- state   active  hosts are leased
--         paused  hosts are not leased
--         stop    the same: a limit was reached, or the crawl was stopped
--         halt    the same, and leased tasks are given back (sessions/extend.lua)
--         done    hosts are not leased, and no URL is accepted (queue/admit.lua)
-- version of the crawl's row in the store: an older version changes nothing. Only a later version ends the
-- state of a crawl that is done, or about to be: otherwise the broker that ends it would miss later URLs.
-- calendar 1: its known pages are asked for again (`cal`).
-- limited 1: it has a quota, which starts at zero (quota.lua); afresh 1: it starts at zero again.
local id = tostring(args[1])
local c = stored_crawl(id) or {}
if c.gone then return {'OK', now, 0, next_maintenance()} end
if args[10] == 1 and c.quota then
  c.quota = 0
  crawls[id], changed[id] = c, true
end
if num(c.ver) > args[8] or c.state == 'done' and num(c.ver) == args[8] and args[2] ~= 'done' then
  save()
  return {'OK', now, 0, next_maintenance()}
end
c.state, c.delay, c.slots, c.order = args[2], args[3], args[4], args[5]
c.rev, c.weight, c.ver = args[6], args[7], args[8]
c.cal = args[11] == 1 or nil
if c.delay > num(redis.call('HGET', 'gc:owner', 'longest')) then
  redis.call('HSET', 'gc:owner', 'longest', c.delay) -- it never falls: sessions may still keep the old delay
end
if args[9] == 1 then c.quota = num(c.quota) else c.quota, c.low = nil, nil end
crawls[id], changed[id] = c, true
redis.call('HSET', P .. ':crawls', id, string.format('%.0f', args[8]))
save()
local due = next_due(id)
if c.state == 'active' and due > 0 then wake(id, due) end
return {'OK', now, c.state == 'active' and due or 0, next_maintenance()}
