-- What is known of a host; an operator's delay and block are set first where given.
--
-- args  {host, delay ms or -1, block ms or -1}
-- {'OK', now, {field, value …}, {waiting per crawl …}}. blocked-until never moves back, but for a
-- block of 0, by which an operator lifts it.
local hk = P .. ':h:' .. args[1]
if args[2] >= 0 or args[3] >= 0 then
  local h = record(hk)
  if args[2] >= 0 then h.od = args[2] end
  if args[3] == 0 then
    h.till, h.lvl = 0, 0
  elseif args[3] > 0 then
    h.till = math.max(num(h.till), now + args[3])
  end
  redis.call('HSET', hk, 'od', num(h.od), 'till', num(h.till), 'lvl', num(h.lvl))
  rescore(args[1], h)
end
return {'OK', now, redis.call('HGETALL', hk)}
