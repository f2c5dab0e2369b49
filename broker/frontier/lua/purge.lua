-- Delete a crawl, a bounded number of hosts and buckets a call.
--
-- args  {crawl, most}
-- {'OK', now, more}: more is 1 until nothing is left. From the first call on the crawl is GONE to
-- every other script; what is leased or in `later` goes when it is met there.
local crawl, most = args[1], args[2]
redis.call('DEL', P .. ':c:' .. crawl, P .. ':n:' .. crawl)
local due = P .. ':due:' .. crawl
local hosts = redis.call('ZRANGE', due, 0, most - 1)
for _, host in ipairs(hosts) do
  local h = record(P .. ':h:' .. host)
  forget(host, crawl, h)
  rescore(host, h)
end
if #hosts > 0 then return {'OK', now, 1} end
local zs = P .. ':zs:' .. crawl
local z = redis.call('HMGET', zs, 'level', 'ptr', 'purged')
if not z[1] then return {'OK', now, 0} end
local level, ptr, purged = num(z[1]), num(z[2]), num(z[3])
local size, total = 2 ^ (32 - level), 2 ^ level + ptr
local last = math.min(purged + most, total)
for i = purged, last - 1 do
  local start
  if i < 2 * ptr then start = i * (size / 2) else start = (i - ptr) * size end
  redis.call('DEL', P .. ':z:' .. crawl .. ':' .. string.format('%08x', start))
end
if last < total then
  redis.call('HSET', zs, 'purged', last)
  return {'OK', now, 1}
end
redis.call('DEL', zs, due)
return {'OK', now, 0}
