-- include leases
-- Return hosts that run low on tasks while more of their URLs wait in the overflow, if there is room.
--
-- args  {most, crawl …}
-- {'OK', now, bytes, budget, full, {crawl .. '\n' .. host …}, {crawl …}}; budget is 0 without one.
-- Hosts of a deleted crawl are forgotten here. The last list has those of the given crawls that have nothing
-- to lease now and have room for more.
local limits = redis.call('HMGET', 'gc:owner', 'full', 'budget')
local used, budget, idle = num(redis.call('GET', P .. ':b')), num(limits[2]), {}
for a = 2, #args do
  local c, due = crawl_of(args[a]), next_due(args[a])
  if c and c.state == 'active' and (due == 0 or due > now)
      and (budget == 0 or used < budget or tasks_of(c) < LEAST_TASKS) then
    idle[#idle + 1] = args[a]
  end
end
local low = {}
for _, member in ipairs(redis.call('SRANDMEMBER', P .. ':dry', args[1])) do
  local id, host = string.match(member, '^(%d+)\n(.*)$')
  if crawl_of(id) then
    low[#low + 1] = member
  else
    clear_low(id, host)
    forget(host_of(host), id)
  end
end
save()
return {'OK', now, used, budget, num(limits[1]), low, idle}
