-- include cache
-- Keep an origin's robots.txt for all workers: a cache, with a budget of its own in each partition.
--
-- args  {origin, record, seconds, needed}
-- {'OK', now, kept}: 0 if there is no room for it, and nothing was kept. needed = 1: another session
-- waits for it, so it is kept for a few minutes whatever the budget, and drops others as far as it can.
local NEEDED_SECONDS = 300
local origin, record, seconds, needed = args[1], args[2], args[3], args[4] == 1
local limits = redis.call('HMGET', 'gc:owner', 'full', 'robots_budget')
local budget, bytes = num(limits[2]), cached_bytes(origin, record)
if bytes >= SIZES then return {'OK', now, 0} end
if needed then
  redis.call('DEL', KEYS[2]) -- goes on at the memory limit, like scripts without a cache
  seconds = math.min(seconds, NEEDED_SECONDS)
elseif limits[1] == '1' or bytes > budget then
  return {'OK', now, 0}
end
return {'OK', now, keep('r', origin, record, seconds, budget, needed) and 1 or 0}
