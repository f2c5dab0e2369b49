-- include urlset
-- Delete a crawl, a bounded number of hosts and buckets a call.
--
-- args  {crawl, most}
-- {'OK', now, more}: more is 1 until nothing is left. From the first call on the crawl is GONE to
-- every other script; what is leased or in `later` goes when it is met there. For an hour the
-- partition remembers, so that nobody who has just read it elsewhere makes it known again.
local crawl, most = args[1], args[2]
local id = tostring(crawl)
redis.call('DEL', P .. ':c:' .. crawl, P .. ':n:' .. crawl)
redis.call('SET', P .. ':x:' .. crawl, 1, 'EX', 3600)
local due = P .. ':due:' .. crawl
local found = redis.call('ZRANGE', due, 0, most - 1)
for _, host in ipairs(found) do
  local h = host_of(host)
  forget(h, id)
  redis.call('ZREM', due, host)
  rescore(h)
end
save()
if #found > 0 then return {'OK', now, 1} end
if not urlset('z', crawl).purge(most) then return {'OK', now, 1} end
if not urlset('y', crawl).purge(most) then return {'OK', now, 1} end
return {'OK', now, 0}
