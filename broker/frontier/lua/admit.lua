-- Seen-check and enqueue of a batch of URLs of one crawl.
--
-- args  {crawl, mode, batch, [fingerprint, host, level character, entry] …flat}
-- {'OK', now, tick, flags, next}: flags has '1' for each new URL and '0' for each seen one, next the
-- head of the crawl's due set. mode 1 queues again what was seen, once for each batch (a number of the
-- log of seeds; 0: each time); modes 2 and 3 only mark as seen and
-- count as finished (3: and stored) what a lost node is told of the past.
--
-- The seen-set is buckets of 64-bit integers under linear hashing (Litwin 1980): bucket = top bits,
-- so a split moves the upper half and renames nothing, and buckets stay below the 512 members up to
-- which Redis keeps an intset. Fingerprints are compared through doubles: monotone, so consistent.
local crawl, force, mark = args[1], args[2] == 1, args[2] >= 2
local c = redis.call('HMGET', P .. ':c:' .. crawl, 'state', 'slots', 'delay')
if not c[1] then return {'GONE'} end
local AVERAGE, SPLITS, FORCED_MS = 200, 8, 7 * 86400000
local zs = P .. ':zs:' .. crawl
local z = redis.call('HMGET', zs, 'level', 'ptr', 'count')
local level, ptr, count = num(z[1]), num(z[2]), num(z[3])
local size = 2 ^ (32 - level)

local function top(fp)
  return math.min(math.floor((tonumber(fp) + 9223372036854775808) / 4294967296), 4294967295)
end
local function bucket(start) return P .. ':z:' .. crawl .. ':' .. string.format('%08x', start) end
local function bucket_of(fp)
  local t = top(fp)
  local i = math.floor(t / size)
  if i < ptr then return bucket(math.floor(t / (size / 2)) * (size / 2)) end
  return bucket(i * size)
end
local function split()
  local start = ptr * size
  local mid = start + size / 2
  local low, high = {}, {}
  for _, fp in ipairs(redis.call('SMEMBERS', bucket(start))) do
    local half = top(fp) < mid and low or high
    half[#half + 1] = fp
  end
  if #high > 0 then
    redis.call('DEL', bucket(start))
    if #low > 0 then redis.call('SADD', bucket(start), unpack(low)) end
    redis.call('SADD', bucket(mid), unpack(high))
  end
  ptr = ptr + 1
  if ptr == 2 ^ level then level, ptr, size = level + 1, 0, size / 2 end
end

local incoming = (#args - 3) / 4
local splits = 0
while splits < SPLITS and level < 31 and count + incoming > AVERAGE * (2 ^ level + ptr) do
  split()
  splits = splits + 1
end

local flags, hosts, order, fresh, queued = {}, {}, {}, 0, 0
local done = force and args[3] > 0 and P .. ':f:' .. string.format('%.0f', args[3])
for i = 4, #args, 4 do
  local fp, host, ch, entry = args[i], args[i + 1], args[i + 2], args[i + 3]
  local new = redis.call('SADD', bucket_of(fp), fp) == 1
  flags[#flags + 1] = new and '1' or '0'
  if new then fresh = fresh + 1 end
  local again = force and (not done or redis.call('SADD', done, fp) == 1)
  if (done and again or not done and (new or force)) and not mark then
    queued = queued + 1
    local g = hosts[host]
    if not g then g = {}; hosts[host] = g; order[#order + 1] = host end
    local l = g[ch]
    if not l then l = {}; g[ch] = l end
    l[#l + 1] = entry
  end
end
if done then redis.call('PEXPIRE', done, FORCED_MS) end
if fresh > 0 or splits > 0 then
  redis.call('HSET', zs, 'level', level, 'ptr', ptr, 'count', count + fresh)
end
local due = P .. ':due:' .. crawl
local arrived = 0
for _, host in ipairs(order) do
  local hk, cf, vf = P .. ':h:' .. host, 'c' .. crawl, 'v' .. crawl
  local h = redis.call('HMGET', hk, cf, vf, 'busy', 'next', 'till', 'rob')
  local n, levels = num(h[1]), h[2] or ''
  local first = not h[1]
  for ch, entries in pairs(hosts[host]) do
    redis.call('RPUSH', list_key(crawl, host, ch), unpack(entries))
    levels = levels_add(levels, ch)
    n = n + #entries
  end
  redis.call('HSET', hk, cf, n, vf, levels)
  if first then
    arrived = arrived + 1
    redis.call('PERSIST', hk)
    local full = record(hk)
    if num(full.busy) < capacity(full, num(c[2]), delay_of(full)) then
      redis.call('ZADD', due, math.max(now, num(h[4]), num(h[5])), host)
    end
  end
end
if mark and fresh > 0 then
  local counters = P .. ':n:' .. crawl
  redis.call('HINCRBY', counters, 'adm', fresh)
  redis.call('HINCRBY', counters, 'fin', fresh)
  if args[2] == 3 then redis.call('HINCRBY', counters, 'stored', fresh) end
end
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
if queued > 0 then
  local counters = P .. ':n:' .. crawl
  redis.call('HINCRBY', counters, 'adm', queued)
  redis.call('HINCRBY', counters, 'wait', queued)
  if arrived > 0 then
    redis.call('HINCRBY', counters, 'hosts', arrived)
    if c[1] == 'active' and head[1] and hosts[head[1]] then wake(crawl, num(head[2])) end
  end
end
return {'OK', now, num(owner[5]), table.concat(flags), num(head[2])}
