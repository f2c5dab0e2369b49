-- A cache of records, each kind with a budget of its own in each partition.
--
-- :<kind>o has the names by the second in which they expire, times 2^20, and their bytes; :<kind>b is the
-- sum of the bytes; :<kind>:<name> is a record. Records that expire first are dropped first, a bounded
-- number a call.
local SIZES, MOST = 1048576, 64
local ENTRY_BYTES = 250 -- what an entry costs beside its record and twice its name

-- Return the bytes of a record that count against the budget.
local function cached_bytes(name, record) return #record + 2 * #name + ENTRY_BYTES end

-- Keep a record for so many seconds; false if there is no room for it. needed: keep it whatever the budget,
-- and drop others as far as possible.
local function keep(kind, name, record, seconds, budget, needed)
  local index, sum, bytes = P .. ':' .. kind .. 'o', P .. ':' .. kind .. 'b', cached_bytes(name, record)
  local used = num(redis.call('GET', sum))
  local before = num(redis.call('ZSCORE', index, name)) % SIZES
  local gone = 0
  while used - before + bytes > budget and gone < MOST do
    local oldest = redis.call('ZPOPMIN', index)
    if not oldest[1] then break end
    redis.call('UNLINK', P .. ':' .. kind .. ':' .. oldest[1])
    used, gone = used - oldest[2] % SIZES, gone + 1
    if oldest[1] == name then before = 0 end
  end
  local kept = needed or used - before + bytes <= budget
  if kept then
    redis.call('SET', P .. ':' .. kind .. ':' .. name, record, 'EX', seconds)
    local till = math.floor(now / 1000) + seconds
    redis.call('ZADD', index, string.format('%.0f', till * SIZES + bytes), name)
    used = used - before + bytes
  end
  if used > 0 then redis.call('SET', sum, string.format('%.0f', used)) else redis.call('DEL', sum) end
  return kept
end
