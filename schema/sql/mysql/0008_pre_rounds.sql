-- Rounds of crawls over what they have stored: of each kind the last one. As in the SQLite file 0014.

CREATE TABLE IF NOT EXISTS rounds (
    crawl INT UNSIGNED NOT NULL,
    kind VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- read, fetch
    why VARCHAR(1000) NOT NULL,
    least_depth INT UNSIGNED NOT NULL DEFAULT 0,
    started_ms BIGINT NOT NULL,
    before_ms BIGINT NOT NULL,              -- what was fetched later is no part of it
    ended_ms BIGINT NOT NULL DEFAULT 0,     -- 0 while it is under way
    total BIGINT NOT NULL DEFAULT -1,       -- URLs when it began; -1: not counted yet
    queued BIGINT NOT NULL DEFAULT 0,
    place VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    PRIMARY KEY (crawl, kind)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
