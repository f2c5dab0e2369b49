-- include leases cache traps
-- End the fetching of sessions: free the host, and keep what the session learnt about it.
--
-- args  {longest block ms, first back-off ms, {token, host, adaptive delay ms, latency ms, robots delay
--        ms, robots read, failed, block ms, requests, why, traps, put off by, task to release …} …}
-- {'OK', now, statuses, blocks, maintain_at}: blocks has until-ms (0: none) for each item. Unfinished tasks
-- stay under the token. blocked-until never moves back; the level rises once a block.
local MAX_BLOCK, BASE_BLOCK = args[1], args[2]
local statuses, blocks = {}, {}
for a = 3, #args do
  local it = args[a]
  local token = it[1]
  local s = record(P .. ':s:' .. token)
  blocks[#blocks + 1] = 0
  if s.host ~= it[2] or s.open ~= '1' then
    statuses[#statuses + 1] = 'stale'
  else
    local h = host_of(s.host)
    local only, some = {}, false
    for i = 13, #it do only[it[i]] = true; some = true end
    if some then give_back(token, s, h, only, false) end
    put(h, 'ad', it[3])
    if it[4] > 0 then h.lat = it[4] end
    if it[5] > 0 or it[6] == 1 then put(h, 'rd', it[5]) end
    if it[6] == 1 then h.rob = now + ROBOTS_MS end
    if it[7] ~= '' then
      h.fail = num(h.fail) + 1
      h.why = it[10] ~= '' and it[10] or it[7]
      local block = it[8]
      if num(h.till) <= now then
        h.lvl = math.min(num(h.lvl) + 1, 20)
        if block == 0 then block = math.min(BASE_BLOCK * 2 ^ (h.lvl - 1), 3600000) end
      end
      if block > 0 then
        h.till = math.max(num(h.till), now + math.min(block, MAX_BLOCK))
        blocks[#blocks] = h.till
      end
    elseif it[9] > 0 then
      h.fail, h.lvl, h.why = nil, nil, nil
    end
    keep_traps(s.crawl, s.host, it[11])
    free_slot(token, s, h, it[9] > 0 and now or 0)
    h.nw = nil
    if it[7] == '' and it[8] > 0 then -- not a fault of the host, but it has to wait
      if it[12] ~= '' then bump(s.crawl, 'p:' .. it[12], 1) end
      h.next = math.max(num(h.next), now + math.min(it[8], MAX_BLOCK))
      if it[10] ~= '' then h.nw = it[10] end
    end
    if num(s.left) <= 0 then drop_session(token, s) end
    rescore(h)
    statuses[#statuses + 1] = 'ok'
  end
end
save()
return {'OK', now, statuses, blocks, next_maintenance()}
