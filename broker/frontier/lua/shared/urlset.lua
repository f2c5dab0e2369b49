-- A set of 64-bit fingerprints: buckets of integers under linear hashing (Litwin 1980).
--
-- bucket = top bits, so a split moves the upper half and renames nothing, and buckets stay below the
-- 512 members up to which Redis keeps an intset. Fingerprints are compared as doubles, which keeps their
-- order. `kind` is 'z' for the seen-set, 'y' for URLs in the overflow; the keys are :<kind>:<crawl>:<start>;
-- level, pointer and count are in the crawl's record.
local function urlset(kind, id)
  local AVERAGE, SPLITS = 200, 8
  local prefix, c = P .. ':' .. kind .. ':' .. id .. ':', crawl_of(id)
  local level, ptr, count = c[kind .. 'l'] or 0, c[kind .. 'p'] or 0, c[kind .. 'n'] or 0
  local size, grown = 2 ^ (32 - level), false
  local set = {}

  local function top(fp)
    return math.min(math.floor((tonumber(fp) + 9223372036854775808) / 4294967296), 4294967295)
  end
  local names = {}
  local function name(start)
    local found = names[start]
    if not found then
      found = prefix .. string.format('%08x', start)
      names[start] = found
    end
    return found
  end
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
    grown = true
  end

  -- Make room for so many more before they are added, since a bucket that was once too large stays
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
  -- Return whether it was not there.
  function set.add(fp)
    if redis.call('SADD', bucket_of(fp), fp) == 0 then return false end
    count, grown = count + 1, true
    return true
  end
  -- Return whether it was there.
  function set.remove(fp)
    if count == 0 or redis.call('SREM', bucket_of(fp), fp) == 0 then return false end
    count, grown = count - 1, true
    return true
  end
  -- Write level, pointer and count to the crawl's record.
  function set.save()
    if not grown then return end
    c[kind .. 'l'], c[kind .. 'p'], c[kind .. 'n'] = level, ptr, count
    changed[id] = true
  end
  -- Delete up to `most` buckets; return true when all are deleted.
  function set.purge(most)
    local total = 2 ^ level + ptr
    local last = math.min((c[kind .. 'd'] or 0) + most, total)
    for i = c[kind .. 'd'] or 0, last - 1 do
      redis.call('DEL', name(i < 2 * ptr and i * (size / 2) or (i - ptr) * size))
    end
    c[kind .. 'd'] = last
    return last == total
  end
  return set
end
