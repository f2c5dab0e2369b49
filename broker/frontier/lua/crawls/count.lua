-- Return the counters of crawls in this partition, without those that are zero.
--
-- args  {crawl, more of them …}, some dozens at most
-- {'OK', now, {field, value …}, next, tend, owed, state, version}: owed is 1 until the node was refilled
-- (recovery.py), 2 while it gets what it missed (debts.py). state is '' if the partition does not know
-- the crawl. If there are more, {{field, value …}, next, state, version} of each comes before `state`.
-- Most crawls have nothing in most partitions: then crawls with the same options have equal records, and
-- each of these is unpacked once. Nothing is due of a crawl that never had a waiting task here.
local SETTINGS = {delay = 1, slots = 1, rev = 1, weight = 1, ver = 1, cal = 1}
local UNKNOWN = {{}, 0, '', 0}
local rows = {}
local function row(id, packed)
  if not packed then return UNKNOWN end
  if rows[packed] then return rows[packed] end
  local c, flat = cmsgpack.unpack(packed), {}
  if c.gone then return UNKNOWN end -- it is being deleted
  for field, value in pairs(c) do
    if value ~= 0 and type(value) == 'number' and not SETTINGS[field] then
      flat[#flat + 1] = field
      flat[#flat + 1] = string.format('%.0f', value)
    end
  end
  if c.wait then return {flat, next_due(id), c.state or '', num(c.ver)} end
  rows[packed] = {flat, 0, c.state or '', num(c.ver)}
  return rows[packed]
end
local keys = {}
for i, id in ipairs(args) do keys[i] = P .. ':c:' .. id end
local records, due = redis.call('MGET', unpack(keys)), redis.call('HMGET', 'gc:owner', 'owed', 'debt')
local owed = due[1] and 1 or due[2] and 2 or 0
local first = row(args[1], records[1])
local reply = {'OK', now, first[1], first[2], next_tend(), owed}
for i = 2, #args do reply[#reply + 1] = row(args[i], records[i]) end
reply[#reply + 1] = first[3]
reply[#reply + 1] = first[4]
return reply
