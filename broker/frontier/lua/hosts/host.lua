-- include leases
-- Return the data of a host, after setting an operator's delay and block if given.
--
-- args  {host, delay ms or -1, block ms or -1}
-- {'OK', now, {field, value …}, waiting, why}: waiting counts the tasks of all crawls; why is the reason why
-- the host is blocked, or rests without a fault of its own. The field 'kept' is the delay in force: that of
-- crawls that wait here, and of the open session. blocked-until never moves back, except by a block of 0, with
-- which an operator removes it.
local h = host_of(args[1])
if args[2] >= 0 or args[3] >= 0 then
  if args[2] >= 0 then put(h, 'od', args[2]) end
  dirty[args[1]] = true
  if args[3] == 0 then
    h.till, h.lvl, h.why = nil, nil, nil
  elseif args[3] > 0 then
    h.till = math.max(num(h.till), now + args[3])
  end
  rescore(h)
  save()
end
local flat, waiting = {}, 0
for _, field in ipairs({'next', 'till', 'lvl', 'busy', 'ad', 'rd', 'od', 'lat', 'fail', 'rob'}) do
  flat[#flat + 1] = field
  flat[#flat + 1] = string.format('%.0f', num(h[field]))
end
flat[#flat + 1] = 'kept'
flat[#flat + 1] = string.format('%.0f', math.max(delay_of(h), num(h.sole)))
for _, q in pairs(h.q) do waiting = waiting + tasks_in(q) end
return {'OK', now, flat, waiting, num(h.till) > now and h.why or num(h.next) > now and h.nw or ''}
