-- Keep an origin's robots.txt for all workers: a cache, with a budget of its own in each partition.
--
-- args  {origin, record, seconds, needed}
-- {'OK', now, kept}: 0 where there is no room for it, and nothing was kept. needed = 1: another session
-- waits for it, so it is kept whatever the budget, for a few minutes, and makes room as it can.
--
-- :ro has the origins by the second in which they expire, times 2^20, and their bytes; :rb is the sum
-- of the bytes. Those that expire first go first, a bounded number a call.
local SIZES, MOST, NEEDED_SECONDS = 1048576, 64, 300
local ENTRY_BYTES = 250 -- what an entry costs beside its record and twice its name
local origin, record, seconds, needed = args[1], args[2], args[3], args[4] == 1
local limits = redis.call('HMGET', 'gc:owner', 'full', 'robots_budget')
local budget, index, sum = num(limits[2]), P .. ':ro', P .. ':rb'
local bytes = #record + 2 * #origin + ENTRY_BYTES
if bytes >= SIZES then return {'OK', now, 0} end
if needed then
  redis.call('DEL', KEYS[2]) -- goes on at the memory limit, as those that are no cache do
  seconds = math.min(seconds, NEEDED_SECONDS)
elseif limits[1] == '1' or bytes > budget then
  return {'OK', now, 0}
end
local used = num(redis.call('GET', sum))
local before = num(redis.call('ZSCORE', index, origin)) % SIZES
local gone = 0
while used - before + bytes > budget and gone < MOST do
  local oldest = redis.call('ZPOPMIN', index)
  if not oldest[1] then break end
  redis.call('UNLINK', P .. ':r:' .. oldest[1])
  used, gone = used - oldest[2] % SIZES, gone + 1
  if oldest[1] == origin then before = 0 end
end
local kept = needed or used - before + bytes <= budget
if kept then
  redis.call('SET', P .. ':r:' .. origin, record, 'EX', seconds)
  local till = math.floor(now / 1000) + seconds
  redis.call('ZADD', index, string.format('%.0f', till * SIZES + bytes), origin)
  used = used - before + bytes
end
if used > 0 then redis.call('SET', sum, string.format('%.0f', used)) else redis.call('DEL', sum) end
return {'OK', now, kept and 1 or 0}
