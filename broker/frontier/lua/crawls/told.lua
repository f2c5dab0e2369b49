-- Which crawls the partition was told of, and in which version.
--
-- args  {}
-- {'OK', now, {crawl, version …}}: a crawl stays until it is deleted. The list is as long as there are
-- crawls; processes of the version before do not write into it.
return {'OK', now, redis.call('HGETALL', P .. ':crawls')}
