-- Take the oldest request for a host that is neither expired nor withdrawn.
--
-- args  {host}
-- {'OK', now, id, sealed request}: both '' if there is none.
local host = args[1]
local list = P .. ':e:' .. host
while true do -- errand_put bounds the list
  local id = redis.call('LPOP', list)
  if not id then return {'OK', now, '', ''} end
  local key = P .. ':eq:' .. host .. ':' .. id
  local sealed = redis.call('GET', key)
  if sealed then
    redis.call('DEL', key)
    return {'OK', now, id, sealed}
  end
end
