-- include leases
-- Hand back unfetched tasks, without a failure. The slot stays until close.
--
-- args  {{token, host, task number …} …}; no number: all that are left
-- {'OK', now, statuses}
local statuses = {}
for a = 1, #args do
  local it = args[a]
  local s = record(P .. ':s:' .. it[1])
  if s.host ~= it[2] then
    statuses[#statuses + 1] = 'stale'
  else
    local only = nil
    for i = 3, #it do only = only or {}; only[it[i]] = true end
    local h = host_of(s.host)
    give_back(it[1], s, h, only, false)
    if num(s.left) <= 0 and s.open == '0' then drop_session(it[1], s) end
    rescore(h)
    statuses[#statuses + 1] = 'ok'
  end
end
save()
return {'OK', now, statuses}
