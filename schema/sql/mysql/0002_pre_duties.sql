-- Who does what only one may do; what is owed to a Redis node that was away; versions of a crawl's
-- state; pages under a limit; operators' delays; hooks that failed. As in the SQLite file 0008.
--
-- A column is added by a statement that is prepared only where it is missing: MySQL 8 knows no
-- ADD COLUMN IF NOT EXISTS, and a file that failed half-way is run again.

-- A duty is held by one broker at a time. The epoch rises with each holder, and whoever writes under
-- an older one is refused.
CREATE TABLE IF NOT EXISTS duties (
    name VARBINARY(64) NOT NULL PRIMARY KEY,
    holder VARBINARY(64) NOT NULL,
    epoch BIGINT NOT NULL,
    until_ms BIGINT NOT NULL              -- epoch milliseconds of the server; 0: given back
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A node that was away when links were to be admitted there: all that is stamped `since` or later
-- has to be offered to it again. `serial` rises with each new debt.
CREATE TABLE IF NOT EXISTS debts (
    node VARBINARY(255) NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL,
    serial BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Where a node was last met, without credentials: by it a node that is away is told from the others.
CREATE TABLE IF NOT EXISTS addresses (
    node VARBINARY(255) NOT NULL PRIMARY KEY,
    address VARBINARY(512) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Rises with every change of the row, and is compared by whoever acts on what it has read before.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'crawls' AND column_name = 'version'), 'DO 0',
    'ALTER TABLE crawls ADD COLUMN version INT UNSIGNED NOT NULL DEFAULT 1');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

-- Pages of a crawl with a limit, counted in the transaction that stores them.
CREATE TABLE IF NOT EXISTS limits (
    crawl INT UNSIGNED NOT NULL PRIMARY KEY,
    pages BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Least delays that operators have set; a row stays until the delay is lifted.
CREATE TABLE IF NOT EXISTS delays (
    host VARBINARY(512) NOT NULL PRIMARY KEY,
    delay_ms BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- When a row began to wait, by the log's clock: recovery reads a window of it. When it was queued is
-- in `queued`: 2^40 and the clock. What is below that is an epoch, of a process of the version before.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'overflow' AND column_name = 'stamp'), 'DO 0',
    'ALTER TABLE overflow ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0, ADD KEY overflow_by_stamp (partition_no, stamp, id)');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

-- Pages whose hook failed; a row goes when the hook has run on the page without an error.
CREATE TABLE IF NOT EXISTS hook_failures (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    function VARBINARY(64) NOT NULL,
    at_ms BIGINT NOT NULL,                -- of the fetch that it failed on
    url MEDIUMTEXT NOT NULL,
    message VARBINARY(800) NOT NULL,      -- what does not change from page to page; see hook_sums
    PRIMARY KEY (crawl, fingerprint, function),
    KEY hook_failures_by_message (crawl, function, message, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How many they are, by message; a crawl has some hundreds of them at most.
CREATE TABLE IF NOT EXISTS hook_sums (
    crawl INT UNSIGNED NOT NULL,
    function VARBINARY(64) NOT NULL,
    message VARBINARY(800) NOT NULL,
    pages BIGINT NOT NULL,
    PRIMARY KEY (crawl, function, message)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Workers that cannot import a crawl's hook, as long as they say so.
CREATE TABLE IF NOT EXISTS refusals (
    worker VARBINARY(100) NOT NULL,
    crawl INT UNSIGNED NOT NULL,
    host VARBINARY(1100) NOT NULL,        -- the machine
    hook VARBINARY(1100) NOT NULL,
    reason MEDIUMTEXT NOT NULL,
    until_ms BIGINT NOT NULL,             -- it counts until then
    PRIMARY KEY (worker, crawl)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
