-- A crawl's statistics of a host's shapes, as workers packed them: a cache, :t:<crawl>:<host>.
local TRAPS_SECONDS = 7 * 86400
local TRAPS_BYTES = 4096 -- schema.records.TRAPS_BYTES

local function traps_name(id, host) return id .. ':' .. host end
local function traps_of(id, host) return redis.call('GET', P .. ':t:' .. traps_name(id, host)) or '' end

-- Keep a record, unless it is too large or there is no room for it.
local function keep_traps(id, host, record)
  if record == '' or #record > TRAPS_BYTES or not crawl_of(id) then return end
  local limits, name = redis.call('HMGET', 'gc:owner', 'full', 'traps_budget'), traps_name(id, host)
  local budget = num(limits[2])
  if limits[1] == '1' or cached_bytes(name, record) > budget then return end
  keep('t', name, record, TRAPS_SECONDS, budget, false)
end

-- Drop records of a crawl from a cursor on, some at a time; return the next cursor, '0' at the end.
local function drop_traps(id, cursor, most)
  local found = redis.call('ZSCAN', P .. ':to', cursor, 'MATCH', id .. ':*', 'COUNT', most)
  local names, gone = found[2], 0
  for i = 1, #names, 2 do
    redis.call('UNLINK', P .. ':t:' .. names[i])
    redis.call('ZREM', P .. ':to', names[i])
    gone = gone + names[i + 1] % SIZES
  end
  if gone > 0 and redis.call('DECRBY', P .. ':tb', string.format('%.0f', gone)) <= 0 then
    redis.call('DEL', P .. ':tb')
  end
  return found[1]
end
