-- After a host was refilled: the best level that still waits in the overflow.
--
-- args  {crawl, host, level character or '' for none}
-- {'OK', now}
local id, h = tostring(args[1]), host_of(args[2])
local q = h.q[id]
redis.call('SREM', P .. ':dry', id .. '\n' .. args[2])
if q then
  q.o, dirty[args[2]] = args[3] ~= '' and args[3] or nil, true
  if not q.o and tasks_in(q) == 0 then h.q[id] = nil end
end
save()
return {'OK', now}
