-- Counters of a crawl in this partition.
--
-- args  {crawl}
-- {'OK', now, {field, value …}, next, tend, owed, state, version}: owed is 1 until the node was refilled
-- (recovery.py), 2 while it is given what it missed (debts.py). state is '' where the partition does not
-- know the crawl.
local flat, c = {}, crawl_of(args[1]) or {}
for field, value in pairs(c) do
  if type(value) == 'number' then
    flat[#flat + 1] = field
    flat[#flat + 1] = string.format('%.0f', value)
  end
end
local due = redis.call('HMGET', 'gc:owner', 'owed', 'debt')
local owed = due[1] and 1 or due[2] and 2 or 0
return {'OK', now, flat, next_due(args[1]), next_tend(), owed, c.state or '', num(c.ver)}
