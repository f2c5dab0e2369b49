-- include urlset leases
-- Drop a host's tasks of one crawl, a bounded number a call: first the named tasks, whose final states are
-- in SQL; then return the next ones. Rows of the overflow are dropped after that.
--
-- args  {crawl, host, most, {value waiting …}, {value in later …}, {fingerprint in overflow …}, from}
-- {'OK', now, removed, {value waiting …}, {value in later …}, from, left}: `from` is the position up to
-- which `later` has been read (-1: to its end), `left` counts the tasks in memory. Tasks that were leased
-- meanwhile stay: their session finishes them.
local id, host, most = tostring(args[1]), args[2], args[3]
if not crawl_of(id) then return {'GONE'} end
local h, removed, again = host_of(host), 0, urlset('g', id)
local function gone(count, value)
  removed = removed + count
  bump(id, 'fin', count)
  bump(id, 'f:purged', count)
  if value then
    metered = metered - count * cost_of(value)
    local fp, new = mark_of(value)
    if fp then
      again.remove(fp)
      redis.call('SREM', P .. ':gf:' .. id, fp)
    end
    if fp and not new then bump(id, 'again', -1) end
  end
end

if #args[4] > 0 then
  local named, rest, bytes = {}, {}, 0
  for _, value in ipairs(args[4]) do named[value] = true end
  local popped = pop(h, id, #args[4])
  for _, value in ipairs(popped) do
    if named[value] then
      gone(1, value)
    else
      rest[#rest + 1] = value
      bytes = bytes + cost_of(value)
    end
  end
  bump(id, 'wait', -(#popped - #rest))
  if #rest > 0 then push(h, id, rest, bytes, true) end
end
local prefix = id .. '\n' .. host .. '\n'
for _, value in ipairs(args[5]) do
  if redis.call('ZREM', P .. ':later', prefix .. value) == 1 then
    bump(id, 'later', -1)
    gone(1, value)
  end
end
if #args[6] > 0 then
  local seen, spilled = urlset('z', id), urlset('y', id)
  seen.grow(#args[6])
  for _, fp in ipairs(args[6]) do
    if spilled.remove(fp) then
      seen.add(fp)
      bump(id, 'over', -1)
      gone(1)
    elseif seen.add(fp) then -- a mark of it may still arrive (mark.lua), and is refused then
      bump(id, 'adm', 1)
      gone(1)
    end
  end
  seen.save()
  spilled.save()
end
again.save()
rescore(h)
if not h.q[id] then redis.call('ZREM', P .. ':due:' .. id, host) end
save()

local waiting, later, at = {}, {}, args[7]
local q = h.q[id]
for i, value in ipairs(q and q.e or {}) do
  if i <= most then waiting[i] = value end
end
if q and q.l then
  for n = 1, #q.l do
    local ch = string.sub(q.l, n, n)
    for _, entry in ipairs(redis.call('LRANGE', list_key(id, host, ch), 0, most - #waiting - 1)) do
      waiting[#waiting + 1] = ch .. entry
    end
    if #waiting >= most then break end
  end
end
if #waiting == 0 and at >= 0 then
  local members = redis.call('ZRANGE', P .. ':later', at, at + most - 1)
  for _, member in ipairs(members) do
    if string.sub(member, 1, #prefix) == prefix then
      later[#later + 1] = string.sub(member, #prefix + 1)
    end
  end
  at = #members < most and -1 or at + #members - #later
end
return {'OK', now, removed, waiting, later, at, q and tasks_in(q) or 0}
