-- The content of every crawl, and what the frontier is rebuilt from.
--
-- `stamp` is the value of `clock` read in the row's own transaction: recovery replays a window of it.
-- Times `*_ms` are epoch milliseconds, durations `*_ms` milliseconds. Blobs are zstd; an empty blob
-- stands for empty content. Wide columns come last, so that a scan of the narrow ones never
-- follows a row's overflow pages.

-- Who this frontier is; one row, written once.
CREATE TABLE frontier (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL            -- JSON of FrontierIdentity
);

-- The log's clock: a counter, not a time.
CREATE TABLE clock (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    value INTEGER NOT NULL
);
INSERT INTO clock (only, value) VALUES (1, 1);

-- `id` also is the crawl's instance, so it must never be used again: AUTOINCREMENT.
CREATE TABLE crawls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL DEFAULT 1,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER NOT NULL DEFAULT 0,
    finished_ms INTEGER NOT NULL DEFAULT 0,
    spent_ms INTEGER NOT NULL DEFAULT 0,  -- time under way, without stops and pauses
    looked_ms INTEGER NOT NULL DEFAULT 0, -- when it was last counted
    deleted INTEGER NOT NULL DEFAULT 0,   -- 1 while its rows are being removed in steps
    options TEXT NOT NULL,            -- JSON of CrawlOptions
    roots TEXT NOT NULL               -- JSON list
);
CREATE UNIQUE INDEX crawls_by_name ON crawls (name) WHERE deleted = 0;

CREATE TABLE pages (
    id INTEGER PRIMARY KEY,
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    fetched_ms INTEGER NOT NULL,
    elapsed_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,      -- of the body before compression
    truncated INTEGER NOT NULL,
    content BLOB NOT NULL,            -- xxh3 of the body; decimal text beyond 63 bits
    url TEXT NOT NULL,
    final_url TEXT,                   -- NULL: equal to url
    language TEXT NOT NULL,
    encoding TEXT NOT NULL,
    title TEXT NOT NULL,
    headers TEXT NOT NULL,            -- JSON object
    fields TEXT,                      -- JSON object of the user's hook, or NULL
    links BLOB NOT NULL,              -- msgpack list of Admission: the log of what was admitted
    text BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX pages_by_url ON pages (crawl, fingerprint);
-- Row order within a crawl (export), and the sums of the summary without touching a row.
CREATE INDEX pages_by_crawl ON pages (crawl, id, status, body_bytes);
CREATE INDEX pages_by_stamp ON pages (stamp);

-- A URL's last word where it has no newer page.
CREATE TABLE finals (
    id INTEGER PRIMARY KEY,
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    state TEXT NOT NULL,
    kind TEXT NOT NULL,
    code INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    level INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    url TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE UNIQUE INDEX finals_by_url ON finals (crawl, fingerprint);
-- The listing of dead letters, and the counts by state.
CREATE INDEX finals_by_state ON finals (crawl, state, id);
CREATE INDEX finals_by_stamp ON finals (stamp);

-- The journal: one row a try.
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    code INTEGER NOT NULL,            -- HTTP status, or 0 where no answer came
    errors INTEGER NOT NULL,
    wait REAL,                        -- seconds until the next try, or NULL
    elapsed_ms INTEGER NOT NULL,
    host TEXT NOT NULL,
    kind TEXT NOT NULL,
    url TEXT NOT NULL,
    worker TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE UNIQUE INDEX attempts_by_url ON attempts (crawl, fingerprint, at_ms);

-- Sums over the journal, kept as it grows: the slowest hosts without a scan.
CREATE TABLE hosts (
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    answers INTEGER NOT NULL,         -- attempts with a code
    elapsed_ms INTEGER NOT NULL,      -- of the answers
    PRIMARY KEY (crawl, host)
) WITHOUT ROWID;
CREATE TRIGGER attempts_are_summed AFTER INSERT ON attempts BEGIN
    INSERT INTO hosts (crawl, host, attempts, answers, elapsed_ms)
    VALUES (NEW.crawl, NEW.host, 1, NEW.code > 0, iif(NEW.code > 0, NEW.elapsed_ms, 0))
    ON CONFLICT (crawl, host) DO UPDATE SET
        attempts = attempts + 1,
        answers = answers + excluded.answers,
        elapsed_ms = elapsed_ms + excluded.elapsed_ms;
END;

-- The log of seeds: a row a batch. The number is acknowledged later, so it is never used again.
CREATE TABLE seed_batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1,
    forced INTEGER NOT NULL,
    urls BLOB NOT NULL                -- msgpack list of Admission
);
CREATE INDEX seed_batches_pending ON seed_batches (id) WHERE pending = 1;
CREATE INDEX seed_batches_by_crawl ON seed_batches (crawl, pending);
CREATE INDEX seed_batches_by_stamp ON seed_batches (stamp);

-- Hosts that answered 429 or 503, written through from the frontier.
CREATE TABLE blocks (
    host TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
