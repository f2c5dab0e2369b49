-- Keep sessions for another ttl.
--
-- args  {ttl ms, longest request ms, {token, host} …}
-- {'OK', now, statuses}: 'ok', 'stale', or 'stop': it has reached its longest duration, its host is blocked,
-- an operator has set a delay that it does not keep, or its crawl was deleted or stopped at once. After 'stop'
-- make no further request and close the session soon, which frees the host; storing goes on. A session past
-- its longest duration is not extended; a ttl shorter than before does not bring its end nearer.
local statuses = {}
for a = 3, #args do
  local token = args[a][1]
  local s = redis.call('HMGET', P .. ':s:' .. token, 'host', 'open', 'end', 'crawl', 'floor')
  if s[1] ~= args[a][2] then
    statuses[#statuses + 1] = 'stale'
  else
    if now <= num(s[3]) then redis.call('ZADD', P .. ':sd', 'GT', now + args[1] + args[2], token) end
    local h = host_of(s[1])
    local c = crawl_of(s[4])
    local over = now > num(s[3]) or num(h.till) > now or num(h.od) > num(s[5]) or not c or c.state == 'halt'
    statuses[#statuses + 1] = s[2] == '1' and over and 'stop' or 'ok'
  end
end
return {'OK', now, statuses}
