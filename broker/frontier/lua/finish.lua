-- Settle tasks under their session's token.
--
-- args  {{token, host, task number, 'done'|'retry'|'dead', kind, wait ms, charge, stored, bytes} …}
-- {'OK', now, statuses, tend}: 'ok', 'stale' (token or task not current: nothing changed) or 'gone'.
local SUSPECT = 3 -- schema.records.SUSPECT_DELIVERIES
local statuses, sessions, earlier = {}, {}, nil
local before = next_tend()
for a = 1, #args do
  local it = args[a]
  local token, field = it[1], 't' .. it[3]
  local s = sessions[token]
  if not s then
    local got = redis.call('HMGET', P .. ':s:' .. token, 'host', 'crawl', 'worker', 'open')
    s = {host = got[1], crawl = got[2], worker = got[3], open = got[4]}
    sessions[token] = s
  end
  local value = s.host == it[2] and redis.call('HGET', P .. ':s:' .. token, field)
  if not value then
    statuses[#statuses + 1] = 'stale'
  else
    redis.call('HDEL', P .. ':s:' .. token, field)
    s.left = redis.call('HINCRBY', P .. ':s:' .. token, 'left', -1)
    local counters = P .. ':n:' .. s.crawl
    if redis.call('EXISTS', P .. ':c:' .. s.crawl) == 0 then
      statuses[#statuses + 1] = 'gone'
    else
      redis.call('HINCRBY', counters, 'leased', -1)
      if it[5] ~= 'ok' then redis.call('HINCRBY', counters, 'f:' .. it[5], 1) end
      if it[4] == 'retry' then
        local d, r, e, n, path = entry_parts(string.sub(value, 2))
        -- a suspect stays one, and a page that took its process along becomes one: it runs alone
        local suspect = n >= SUSPECT or it[5] == 'process_death' or it[5] == 'stalled'
        local entry = entry_make(d, r, e + it[7], suspect and SUSPECT or 0, path)
        local at = now + it[6]
        local member = s.crawl .. '\n' .. s.host .. '\n' .. string.sub(value, 1, 1) .. entry
        if redis.call('ZADD', P .. ':later', at, member) == 1 then
          redis.call('HINCRBY', counters, 'later', 1)
        else -- the same URL, queued twice by force, waits there already: this one ends here
          redis.call('HINCRBY', counters, 'fin', 1)
        end
        redis.call('HINCRBY', counters, 'retries', 1)
        earlier = math.min(earlier or at, at)
      else
        redis.call('HINCRBY', counters, 'fin', 1)
        if it[4] == 'dead' then redis.call('HINCRBY', counters, 'dead', 1) end
        if it[8] == 1 then redis.call('HINCRBY', counters, 'stored', 1) end
        if it[9] > 0 then redis.call('HINCRBY', counters, 'bytes', it[9]) end
      end
      statuses[#statuses + 1] = 'ok'
    end
  end
end
for token, s in pairs(sessions) do
  if s.left and s.left <= 0 and s.open == '0' then drop_session(token, s) end
end
if earlier and (before == 0 or earlier < before) then wake(0, earlier) end
return {'OK', now, statuses, next_tend()}
