-- include leases
-- "Up to (incarnation, sequence) I hold these tokens": release all else of this worker, uncharged.
--
-- args  {worker, incarnation, sequence, longest request ms, most, tokens held, token held …,
--        token idle …}
-- {'OK', now, sessions released, tasks released, more}: more is 1 if it stopped at `most` sessions.
-- {'OLD', now, newer}: from an incarnation before the last, which is given: nothing was done.
--
-- An older incarnation died: its tasks were delivered once more without an outcome, and its hosts rest
-- for the longest request, since one may still be running at the server, but for those where none was
-- (idle). The caller has taken off it how long ago the death was, where that is known. How many hosts rest,
-- and until when, is in crash_hosts and crash_till of the owner record.
local worker, inc, seq, longest = args[1], args[2], args[3], args[4]
local ws = P .. ':ws:' .. worker
local all = record(ws)
if inc < num(all['#inc']) then return {'OLD', now, num(all['#inc'])} end
if inc > num(all['#inc']) or seq > num(all['#seq']) then
  redis.call('HSET', ws, '#inc', inc, '#seq', seq)
end
redis.call('PEXPIRE', ws, WORKER_MS)
local keep, idle = {}, {}
for i = 7, #args do
  if i < 7 + args[6] then keep[args[i]] = true else idle[args[i]] = true end
end
local sessions, tasks, more, resting = 0, 0, 0, 0
for token, mark in pairs(all) do
  local i, n = string.match(mark, '^(%d+):(%d+)$')
  if i and not keep[token] and (num(i) < inc or num(n) <= seq) then
    if sessions >= args[5] then more = 1; break end
    local s = record(P .. ':s:' .. token)
    if s.host then
      local h = host_of(s.host)
      tasks = tasks + give_back(token, s, h, nil, num(i) < inc)
      sessions = sessions + 1
      local running = num(i) < inc and not idle[token]
      if s.open == '1' then
        free_slot(token, s, h, running and now + longest or now)
        if running and longest > 0 then resting = resting + 1 end
      end
      drop_session(token, s)
      rescore(h)
    else
      redis.call('HDEL', ws, token)
    end
  end
end
if resting > 0 then
  local before = redis.call('HMGET', 'gc:owner', 'crash_hosts', 'crash_till')
  local till = num(before[2])
  if till > now then resting = resting + num(before[1]) end
  redis.call('HSET', 'gc:owner', 'crash_hosts', resting, 'crash_till',
             string.format('%.0f', math.max(till, now + longest)))
end
save()
return {'OK', now, sessions, tasks, more}
