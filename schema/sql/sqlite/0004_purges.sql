-- What is being deleted: a whole crawl, or what waits of one host in it. A row goes when nothing is
-- left, so that a broker that dies half-way leaves the rest to the next one.

CREATE TABLE purges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL DEFAULT '',        -- '': all of the crawl
    asked_ms INTEGER NOT NULL,
    total INTEGER NOT NULL DEFAULT 0,     -- rows or tasks at the beginning; 0: not counted yet
    removed INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX purges_by_host ON purges (crawl, host);
INSERT INTO purges (crawl, asked_ms) SELECT id, created_ms FROM crawls WHERE deleted = 1;
