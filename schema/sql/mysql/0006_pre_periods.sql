-- Crawls that begin again: when a finished one wakes up, and the periods of each. As in the SQLite
-- file 0012.
--
-- The column is added at once, whatever the size of the table.

-- Of a crawl that is done because it was finished: when its next period begins; 0: never.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'crawls' AND column_name = 'wakes_ms'), 'DO 0',
    'ALTER TABLE crawls ADD COLUMN wakes_ms BIGINT NOT NULL DEFAULT 0');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

CREATE TABLE IF NOT EXISTS periods (
    crawl INT UNSIGNED NOT NULL,
    number INT UNSIGNED NOT NULL,         -- from 1: the crawl before it began again
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT NOT NULL DEFAULT 0,   -- 0 while it is under way
    PRIMARY KEY (crawl, number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
