-- Keep the state of a login, if it is newer than the kept one, for as long as it is valid.
--
-- args  {name, token, generation, sealed, ms}
-- {'OK', now, kept}: 0 unless the token holds the claim and the generation is above the kept one's.
local name, token, generation, sealed, ms = args[1], args[2], args[3], args[4], args[5]
local grant = P .. ':a:' .. name
if redis.call('GET', P .. ':ac:' .. name) ~= token then return {'OK', now, 0} end
if num(redis.call('HGET', grant, 'generation')) >= generation then return {'OK', now, 0} end
redis.call('HSET', grant, 'generation', string.format('%.0f', generation), 'sealed', sealed)
redis.call('PEXPIRE', grant, ms)
redis.call('DEL', P .. ':an:' .. name)
return {'OK', now, 1}
