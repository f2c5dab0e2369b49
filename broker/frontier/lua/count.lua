-- Counters of a crawl in this partition.
--
-- args  {crawl}
-- {'OK', now, {field, value …}, next, tend, owed}: owed is 1 until the node was refilled (recovery.py)
return {'OK', now, redis.call('HGETALL', P .. ':n:' .. args[1]), next_due(args[1]), next_tend(),
        redis.call('HEXISTS', 'gc:owner', 'owed')}
