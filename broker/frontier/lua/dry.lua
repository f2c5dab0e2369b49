-- Which hosts run low on tasks while more of them wait in the overflow, and is there room?
--
-- args  {most}
-- {'OK', now, bytes, budget, full, {crawl .. '\n' .. host …}}; budget is 0 without one
local limits = redis.call('HMGET', 'gc:owner', 'full', 'budget')
return {'OK', now, num(redis.call('GET', P .. ':b')), num(limits[2]), num(limits[1]),
        redis.call('SRANDMEMBER', P .. ':dry', args[1])}
