-- Claim the login of a name: one holder at a time. The same token again renews its claim.
--
-- args  {name, token, ms}
-- {'OK', now, claims}: 0 if another holds it; otherwise the number of claims since the last put or drop. A
-- claim that was renewed counts once; the earlier claims ended without a result.
local name, token, ms = args[1], args[2], args[3]
local claim, count = P .. ':ac:' .. name, P .. ':an:' .. name
local holder = redis.call('GET', claim)
if holder and holder ~= token then return {'OK', now, 0} end
redis.call('SET', claim, token, 'PX', ms)
if not holder and redis.call('HGET', count, 'token') ~= token then
  redis.call('HINCRBY', count, 'claims', 1)
  redis.call('HSET', count, 'token', token)
  redis.call('PEXPIRE', count, 86400000)
end
return {'OK', now, math.max(num(redis.call('HGET', count, 'claims')), 1)}
