-- Make a crawl known to the partition, or change its state and politeness.
--
-- args  {crawl, state, delay ms, slots, order, revision, weight}
-- {'OK', now, next, tend}, or {'GONE'} if it was deleted a while ago
if redis.call('EXISTS', P .. ':x:' .. args[1]) == 1 then return {'GONE'} end
local c = P .. ':c:' .. args[1]
redis.call('HSET', c, 'state', args[2], 'delay', args[3], 'slots', args[4], 'order', args[5],
           'rev', args[6], 'weight', args[7])
local due = next_due(args[1])
if args[2] == 'active' and due > 0 then wake(args[1], due) end
return {'OK', now, args[2] == 'active' and due or 0, next_tend()}
