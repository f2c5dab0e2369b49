-- Return the counters of crawls in this partition, without those that are zero.
--
-- args  {crawl, more of them …}, some dozens at most
-- {'OK', now, {field, value …}, next, tend, owed, state, version}: owed is 1 until the node was refilled
-- (recovery.py), 2 while it gets what it missed (debts.py). state is '' if the partition does not know
-- the crawl. If there are more, {{field, value …}, next, state, version} of each comes before `state`.
-- Most crawls have nothing in most partitions. Nothing is due of a crawl that never had a waiting task here.
local SETTINGS = {delay = 1, slots = 1, rev = 1, weight = 1, ver = 1, cal = 1}
local function counted(id)
  local flat, c = {}, crawl_of(id) or {}
  for field, value in pairs(c) do
    if value ~= 0 and type(value) == 'number' and not SETTINGS[field] then
      flat[#flat + 1] = field
      flat[#flat + 1] = string.format('%.0f', value)
    end
  end
  return flat, c.wait and next_due(id) or 0, c.state or '', num(c.ver)
end
local due = redis.call('HMGET', 'gc:owner', 'owed', 'debt')
local owed = due[1] and 1 or due[2] and 2 or 0
local flat, next_, state, version = counted(args[1])
local reply = {'OK', now, flat, next_, next_tend(), owed}
for i = 2, #args do reply[#reply + 1] = {counted(args[i])} end
reply[#reply + 1] = state
reply[#reply + 1] = version
return reply
