-- Leave a request for the session that holds the host next; see worker/auth/errands.py.
--
-- args  {host, id, sealed request, ms}
-- {'OK', now}. If there are more than a thousand for one host, the oldest are dropped.
local host, id, sealed, ms = args[1], args[2], args[3], args[4]
local list = P .. ':e:' .. host
redis.call('SET', P .. ':eq:' .. host .. ':' .. id, sealed, 'PX', ms)
redis.call('RPUSH', list, id)
redis.call('LTRIM', list, -1000, -1)
redis.call('PEXPIRE', list, math.max(ms, redis.call('PTTL', list)))
return {'OK', now}
