-- Keep the answer to a request for the session that asked.
--
-- args  {host, id, sealed answer, ms}
-- {'OK', now}
redis.call('SET', P .. ':er:' .. args[1] .. ':' .. args[2], args[3], 'PX', args[4])
return {'OK', now}
