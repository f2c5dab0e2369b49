-- Read a crawl's quota under a number, or change it under the same; see quotas.py.
--
-- args  {crawl, number, by}: by is 0 to read, which keeps the number
-- {'OK', now, mine, changed, quota, waiting, leased, stored, next}: if another caller has used a higher
-- number, or the crawl has no quota, mine is 0 and nothing was done; `changed` is less than `by` if the quota
-- would otherwise be negative.
local id, number, by = tostring(args[1]), args[2], args[3]
local c = crawl_of(id)
if not c then return {'GONE'} end
local mine = c.quota and (by == 0 and number >= num(c.round) or number == c.round)
if mine then
  by = math.max(by, -c.quota)
  c.round, changed[id] = number, true
  if by ~= 0 then allow(id, by) end
  if by > 0 then c.low = math.floor(c.quota / 4) end
  save()
end
return {'OK', now, mine and 1 or 0, mine and by or 0, num(c.quota), num(c.wait), num(c.leased),
        num(c.stored), next_due(id)}
