-- Give a claim back if the token still holds it: the login has ended, with or without success.
--
-- args  {name, token}
-- {'OK', now}
local claim = P .. ':ac:' .. args[1]
if redis.call('GET', claim) == args[2] then redis.call('DEL', claim, P .. ':an:' .. args[1]) end
return {'OK', now}
