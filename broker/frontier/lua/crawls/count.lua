-- Return the counters of crawls in this partition.
--
-- args  {crawl, more of them …}, some dozens at most
-- {'OK', now, {field, value …}, next, tend, owed, state, version}: owed is 1 until the node was refilled
-- (recovery.py), 2 while it gets what it missed (debts.py). state is '' if the partition does not know
-- the crawl. If there are more, {{field, value …}, next, state, version} of each comes before `state`.
local function counted(id)
  local flat, c = {}, crawl_of(id) or {}
  for field, value in pairs(c) do
    if type(value) == 'number' then
      flat[#flat + 1] = field
      flat[#flat + 1] = string.format('%.0f', value)
    end
  end
  return flat, next_due(id), c.state or '', num(c.ver)
end
local due = redis.call('HMGET', 'gc:owner', 'owed', 'debt')
local owed = due[1] and 1 or due[2] and 2 or 0
local flat, next_, state, version = counted(args[1])
local reply = {'OK', now, flat, next_, next_tend(), owed}
for i = 2, #args do reply[#reply + 1] = {counted(args[i])} end
reply[#reply + 1] = state
reply[#reply + 1] = version
return reply
