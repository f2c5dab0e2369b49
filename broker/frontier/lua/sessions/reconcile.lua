-- include leases
-- "Up to (incarnation, sequence) I hold these tokens": release all else of this worker, uncharged.
--
-- args  {worker, incarnation, sequence, longest request ms, most, left, tokens held, token held …,
--        incarnations dead, incarnation dead …, token idle …}
-- {'OK', now, sessions released, tasks released, more, left}: more is 1 if it stopped at `most` sessions.
-- {'OLD', now, newer}: another incarnation has the name, which is given, or the caller has left (0):
-- nothing was done.
--
-- left: the incarnation that is known to have left for good, the caller's own or one that another node
-- told of; -1 for none. Answered is the latest that is known here.
--
-- The name belongs to the latest incarnation (#inc) until that one has left (#free); then to the first that
-- asks. Those later than #inc up to the latest that left (#left) have left too: their words come late.
--
-- An older incarnation that is dead: its tasks were delivered once more without an outcome, and its hosts
-- rest for the longest request, since one may still be running at the server, but for those where none was
-- (idle). The caller has taken off it how long ago the death was, where that is known. How many hosts rest,
-- and until when, is in crash_hosts and crash_till of the owner record. Any other older incarnation may be
-- at work on another machine, and hear nothing of this: its sessions stay until it ends them, or they run out.
local worker, inc, seq, longest = args[1], args[2], args[3], args[4]
local ws = P .. ':ws:' .. worker
local all = record(ws)
local known, last, left = all['#inc'] ~= nil, num(all['#inc']), tonumber(all['#left'] or -1)
local leaving = args[6] == inc
if known then
  if inc > last and inc <= left or inc == last and all['#free'] and not leaving then return {'OLD', now, 0} end
  if inc < last and not all['#free'] and args[6] < last then return {'OLD', now, last} end
end
left = math.max(left, args[6])
if left >= 0 then redis.call('HSET', ws, '#left', left) end
if not leaving or not known or inc == last then -- else it leaves a name that is another's here
  if inc ~= last or seq > num(all['#seq']) then redis.call('HSET', ws, '#inc', inc, '#seq', seq) end
  if leaving then redis.call('HSET', ws, '#free', 1) else redis.call('HDEL', ws, '#free') end
end
redis.call('PEXPIRE', ws, WORKER_MS)
local keep, dead, idle = {}, {}, {}
local ends = 7 + args[7]
local dead_end = ends + 1 + args[ends + 1]
for i = 8, ends do keep[args[i]] = true end
for i = ends + 2, dead_end do dead[args[i]] = true end
for i = dead_end + 1, #args do idle[args[i]] = true end
local sessions, tasks, more, resting = 0, 0, 0, 0
for token, mark in pairs(all) do
  local i, n = string.match(mark, '^(%d+):(%d+)$')
  if i and not keep[token] and (dead[i] and num(i) < inc and not leaving or num(i) == inc and num(n) <= seq) then
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
return {'OK', now, sessions, tasks, more, left}
