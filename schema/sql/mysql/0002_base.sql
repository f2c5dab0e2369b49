-- The content of every crawl, and what the frontier is rebuilt from, for MariaDB 10.6+ and MySQL 8, as
-- version 0.1.0 had it. It stands for the files that made a database before; a database has their names
-- and checksums on record:
--
-- stands for 0001_pre_content 88ac69966ac6f920e1eff2004490f49a941134bd6a6f1230191e544e2506ddbe
-- stands for 0002_pre_duties c32bd3366a644b8e6bbd24d6d6ffd3d60f196d82f6a9f79c33461c20e088d3d3
--
-- As in the SQLite files: `stamp` is the value of `clock` read in the row's own transaction, times
-- `*_ms` are epoch milliseconds, blobs are zstd and an empty one stands for empty content. Names
-- (crawls, hosts, nodes) are VARBINARY, UTF-8: they compare as bytes, also at their ends.
--
-- No AUTO_INCREMENT: two masters would have to share its steps. A crawl's id comes from `counters`;
-- batches, purges, rows of the overflow and places are numbers that the client makes: milliseconds
-- since 2026 << 22, plus a sequence that begins at random in each millisecond.
--
-- A file that failed half-way is run again. So later files add a column by a statement that is prepared
-- only where the column is missing: MySQL 8 knows no ADD COLUMN IF NOT EXISTS.
--
-- Bytes a page, for 100 million pages. A row of an index is its columns and 20 bytes of header,
-- transaction and pointer (6 in a secondary one), in leaves that are 50 to 70 % full where keys do
-- not come in order; "measured" is the size on disk for 300,000 pages on MariaDB 10.11:
--
--   pages           4+8+8+8+8+2+4+17+4+4 = 67, +20 =  87   measured 152   random       15.2 GB
--     by stamp      4+8+8+8+2+8          = 38,  +6 =  44   measured  72   at the end    7.2 GB
--     by host       4+4+8+8+8            = 32,  +6 =  38   measured  65   by host       6.5 GB
--   digests         4+17+8+4             = 33, +20 =  53   measured 100   random       10.0 GB
--   contents        100 + URL 80 + headers 300 + title 60 + links 900 + text 2,500, in order: 400 GB
--   bodies          60 + body (20 KB of HTML are 5 KB), in order:                             500 GB
--   attempts        130 + URL 80, by month, random within it:                                  30 GB
--
-- What is met in random order, and so wants to be in memory, is `pages` and `digests`: 25 GB. The
-- wide rows are written at the end of their tables and read by the place that the narrow ones name.

-- The last number given, by what is counted.
CREATE TABLE IF NOT EXISTS counters (
    name VARBINARY(32) NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO counters (name, value) VALUES ('crawls', 0);

-- Who this frontier is; one row, written once.
CREATE TABLE IF NOT EXISTS frontier (
    only_row TINYINT NOT NULL PRIMARY KEY,
    identity MEDIUMTEXT NOT NULL          -- JSON of FrontierIdentity
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The log's clock: a counter, not a time.
CREATE TABLE IF NOT EXISTS clock (
    only_row TINYINT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO clock (only_row, value) VALUES (1, 1);

-- The epoch of each Redis node of the frontier. Every commit reads all rows under a shared lock, and
-- raising one locks the row '' first: so it waits for the commits under way, and those that come
-- after see it, though the node may have had no row before.
CREATE TABLE IF NOT EXISTS nodes (
    id VARBINARY(255) NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO nodes (id, epoch) VALUES ('', 0);

-- `living` is the name while the crawl is not deleted, then NULL: names are unique among those.
CREATE TABLE IF NOT EXISTS crawls (
    id INT UNSIGNED NOT NULL PRIMARY KEY,
    name VARBINARY(255) NOT NULL,
    living VARBINARY(255) NULL,
    state VARBINARY(16) NOT NULL,
    reason MEDIUMTEXT NOT NULL,
    revision INT UNSIGNED NOT NULL DEFAULT 1,
    created_ms BIGINT NOT NULL,
    started_ms BIGINT NOT NULL DEFAULT 0,
    finished_ms BIGINT NOT NULL DEFAULT 0,
    deleted TINYINT NOT NULL DEFAULT 0,   -- 1 while its rows are being removed in steps
    options MEDIUMTEXT NOT NULL,          -- JSON of CrawlOptions
    roots MEDIUMTEXT NOT NULL,            -- JSON list
    -- Rises with every change of the row, and is compared by whoever acts on what it has read before.
    version INT UNSIGNED NOT NULL DEFAULT 1,
    UNIQUE KEY crawls_living (living)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Time under way, apart from `crawls`: commits share a lock on that row all the time.
CREATE TABLE IF NOT EXISTS times (
    crawl INT UNSIGNED NOT NULL PRIMARY KEY,
    spent_ms BIGINT NOT NULL,             -- without stops and pauses
    looked_ms BIGINT NOT NULL             -- when it was last counted
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The current version of each page: what decisions need, and where the rest lies.
CREATE TABLE IF NOT EXISTS pages (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    stamp BIGINT NOT NULL,                -- never goes down
    place BIGINT NOT NULL,                -- of the wide row in `contents`
    fetched_ms BIGINT NOT NULL,
    status SMALLINT NOT NULL,
    body_bytes INT UNSIGNED NOT NULL,     -- before compression; 0: no body is kept
    digest VARBINARY(16) NOT NULL,
    host INT UNSIGNED NOT NULL,           -- hash of the host, for lists of one host
    wide INT UNSIGNED NOT NULL,           -- bytes of the wide row, for chunks of bounded size
    PRIMARY KEY (crawl, fingerprint),
    KEY pages_by_stamp (crawl, stamp, place, fingerprint, status, fetched_ms),
    KEY pages_by_host (crawl, host, stamp, place, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The wide columns of the current version. A refetch writes a new row and deletes the old one.
CREATE TABLE IF NOT EXISTS contents (
    crawl INT UNSIGNED NOT NULL,
    place BIGINT NOT NULL,
    fingerprint BIGINT NOT NULL,
    elapsed_ms BIGINT NOT NULL,
    depth BIGINT NOT NULL,
    truncated TINYINT NOT NULL,
    url MEDIUMTEXT NOT NULL,
    final_url MEDIUMTEXT NULL,            -- NULL: equal to url
    language MEDIUMTEXT NOT NULL,
    encoding MEDIUMTEXT NOT NULL,
    title MEDIUMTEXT NOT NULL,
    headers MEDIUMTEXT NOT NULL,          -- JSON object
    fields MEDIUMTEXT NULL,               -- JSON object of the user's hook, or NULL
    links LONGBLOB NOT NULL,              -- msgpack list of Admission: the log of what was admitted
    text LONGBLOB NOT NULL,
    PRIMARY KEY (crawl, place, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Versions that are no longer current, or came late. A crawl that fetches once writes none.
CREATE TABLE IF NOT EXISTS versions (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    fetched_ms BIGINT NOT NULL,
    status SMALLINT NOT NULL,
    body_bytes INT UNSIGNED NOT NULL,
    digest VARBINARY(16) NOT NULL,
    PRIMARY KEY (crawl, fingerprint, fetched_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Equal bodies are kept once a crawl, for as long as the crawl.
CREATE TABLE IF NOT EXISTS digests (
    crawl INT UNSIGNED NOT NULL,
    digest VARBINARY(16) NOT NULL,
    place BIGINT NOT NULL,                -- of the body in `bodies`
    bytes INT UNSIGNED NOT NULL,          -- as stored, for chunks of bounded size
    PRIMARY KEY (crawl, digest)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS bodies (
    crawl INT UNSIGNED NOT NULL,
    place BIGINT NOT NULL,
    digest VARBINARY(16) NOT NULL,
    file VARBINARY(255) NOT NULL,         -- '': the body is here
    start BIGINT UNSIGNED NOT NULL,       -- of its record in the file
    length BIGINT UNSIGNED NOT NULL,
    body LONGBLOB NOT NULL,
    PRIMARY KEY (crawl, place, digest)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A URL's last word where it has no newer page.
CREATE TABLE IF NOT EXISTS finals (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    stamp BIGINT NOT NULL,                -- never goes down
    state VARBINARY(16) NOT NULL,
    kind MEDIUMTEXT NOT NULL,
    code BIGINT NOT NULL,
    depth BIGINT NOT NULL,
    level BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    url MEDIUMTEXT NOT NULL,
    detail MEDIUMTEXT NOT NULL,
    PRIMARY KEY (crawl, fingerprint),
    KEY finals_by_state (crawl, state, fingerprint),
    KEY finals_by_stamp (crawl, stamp, fingerprint)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The journal: one row a try, in partitions by month (UTC), so that a month goes in no time.
-- `rest` takes what nobody prepared a month for; it is divided when months are prepared.
CREATE TABLE IF NOT EXISTS attempts (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    code BIGINT NOT NULL,                 -- HTTP status, or 0 where no answer came
    errors BIGINT NOT NULL,
    wait DOUBLE NULL,                     -- seconds until the next try, or NULL
    elapsed_ms BIGINT NOT NULL,
    kind MEDIUMTEXT NOT NULL,
    url MEDIUMTEXT NOT NULL,
    worker MEDIUMTEXT NOT NULL,
    detail MEDIUMTEXT NOT NULL,
    PRIMARY KEY (crawl, fingerprint, at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin
PARTITION BY RANGE (at_ms) (PARTITION rest VALUES LESS THAN MAXVALUE);

-- Sums, each in up to 16 slots by connection, so that commits side by side do not wait for one row.
CREATE TABLE IF NOT EXISTS hosts (
    crawl INT UNSIGNED NOT NULL,
    host VARBINARY(512) NOT NULL,
    slot TINYINT UNSIGNED NOT NULL,
    attempts BIGINT NOT NULL,
    answers BIGINT NOT NULL,              -- attempts with a code
    elapsed_ms BIGINT NOT NULL,           -- of the answers
    PRIMARY KEY (crawl, host, slot)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sums (
    crawl INT UNSIGNED NOT NULL,
    slot TINYINT UNSIGNED NOT NULL,
    pages BIGINT NOT NULL,                -- with a status of 200 … 299
    bytes BIGINT NOT NULL,                -- of their bodies
    dead BIGINT NOT NULL,
    gone BIGINT NOT NULL,
    excluded BIGINT NOT NULL,
    PRIMARY KEY (crawl, slot)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The log of seeds: a row a batch, its number in order of time and never used again.
CREATE TABLE IF NOT EXISTS seed_batches (
    id BIGINT NOT NULL PRIMARY KEY,
    crawl INT UNSIGNED NOT NULL,
    stamp BIGINT NOT NULL,
    pending TINYINT NOT NULL,
    forced TINYINT NOT NULL,
    urls LONGBLOB NOT NULL,               -- msgpack list of Admission
    KEY seed_batches_pending (pending, id),
    KEY seed_batches_by_crawl (crawl, id),
    KEY seed_batches_by_stamp (forced, stamp, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Hosts that answered 429 or 503, written through from the frontier.
CREATE TABLE IF NOT EXISTS blocks (
    host VARBINARY(512) NOT NULL PRIMARY KEY,
    until_ms BIGINT NOT NULL,
    reason MEDIUMTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- URLs beyond the frontier's memory budget. A row goes when its page or final state is stored, or
-- when it turns out to have been fetched already.
CREATE TABLE IF NOT EXISTS overflow (
    crawl INT UNSIGNED NOT NULL,
    fingerprint BIGINT NOT NULL,
    id BIGINT NOT NULL,                   -- order of arrival
    partition_no INT NOT NULL,
    queued BIGINT NOT NULL DEFAULT 0,     -- 2^40 and the clock, when it was queued; 0: it waits
    level INT NOT NULL,
    depth BIGINT NOT NULL,
    redirects BIGINT NOT NULL,
    host VARBINARY(512) NOT NULL,
    url MEDIUMTEXT NOT NULL,
    -- When it began to wait, by the log's clock: recovery reads a window of it.
    stamp BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (crawl, fingerprint),
    UNIQUE KEY overflow_by_id (partition_no, id),
    -- A host's best row first; hosts by name; whether a crawl has any (all with queued = 0).
    KEY overflow_waiting (queued, crawl, partition_no, host, level, id),
    KEY overflow_queued (partition_no, queued),
    KEY overflow_by_stamp (partition_no, stamp, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What is being deleted: a whole crawl, or what waits of one host in it.
CREATE TABLE IF NOT EXISTS purges (
    id BIGINT NOT NULL PRIMARY KEY,
    crawl INT UNSIGNED NOT NULL,
    host VARBINARY(512) NOT NULL DEFAULT '',  -- '': all of the crawl
    asked_ms BIGINT NOT NULL,
    total BIGINT NOT NULL DEFAULT 0,      -- rows or tasks at the beginning; 0: not counted yet
    removed BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY purges_by_host (crawl, host)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

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
