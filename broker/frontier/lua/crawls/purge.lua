-- include urlset leases cache traps
-- Delete a crawl, a bounded number of hosts and buckets a call.
--
-- args  {crawl, most}
-- {'OK', now, more}: more is 1 until nothing is left. From the first call on the crawl is GONE to
-- every other script; leased tasks and those in `later` are dropped when a script finds them. The crawl's
-- record is deleted last: it has the progress of the deletion, and for an hour shows that there was one, to
-- callers that have just read of the crawl elsewhere.
local id, most = tostring(args[1]), args[2]
local c = stored_crawl(id)
if not c or not c.state then return {'OK', now, 0} end
c.gone, crawls[id] = true, c
local seen, spilled, again = urlset('z', id), urlset('y', id), urlset('g', id)
crawls[id] = false
local due = P .. ':due:' .. id
local found = redis.call('ZRANGE', due, 0, most - 1)
for _, name in ipairs(found) do
  local h = host_of(name)
  forget(h, id)
  redis.call('ZREM', due, name)
  rescore(h)
end
if #found == 0 and c.traps ~= '0' then c.traps = drop_traps(id, c.traps or '0', most) end
local over = #found == 0 and c.traps == '0' and seen.purge(most) and spilled.purge(most)
    and again.purge(most)
crawls[id], changed[id] = c, true
save()
if over then
  redis.call('UNLINK', P .. ':gf:' .. id)
  redis.call('SET', P .. ':c:' .. id, cmsgpack.pack({gone = true}), 'EX', 3600)
  redis.call('HDEL', P .. ':crawls', id)
end
return {'OK', now, over and 0 or 1}
