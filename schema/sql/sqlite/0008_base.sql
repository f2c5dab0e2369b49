-- The content of every crawl, and what the frontier is rebuilt from, as version 0.1.0 had it. It stands
-- for the files that made a store before; a store has their names and checksums on record:
--
-- stands for 0001_content 597ce3eaeecfdac0ffe51ae5eef77d728c1fc40dced416448bcd58a4f9937fc3
-- stands for 0002_epochs 6c523e04aaaec07b9244765dda5d75dcc932c51b1149a031c53241781f5e332f
-- stands for 0003_overflow 5ad3e30bc88af19f67b7ab90ed73394654a98de4f0ca479cf2a3da360d2fbc17
-- stands for 0004_purges 8d9660216828aecc1137ed179ed9354b2f030f4665c65a8bf41aa8206b74642a
-- stands for 0005_pre_bodies 80de273f628a1e642c6a9fa9ed4e62a31b9c815f73e7d17c4f8c66e813171c8b
-- stands for 0006_post_apart a2e76a9c8d89f6f818985762dc9980cd074b435bad8adfed9477833431cc9232
-- stands for 0007_post_texts 48c2b11e8d514c4bcdd2e5820049df220ccf51a841302d9eb055e12b5579e97e
-- stands for 0008_pre_duties 146913c1df46ce831d58b79c84bb4948617974b12ce8190bc83f4cb54a505efe
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
    roots TEXT NOT NULL,              -- JSON list
    -- Rises with every change of the row, and is compared by whoever acts on what it has read before.
    version INTEGER NOT NULL DEFAULT 1
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
    content BLOB NOT NULL,            -- digest of the body, as in `bodies`; empty: there is no body
    url TEXT NOT NULL,
    final_url TEXT,                   -- NULL: equal to url
    language TEXT NOT NULL,
    encoding TEXT NOT NULL,
    title TEXT NOT NULL,
    headers TEXT NOT NULL,            -- JSON object
    fields TEXT,                      -- JSON object of the user's hook, or NULL
    links BLOB NOT NULL,              -- msgpack list of Admission: the log of what was admitted
    text BLOB NOT NULL,               -- zstd, or a number: see `contents`
    body BLOB NOT NULL                -- empty: bodies are in `contents`, or in files
);
CREATE UNIQUE INDEX pages_by_url ON pages (crawl, fingerprint);
-- Row order within a crawl (export), and the sums of the summary without touching a row.
CREATE INDEX pages_by_crawl ON pages (crawl, id, status, body_bytes);
CREATE INDEX pages_by_stamp ON pages (stamp);
-- Pages of a host, in the order of storing. The key is "host/", of the unit of politeness: without the
-- port if it is 80 or 443. Built-in functions only, so that any program can write to the table.
CREATE INDEX pages_by_host ON pages (
    crawl,
    replace(replace(substr(url, instr(url, '://') + 3, instr(substr(url, instr(url, '://') + 3), '/')),
        ':80/', '/'), ':443/', '/')
);

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

-- The epoch of each Redis node of the frontier, raised before the log is read for its recovery. Each
-- commit reads it in its own transaction: what was committed before is in what recovery reads, and
-- who commits after knows that an older server of that node counts no more.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,              -- as in the identity's list of nodes
    epoch INTEGER NOT NULL
) WITHOUT ROWID;

-- URLs beyond the frontier's memory budget. A row goes when its page or final state is stored, or when
-- it turns out to have been fetched already.

CREATE TABLE overflow (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of arrival
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    level INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    redirects INTEGER NOT NULL,
    queued INTEGER NOT NULL DEFAULT 0,      -- 2^40 and the clock, when it was queued; 0: it waits
    host TEXT NOT NULL,
    url TEXT NOT NULL,
    -- When it began to wait, by the log's clock: recovery reads a window of it.
    stamp INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX overflow_by_url ON overflow (crawl, fingerprint);
-- A host's best row first; hosts by name; whether a crawl has any.
CREATE INDEX overflow_waiting ON overflow (crawl, partition, host, level, id) WHERE queued = 0;
CREATE INDEX overflow_queued ON overflow (partition, queued) WHERE queued <> 0;
CREATE INDEX overflow_by_stamp ON overflow (partition, stamp);

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

-- A body that is some page's present one, by its digest: where it is.
CREATE TABLE bodies (
    crawl INTEGER NOT NULL,
    digest BLOB NOT NULL,             -- the first 16 bytes of the SHA-256 of the body
    uses INTEGER NOT NULL,            -- pages whose present body it is; at 0 the row goes
    content INTEGER,                  -- row of `contents`, or NULL: at a place in a file
    file TEXT,
    offset INTEGER,
    length INTEGER,                   -- of the record in the file
    PRIMARY KEY (crawl, digest)
) WITHOUT ROWID;

-- Apart from `bodies`, so that counting a use never rewrites a body. One frame of zstd has a page's
-- text and, behind it, its body, which are much alike: the body is its last `pages.body_bytes` bytes,
-- and `pages.text` is the number of bytes of the text, with which the frame begins. A text that goes
-- with no body, or with one that is there with another text, is in `pages.text` itself.
CREATE TABLE contents (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- Fetches of a page other than the one in `pages`: what it replaced, and what came too late. A crawl
-- that fetches each page once has none.
CREATE TABLE versions (
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    fetched_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,             -- empty: there was no body
    PRIMARY KEY (crawl, fingerprint, fetched_ms)
) WITHOUT ROWID;

-- A duty is held by one broker at a time. The epoch rises with each holder, and whoever writes under
-- an older one is refused.
CREATE TABLE duties (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_ms INTEGER NOT NULL         -- epoch milliseconds; 0: given back
) WITHOUT ROWID;

-- A node that was away when links were to be admitted there: all that is stamped `since` or later
-- has to be offered to it again. `serial` rises with each new debt.
CREATE TABLE debts (
    node TEXT PRIMARY KEY,
    since INTEGER NOT NULL,
    serial INTEGER NOT NULL
) WITHOUT ROWID;

-- Where a node was last met, without credentials: by it a node that is away is told from the others.
CREATE TABLE addresses (
    node TEXT PRIMARY KEY,
    address TEXT NOT NULL
) WITHOUT ROWID;

-- Pages of a crawl with a limit, counted in the transaction that stores them.
CREATE TABLE limits (
    crawl INTEGER PRIMARY KEY,
    pages INTEGER NOT NULL
);

-- Least delays that operators have set; a row stays until the delay is lifted.
CREATE TABLE delays (
    host TEXT PRIMARY KEY,
    delay_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Pages whose hook failed; a row goes when the hook has run on the page without an error.
CREATE TABLE hook_failures (
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    function TEXT NOT NULL,
    at_ms INTEGER NOT NULL,           -- of the fetch that it failed on
    url TEXT NOT NULL,
    message TEXT NOT NULL,            -- what does not change from page to page; see hook_sums
    PRIMARY KEY (crawl, fingerprint, function)
) WITHOUT ROWID;
CREATE INDEX hook_failures_by_message ON hook_failures (crawl, function, message, fingerprint);

-- How many they are, by message; a crawl has some hundreds of them at most.
CREATE TABLE hook_sums (
    crawl INTEGER NOT NULL,
    function TEXT NOT NULL,
    message TEXT NOT NULL,
    pages INTEGER NOT NULL,
    PRIMARY KEY (crawl, function, message)
) WITHOUT ROWID;
CREATE TRIGGER hook_failures_are_summed AFTER INSERT ON hook_failures BEGIN
    INSERT INTO hook_sums (crawl, function, message, pages)
    VALUES (NEW.crawl, NEW.function, NEW.message, 1)
    ON CONFLICT (crawl, function, message) DO UPDATE SET pages = pages + 1;
END;
CREATE TRIGGER hook_failures_are_subtracted AFTER DELETE ON hook_failures BEGIN
    UPDATE hook_sums SET pages = pages - 1
    WHERE crawl = OLD.crawl AND function = OLD.function AND message = OLD.message;
    DELETE FROM hook_sums WHERE crawl = OLD.crawl AND function = OLD.function
    AND message = OLD.message AND pages <= 0;
END;

-- Workers that cannot import a crawl's hook, as long as they say so.
CREATE TABLE refusals (
    worker TEXT NOT NULL,
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL,               -- the machine
    hook TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_ms INTEGER NOT NULL,        -- it counts until then
    PRIMARY KEY (worker, crawl)
) WITHOUT ROWID;
