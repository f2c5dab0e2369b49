-- include leases
-- Set the best level of a host that still waits in the overflow, after a refill.
--
-- args  {crawl, host, level character or '' for none}
-- {'OK', now}. A host that still runs low, since there was no room, is noted for low_hosts.lua.
local id, h = tostring(args[1]), host_of(args[2])
local q = h.q[id]
local low = tonumber(redis.call('HGET', 'gc:owner', 'host_budget') or 0) / 2
if args[3] == '' or not q or q.b >= low then
  clear_low(id, args[2])
end
if q then
  q.o, dirty[args[2]] = args[3] ~= '' and args[3] or nil, true
  if not q.o and tasks_in(q) == 0 then h.q[id] = nil end
end
save()
return {'OK', now}
