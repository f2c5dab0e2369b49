-- Keep a broker's heartbeat, by which an outage is measured, and the node's tick.
--
-- args  {tick or 0, vouch (0 or 1)}: tick is a value of the store's clock, read before this call. It is
--       kept unless the node is owed a replay or a debt (debts.py), and never lowered. A broker that vouches
--       has the duty of setting the node's clock, and its call was accepted: it agrees with the time
--       (broker/frontier/nodes/clock.py).
-- {'OK', now, wake-ups published, sessions out (0 or 1), tick, owed (0 or 1)}
local o = redis.call('HMGET', 'gc:owner', 'tick', 'owed', 'parts', 'debt')
local tick = num(o[1])
if not o[2] and not o[4] and args[1] > tick then
  tick = args[1]
  redis.call('HSET', 'gc:owner', 'tick', tick)
end
if args[2] == 1 then redis.call('HINCRBY', 'gc:owner', 'vouched', 1) end
return {'OK', now, num(redis.call('GET', 'gc:wake')), sessions_out(num(o[3])), tick, o[2] and 1 or 0}
