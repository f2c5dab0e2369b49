-- When pages of a crawl that begins again are asked for next. As in the SQLite file 0015.

CREATE TABLE IF NOT EXISTS calendar (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    partition_no INT NOT NULL,
    host INT UNSIGNED NOT NULL,             -- hash of the host, so that none takes all room
    depth INT UNSIGNED NOT NULL,
    task SMALLINT NOT NULL,                 -- what it is asked for as
    due_s INT UNSIGNED NOT NULL,            -- seconds of the epoch: the first period from then on
    queued BIGINT NOT NULL DEFAULT 0,       -- epoch of the node that has it in memory, 0: it waits
    checked_ms BIGINT NOT NULL,             -- when it was fetched last
    misses TINYINT UNSIGNED NOT NULL DEFAULT 0,
    missed_s INT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (crawl, fingerprint),
    KEY calendar_due (queued, crawl, partition_no, due_s, host, fingerprint),
    KEY calendar_queued (partition_no, queued)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
