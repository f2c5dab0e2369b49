-- include urlset leases
-- Return the place of a URL in this partition; this reads a bounded number of tasks.
--
-- args  {crawl, host, fingerprint, path, alike}: with alike, path is the result of schema.net.urls.respell,
--       and spellings that RFC 3986 calls equivalent are the same.
-- {'OK', now, seen, place, detail …}: place is 'waiting' (position, level char), 'leased' (worker,
-- number), 'later' (due ms, entry), 'overflow' or ''.
local crawl, host, fp, path, alike = args[1], args[2], args[3], args[4], args[5]
local id = tostring(crawl)
if not crawl_of(id) then return {'OK', now, 0, '', 0, ''} end
local seen = urlset('z', id).has(fp) and 1 or 0
if urlset('y', id).has(fp) then return {'OK', now, seen, 'overflow', 0, ''} end
local function octet(hex)
  local letter = string.char(tonumber(hex, 16))
  return string.find(letter, '^[%w._~-]$') and letter or '%' .. string.upper(hex)
end
local function is(entry)
  local _, _, _, _, p = entry_parts(entry)
  if alike and p ~= path and string.find(p, '%', 1, true) then p = string.gsub(p, '%%(%x%x)', octet) end
  return p == path
end
local q = host_of(host).q[id] or {e = {}}
for at, value in ipairs(q.e or {}) do
  if is(string.sub(value, 2)) then return {'OK', now, seen, 'waiting', at, string.sub(value, 1, 1)} end
end
local before = 0
for n = 1, #(q.l or '') do
  local ch = string.sub(q.l, n, n)
  local list = list_key(crawl, host, ch)
  for at, entry in ipairs(redis.call('LRANGE', list, 0, 999)) do
    if is(entry) then return {'OK', now, seen, 'waiting', before + at, ch} end
  end
  before = before + redis.call('LLEN', list)
end
for _, token in ipairs(redis.call('ZRANGE', P .. ':sd', 0, 499)) do
  local s = redis.call('HMGET', P .. ':s:' .. token, 'host', 'crawl', 'worker')
  if s[1] == host and s[2] == tostring(crawl) then
    for _, t in ipairs(held(record(P .. ':s:' .. token))) do
      if is(string.sub(t[2], 2)) then return {'OK', now, seen, 'leased', s[3], t[1]} end
    end
  end
end
local later = redis.call('ZRANGE', P .. ':later', 0, 999, 'WITHSCORES')
for n = 1, #later, 2 do
  local c, h, value = string.match(later[n], '^(%d+)\n([^\n]+)\n(.*)$')
  if c == tostring(crawl) and h == host and is(string.sub(value, 2)) then
    return {'OK', now, seen, 'later', tonumber(later[n + 1]), string.sub(value, 2)}
  end
end
return {'OK', now, seen, '', 0, ''}
