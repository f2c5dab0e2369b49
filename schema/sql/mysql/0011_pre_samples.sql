-- What the coordinator keeps: counters of crawls for plots, and what people are to be told of. As in
-- the SQLite file 0017.

-- A crawl's counters at the beginning of a minute; sums are those since it was made.
CREATE TABLE IF NOT EXISTS samples (
    crawl INT UNSIGNED NOT NULL,
    minute INT UNSIGNED NOT NULL,           -- minutes since 1970
    pages BIGINT NOT NULL,                  -- sums: pages, bytes, errors, unchanged
    bytes BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    unchanged BIGINT NOT NULL,
    waiting BIGINT NOT NULL,                -- as it was then: all others
    leased BIGINT NOT NULL,
    later BIGINT NOT NULL,
    overflow BIGINT NOT NULL,
    dead BIGINT NOT NULL,
    parked BIGINT NOT NULL,
    hosts BIGINT NOT NULL,
    PRIMARY KEY (crawl, minute),
    KEY samples_by_minute (minute)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Something that is not as it should be, from when it was first seen.
CREATE TABLE IF NOT EXISTS alerts (
    kind VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    subject VARCHAR(300) NOT NULL,
    since_ms BIGINT NOT NULL,               -- when it was first seen
    began_ms BIGINT NOT NULL DEFAULT 0,     -- 0: not for long enough yet to be told
    over_ms BIGINT NOT NULL DEFAULT 0,      -- 0 while it lasts
    told TINYINT UNSIGNED NOT NULL DEFAULT 0, -- how many of its two messages were delivered
    text VARCHAR(1000) NOT NULL,
    PRIMARY KEY (kind, subject, since_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
