-- Crawls that begin again: when a finished one wakes up, and the periods of each.

-- Of a crawl that is done because it was finished: when its next period begins; 0: never.
ALTER TABLE crawls ADD COLUMN wakes_ms INTEGER NOT NULL DEFAULT 0;

CREATE TABLE periods (
    crawl INTEGER NOT NULL,
    number INTEGER NOT NULL,              -- from 1: the crawl before it began again
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL DEFAULT 0,  -- 0 while it is under way
    PRIMARY KEY (crawl, number)
) WITHOUT ROWID;
