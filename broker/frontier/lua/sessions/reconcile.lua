-- include leases
-- "Up to (incarnation, sequence) I hold these tokens": release all other sessions of this incarnation, without a
-- failure, and all sessions of dead incarnations.
--
-- args  {worker, incarnation, sequence, longest request ms, most, leaving, {incarnation that left …},
--        {token held …}, {incarnation dead …}, {token idle …}}
-- {'OK', now, sessions released, tasks released, more, {incarnation that left …}}: more is 1 if it stopped
-- at `most` sessions.
-- {'OLD', now, newer}: `newer` is another incarnation that has the name, or 0 if the caller has left:
-- nothing was done.
--
-- Incarnations that left for good are those that another node named, and the latest of those that are known
-- here (#gone). leaving = 1: the caller leaves. If another node had an incarnation later than #inc that has
-- left, this node was away meanwhile.
--
-- The name belongs to the latest incarnation (#inc) until that one has left (#free); then to the first that
-- asks. An incarnation that has left does not ask: its calls are late ones.
--
-- If an older incarnation is dead, its tasks count one more delivery without an outcome, and its hosts rest
-- for the longest request, since a request may still run there; hosts without a request (idle) do not rest.
-- A caller that knows how long ago the process died has subtracted that time. crash_hosts and crash_till of the
-- owner record say how many hosts rest, and until when, their delays included. Any other older incarnation may
-- run on another machine, and learn nothing of this: its sessions stay until it closes them, or they expire.
local GONE_KEPT = 16
local function set_of(list)
  local set = {}
  for _, one in ipairs(list) do set[one] = true end
  return set
end
local worker, inc, seq, longest, leaving = args[1], args[2], args[3], args[4], args[6] == 1
local ws = P .. ':ws:' .. worker
local all = record(ws)
local known, last = all['#inc'] ~= nil, num(all['#inc'])
local gone, left_before, told = set_of(args[7]), {}, math.max(-1, unpack(args[7]))
for n in string.gmatch(all['#gone'] or '', '%d+') do
  left_before[num(n)], gone[num(n)] = true, true
end
if known then
  if inc ~= last and left_before[inc] or inc == last and all['#free'] and not leaving then
    return {'OLD', now, 0}
  end
  if inc < last and not all['#free'] and told < last then return {'OLD', now, last} end
end
if leaving then gone[inc] = true end
local left = {}
for n in pairs(gone) do left[#left + 1] = n end
table.sort(left, function(a, b) return a > b end)
for i = #left, GONE_KEPT + 1, -1 do left[i] = nil end
if #left > 0 then redis.call('HSET', ws, '#gone', table.concat(left, ' ')) end
if not leaving or not known or inc == last then -- otherwise the name belongs to another incarnation here
  if inc ~= last or seq > num(all['#seq']) then redis.call('HSET', ws, '#inc', inc, '#seq', seq) end
  if leaving then redis.call('HSET', ws, '#free', 1) else redis.call('HDEL', ws, '#free') end
end
redis.call('PEXPIRE', ws, WORKER_MS)
local keep, dead, idle = set_of(args[8]), set_of(args[9]), set_of(args[10])
local sessions, tasks, more, resting, rest_till = 0, 0, 0, 0, 0
for token, mark in pairs(all) do
  local i, n = string.match(mark, '^(%d+):(%d+)$')
  if i and not keep[token] and (dead[num(i)] and num(i) < inc and not leaving or num(i) == inc and num(n) <= seq) then
    if sessions >= args[5] then more = 1; break end
    local s = record(P .. ':s:' .. token)
    if s.host then
      local h = host_of(s.host)
      tasks = tasks + give_back(token, s, h, nil, num(i) < inc)
      sessions = sessions + 1
      local running = num(i) < inc and not idle[token]
      if s.open == '1' then
        free_slot(token, s, h, running and now + longest or now)
        if running and longest > 0 then
          local rests_till = math.max(num(h.next), num(h.last) + delay_of(h)) -- a block is no rest after a crash
          resting, rest_till = resting + 1, math.max(rest_till, rests_till)
        end
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
             string.format('%.0f', math.max(till, rest_till)))
end
save()
return {'OK', now, sessions, tasks, more, left}
