-- Return the counters of crawls in this partition, without those that are zero.
--
-- args  {crawl, more of them …}, some dozens at most
-- {'OK', now, {field, value …}, next, maintain_at, owed, state, version}: owed is 1 until the node was refilled
-- (recovery.py), 2 while it gets what it missed (debts.py). state is '' if the partition does not know
-- the crawl. For more than one crawl, the answer has two lists before `state`: {row …}, and for each further
-- crawl the number of its row in {row …}. A row is {{field, value …}, next, state, version}.
-- Most crawls have nothing in most partitions. Crawls with equal options then have equal records, and share
-- a row. Nothing is due of a crawl that never had a waiting task here.
local SETTINGS = {delay = 1, slots = 1, rev = 1, weight = 1, ver = 1, cal = 1}
local function counted(packed, id)
  local flat, c = {}, packed and cmsgpack.unpack(packed) or {}
  if c.gone then c = {} end -- it is being deleted
  for field, value in pairs(c) do
    if value ~= 0 and type(value) == 'number' and not SETTINGS[field] then
      flat[#flat + 1] = field
      flat[#flat + 1] = string.format('%.0f', value)
    end
  end
  return {flat, c.wait and next_due(id) or 0, c.state or '', num(c.ver)}, not c.wait
end
local keys = {}
for i, id in ipairs(args) do keys[i] = P .. ':c:' .. id end
local records, due = redis.call('MGET', unpack(keys)), redis.call('HMGET', 'gc:owner', 'owed', 'debt')
local owed = due[1] and 1 or due[2] and 2 or 0
local first = counted(records[1], args[1])
local reply = {'OK', now, first[1], first[2], next_maintenance(), owed}
if #args > 1 then
  local rows, numbers, shared = {}, {}, {}
  for i = 2, #args do
    local packed = records[i]
    local number = shared[packed]
    if not number then
      number = #rows + 1
      local row, same = counted(packed, args[i])
      rows[number] = row
      if same then shared[packed] = number end
    end
    numbers[i - 1] = number
  end
  reply[#reply + 1] = rows
  reply[#reply + 1] = numbers
end
reply[#reply + 1] = first[3]
reply[#reply + 1] = first[4]
return reply
