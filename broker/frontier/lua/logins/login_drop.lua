-- Give a claim back, if the token still holds it: the login is over, be it made or not.
--
-- args  {name, token}
-- {'OK', now}
local claim = P .. ':ac:' .. args[1]
if redis.call('GET', claim) == args[2] then redis.call('DEL', claim, P .. ':an:' .. args[1]) end
return {'OK', now}
