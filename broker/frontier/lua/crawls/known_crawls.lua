-- Return the crawls that the partition knows, and their versions.
--
-- args  {}
-- {'OK', now, {crawl, version …}}: a crawl stays in the list until it is deleted. The list has an entry for
-- each crawl; processes of the previous version of the program write no entries.
return {'OK', now, redis.call('HGETALL', P .. ':crawls')}
