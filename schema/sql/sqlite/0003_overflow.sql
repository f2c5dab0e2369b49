-- URLs beyond the frontier's memory budget. A row goes when its page or final state is stored, or when
-- it turns out to have been fetched already.

CREATE TABLE overflow (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of arrival
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    level INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    redirects INTEGER NOT NULL,
    queued INTEGER NOT NULL DEFAULT 0,      -- epoch of the node that has it in memory, 0: none
    host TEXT NOT NULL,
    url TEXT NOT NULL
);
CREATE UNIQUE INDEX overflow_by_url ON overflow (crawl, fingerprint);
-- A host's best row first; hosts by name; whether a crawl has any.
CREATE INDEX overflow_waiting ON overflow (crawl, partition, host, level, id) WHERE queued = 0;
CREATE INDEX overflow_queued ON overflow (partition, queued) WHERE queued <> 0;
