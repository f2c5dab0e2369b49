-- Logical time: Redis' TIME and an offset that the owner record keeps. Sent before common.lua, and
-- before the scripts of recovery/opening.py.
--
-- `used` is the TIME of the last call of a broker that agreed with the time it found, `gap` the longest
-- pause between two that is no outage, both in ms. A longer pause is made up for while sessions are open:
-- logical time then stood still, so deadlines move with it and nothing counts as a failure. A TIME that
-- went back is made up for, too. Without sessions, either time passed or TIME jumped: a broker decides.
-- `jumps` counts these changes of the offset, and those that a broker makes; `moved` is its value after
-- the last change that all brokers must take over.
local PAUSE_MS = 3000 -- after this time without a broker's call logical time may be ahead

-- 1 if any of the node's partitions has an open session, else 0.
local function sessions_out(partitions)
  local names = {}
  for p = 0, partitions - 1 do
    names[#names + 1] = 'gc:{' .. p .. '}:sd'
    if #names == 1000 or p == partitions - 1 then
      if redis.call('EXISTS', unpack(names)) > 0 then return 1 end
      names = {}
    end
  end
  return 0
end

local agreed -- what `used` becomes once the caller agrees

-- Logical ms now, the number of jumps, and logical ms at the last call of a broker, from these fields of
-- the owner record. heartbeat: the caller is a broker, whose calls set `used`; others read the same time and
-- write nothing.
local function node_time(offset, used, gap, jumps, partitions, heartbeat)
  local t = redis.call('TIME')
  local real = t[1] * 1000 + math.floor(t[2] / 1000)
  offset, used, jumps = tonumber(offset or 0), tonumber(used or 0), tonumber(jumps or 0)
  gap = tonumber(gap or 15000)
  local away = real - used
  if used > 0 and math.abs(away) > gap then
    if away < 0 or sessions_out(tonumber(partitions or 0)) == 1 then
      offset, jumps = offset - away, jumps + 1
      if heartbeat then
        redis.call('HSET', 'gc:owner', 'offset', offset, 'jumps', jumps, 'moved', jumps, 'used', real)
      end
      used = real
    end
  end
  if heartbeat and math.abs(real - used) >= math.min(1000, gap / 3) then agreed = real end
  return real + offset, jumps, (used > 0 and used or real) + offset
end

-- Note that a broker called, and accepted the time.
local function agree()
  if agreed then redis.call('HSET', 'gc:owner', 'used', agreed) end
end
