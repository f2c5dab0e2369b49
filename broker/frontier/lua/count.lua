-- Counters of a crawl in this partition.
--
-- args  {crawl}
-- {'OK', now, {field, value …}, next, tend}
return {'OK', now, redis.call('HGETALL', P .. ':n:' .. args[1]), next_due(args[1]), next_tend()}
