-- include urlset
-- Note URLs that are in the overflow now: they are known, and wait in SQL.
--
-- args  {crawl, [fingerprint, host, level character] …flat}
-- {'DONE', now, version}: nothing was done; see admit.lua.
-- {'OK', now, flags}: '1' if it was not known before. A host that has tasks here accepts no more of
-- that level or worse until its overflow is back (admit.lua, host_level.lua).
local id = tostring(args[1])
local c = crawl_of(id)
if not c then return {'GONE'} end
local seen, spilled, flags = urlset('z', id), urlset('y', id), {}
if c.state == 'done' then
  for i = 2, #args, 3 do
    if not (seen.has(args[i]) or spilled.has(args[i])) then return {'DONE', now, num(c.ver)} end
  end
end
spilled.grow((#args - 1) / 3)
for i = 2, #args, 3 do
  local fp, host, ch = args[i], args[i + 1], args[i + 2]
  local new = not seen.has(fp) and spilled.add(fp)
  flags[#flags + 1] = new and '1' or '0'
  if new then
    bump(id, 'adm', 1)
    bump(id, 'over', 1)
    local h = host_of(host)
    local q = h.q[id]
    if q and (not q.o or ch < q.o) then q.o, dirty[host] = ch, true end
  end
end
spilled.save()
save()
return {'OK', now, table.concat(flags)}
