-- include leases
-- Reap expired sessions and promote due retries, a bounded number of each.
--
-- args  {most}
-- {'OK', now, reaped, promoted, maintain_at}: maintain_at is when to call again (0: nothing is pending).
local most = args[1]
local reaped, promoted = 0, 0
for _, token in ipairs(redis.call('ZRANGEBYSCORE', P .. ':sd', '-inf', now, 'LIMIT', 0, most)) do
  local s = record(P .. ':s:' .. token)
  if s.host then
    local h = host_of(s.host)
    give_back(token, s, h, nil, true)
    if s.open == '1' then free_slot(token, s, h, now) end
    drop_session(token, s)
    rescore(h)
    reaped = reaped + 1
  else
    redis.call('ZREM', P .. ':sd', token)
  end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. ':later', '-inf', now, 'LIMIT', 0, most)) do
  local crawl, host, value = string.match(member, '^(%d+)\n([^\n]+)\n(.*)$')
  redis.call('ZREM', P .. ':later', member)
  if crawl_of(crawl) then
    local h = host_of(host)
    push(h, crawl, {value}, cost_of(value), true)
    bump(crawl, 'later', -1)
    bump(crawl, 'wait', 1)
    rescore(h)
    promoted = promoted + 1
  else
    metered = metered - cost_of(value)
  end
end
save()
return {'OK', now, reaped, promoted, next_maintenance()}
