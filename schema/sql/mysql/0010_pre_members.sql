-- The processes that work together, what they are ordered, and who ordered it. As in the SQLite file
-- 0016.

-- Written when a member joins, leaves or is lost. What it tells meanwhile is in Redis.
CREATE TABLE IF NOT EXISTS members (
    id VARBINARY(100) NOT NULL PRIMARY KEY,
    node VARBINARY(100) NOT NULL,
    kind VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- worker, broker, logger
    incarnation BIGINT NOT NULL,
    version VARBINARY(100) NOT NULL,
    address VARBINARY(1100) NOT NULL,
    joined_ms BIGINT NOT NULL,
    left_ms BIGINT NOT NULL DEFAULT 0,      -- 0 while it is there
    why VARBINARY(1300) NOT NULL DEFAULT '', -- how it went
    facts MEDIUMBLOB NOT NULL               -- JSON: when it joined, or left
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What holds for a node, or for all of them ('*').
CREATE TABLE IF NOT EXISTS orders (
    member VARBINARY(100) NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    options MEDIUMBLOB NOT NULL,            -- JSON
    by_whom VARBINARY(400) NOT NULL,
    at_ms BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The revision at which the options of a crawl were changed last.
CREATE TABLE IF NOT EXISTS crawl_changes (
    crawl INT UNSIGNED NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Each change of either; its id is the revision, which is counted in `counters`: whoever changes
-- something holds that row until its commit, so that no lower one appears after a higher one.
CREATE TABLE IF NOT EXISTS orders_log (
    id BIGINT NOT NULL PRIMARY KEY,
    member VARBINARY(100) NOT NULL,         -- '' where it is a crawl's
    crawl_name VARBINARY(64) NOT NULL,
    changed MEDIUMBLOB NOT NULL,            -- JSON; null: taken back
    by_whom VARBINARY(400) NOT NULL,
    at_ms BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO counters (name, value) VALUES ('orders', 0);
