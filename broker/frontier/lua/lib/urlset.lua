-- A set of 64-bit fingerprints: buckets of integers under linear hashing (Litwin 1980).
--
-- bucket = top bits, so a split moves the upper half and renames nothing, and buckets stay below the
-- 512 members up to which Redis keeps an intset. Fingerprints are compared through doubles:
-- monotone, so consistent. `kind` is 'z' for what was seen, 'y' for what waits in the overflow; the
-- keys are :<kind>:<crawl>:<start> and :<kind>s:<crawl> with level, ptr and count.
local function urlset(kind, crawl)
  local AVERAGE, SPLITS = 200, 8
  local state, prefix = P .. ':' .. kind .. 's:' .. crawl, P .. ':' .. kind .. ':' .. crawl .. ':'
  local z = redis.call('HMGET', state, 'level', 'ptr', 'count')
  local level, ptr, count = num(z[1]), num(z[2]), num(z[3])
  local size, changed = 2 ^ (32 - level), false
  local set = {}

  local function top(fp)
    return math.min(math.floor((tonumber(fp) + 9223372036854775808) / 4294967296), 4294967295)
  end
  local function name(start) return prefix .. string.format('%08x', start) end
  local function bucket_of(fp)
    local t = top(fp)
    local i = math.floor(t / size)
    if i < ptr then return name(math.floor(t / (size / 2)) * (size / 2)) end
    return name(i * size)
  end
  local function split()
    local start = ptr * size
    local mid = start + size / 2
    local low, high = {}, {}
    for _, fp in ipairs(redis.call('SMEMBERS', name(start))) do
      local half = top(fp) < mid and low or high
      half[#half + 1] = fp
    end
    if #high > 0 then
      redis.call('DEL', name(start))
      if #low > 0 then redis.call('SADD', name(start), unpack(low)) end
      redis.call('SADD', name(mid), unpack(high))
    end
    ptr = ptr + 1
    if ptr == 2 ^ level then level, ptr, size = level + 1, 0, size / 2 end
    changed = true
  end

  -- Make room for so many more: before they are added, since a bucket that once was too large stays
  -- a hash table.
  function set.grow(incoming)
    local splits = 0
    while splits < SPLITS and level < 31 and count + incoming > AVERAGE * (2 ^ level + ptr) do
      split()
      splits = splits + 1
    end
  end
  function set.has(fp)
    return count > 0 and redis.call('SISMEMBER', bucket_of(fp), fp) == 1
  end
  -- True if it was not there.
  function set.add(fp)
    if redis.call('SADD', bucket_of(fp), fp) == 0 then return false end
    count, changed = count + 1, true
    return true
  end
  -- True if it was there.
  function set.remove(fp)
    if count == 0 or redis.call('SREM', bucket_of(fp), fp) == 0 then return false end
    count, changed = count - 1, true
    return true
  end
  function set.save()
    if changed then redis.call('HSET', state, 'level', level, 'ptr', ptr, 'count', count) end
  end
  -- Delete up to `most` buckets; true when all are gone.
  function set.purge(most)
    if not z[1] then return true end
    local done, total = num(redis.call('HGET', state, 'purged')), 2 ^ level + ptr
    local last = math.min(done + most, total)
    for i = done, last - 1 do
      redis.call('DEL', name(i < 2 * ptr and i * (size / 2) or (i - ptr) * size))
    end
    if last < total then
      redis.call('HSET', state, 'purged', last)
      return false
    end
    redis.call('DEL', state)
    return true
  end
  return set
end
