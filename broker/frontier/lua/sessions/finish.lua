-- include urlset leases
-- Settle tasks under their session's token.
--
-- args  {{token, host, task number, 'done'|'retry'|'dead', kind, wait ms, charge, stored, bytes,
--       rewritten links of a page that is done, forget} …}; forget 1: the URL is gone, and unknown from
--       now on, so that the next link to it queues it again
-- {'OK', now, statuses, maintain_at, {crawl …}}: 'ok', 'stale' (token or task not current: nothing changed) or 'gone'.
--
-- A task that killed or hung a process comes back as one delivered SUSPECT times without outcome: from
-- then on its page is read in a process of its own.
local SUSPECT = 3 -- schema.records.SUSPECT_DELIVERIES
local statuses, sessions, earlier = {}, {}, nil
local sets = {}
local function set_of(kind, id)
  local key = kind .. id
  sets[key] = sets[key] or urlset(kind, id)
  return sets[key]
end
local before = next_maintenance()
for a = 1, #args do
  local it = args[a]
  local token, field = it[1], 't' .. it[3]
  local s = sessions[token]
  if not s then
    local got = redis.call('HMGET', P .. ':s:' .. token, 'host', 'crawl', 'worker', 'open')
    s = {host = got[1], crawl = got[2], worker = got[3], open = got[4], settled = {}, gone = {}}
    sessions[token] = s
  end
  local value = s.host == it[2] and not s.gone[field] and redis.call('HGET', P .. ':s:' .. token, field)
  if not value then
    statuses[#statuses + 1] = 'stale'
  else
    s.gone[field] = true
    s.settled[#s.settled + 1] = field
    local cost = cost_of(value)
    if not crawl_of(s.crawl) then
      metered = metered - cost
      statuses[#statuses + 1] = 'gone'
    else
      bump(s.crawl, 'leased', -1)
      if it[8] ~= 1 then allow(s.crawl, 1) end
      if it[5] ~= 'ok' then bump(s.crawl, 'f:' .. it[5], 1) end
      local over = it[4] ~= 'retry'
      local fp, new = mark_of(value)
      local forced = fp and over and redis.call('SREM', P .. ':gf:' .. s.crawl, fp) == 1
      if it[4] == 'retry' then
        local d, r, e, n, path, mark = entry_parts(string.sub(value, 2))
        local suspect = n >= SUSPECT or it[5] == 'process_death' or it[5] == 'stalled'
        local entry = entry_make(d, r, e + it[7], suspect and SUSPECT or 0, path, mark)
        local at = now + it[6]
        local member = s.crawl .. '\n' .. s.host .. '\n' .. string.sub(value, 1, 1) .. entry
        -- the same URL, queued twice by force, may already wait there: this task ends here
        over = redis.call('ZADD', P .. ':later', at, member) == 0
        if not over then bump(s.crawl, 'later', 1) end
        bump(s.crawl, 'retries', 1)
        earlier = math.min(earlier or at, at)
      else
        if it[4] == 'dead' then bump(s.crawl, 'dead', 1) end
        if it[8] == 1 then bump(s.crawl, 'stored', 1) end
        bump(s.crawl, 'bytes', it[9])
        if it[10] and it[10] > 0 then bump(s.crawl, 'rewritten', it[10]) end
      end
      if over then bump(s.crawl, 'fin', 1) end
      if forced and it[8] ~= 1 and it[5] ~= 'ok' and it[5] ~= 'unchanged' then
        -- The URL was forced while it had this task; its final state was written before or after that.
        local d, r, _, _, path, mark = entry_parts(string.sub(value, 2))
        local entry = entry_make(d, r, 0, 0, path, mark)
        redis.call('ZADD', P .. ':later', now, s.crawl .. '\n' .. s.host .. '\n' .. string.sub(value, 1, 1) .. entry)
        bump(s.crawl, 'adm', 1)
        bump(s.crawl, 'requeued', 1)
        bump(s.crawl, 'later', 1)
        earlier = math.min(earlier or now, now)
      elseif over then
        metered = metered - cost
        if fp then
          set_of('g', s.crawl).remove(fp)
          if not new then bump(s.crawl, 'again', -1) end
          if it[11] == 1 then set_of('z', s.crawl).remove(fp) end
        end
      end
      statuses[#statuses + 1] = 'ok'
    end
  end
end
for token, s in pairs(sessions) do
  if #s.settled > 0 then
    local key = P .. ':s:' .. token
    redis.call('HDEL', key, unpack(s.settled))
    local left = redis.call('HINCRBY', key, 'left', -#s.settled)
    if left <= 0 and s.open == '0' then drop_session(token, s) end
  end
end
for _, set in pairs(sets) do set.save() end
save()
if earlier and (before == 0 or earlier < before) then wake(0, earlier) end
local named, of = {}, {}
for _, s in pairs(sessions) do
  if s.crawl and not named[s.crawl] then
    named[s.crawl] = true
    of[#of + 1] = tonumber(s.crawl)
  end
end
return {'OK', now, statuses, next_maintenance(), of}
