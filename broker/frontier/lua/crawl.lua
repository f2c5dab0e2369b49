-- Make a crawl known to the partition, or change its state and politeness.
--
-- args  {crawl, state, delay ms, slots, order, revision, weight}
-- {'OK', now, next, tend}
local id = tostring(args[1])
local c = stored_crawl(id) or {}
if c.gone then return {'OK', now, 0, next_tend()} end
c.state, c.delay, c.slots, c.order = args[2], args[3], args[4], args[5]
c.rev, c.weight = args[6], args[7]
crawls[id], changed[id] = c, true
save()
local due = next_due(id)
if c.state == 'active' and due > 0 then wake(id, due) end
return {'OK', now, c.state == 'active' and due or 0, next_tend()}
