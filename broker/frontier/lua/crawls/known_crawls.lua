-- Return the crawls that the partition knows, and their versions.
--
-- args  {}
-- {'OK', now, {crawl, version …}}: a crawl stays until it is deleted. The list is as long as there are
-- crawls; processes of the version before do not write into it.
return {'OK', now, redis.call('HGETALL', P .. ':crawls')}
