-- The processes that work together, what they are ordered, and who ordered it.

-- Written when a member joins, leaves or is lost. What it tells meanwhile is in Redis.
CREATE TABLE members (
    id TEXT NOT NULL PRIMARY KEY,
    node TEXT NOT NULL,
    kind TEXT NOT NULL,                     -- worker, broker, logger
    incarnation INTEGER NOT NULL,
    version TEXT NOT NULL,
    address TEXT NOT NULL,
    joined_ms INTEGER NOT NULL,
    left_ms INTEGER NOT NULL DEFAULT 0,     -- 0 while it is there
    why TEXT NOT NULL DEFAULT '',           -- how it went
    facts TEXT NOT NULL DEFAULT '{}'        -- JSON: when it joined, or left
) WITHOUT ROWID;

-- What holds for a node, or for all of them ('*').
CREATE TABLE orders (
    member TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    options TEXT NOT NULL,                  -- JSON
    by_whom TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- The revision at which the options of a crawl were changed last.
CREATE TABLE crawl_changes (
    crawl INTEGER NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL
);

-- Each change of either; its id is the revision.
CREATE TABLE orders_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    member TEXT NOT NULL,                   -- '' where it is a crawl's
    crawl_name TEXT NOT NULL,
    changed TEXT NOT NULL,                  -- JSON; null: taken back
    by_whom TEXT NOT NULL,
    at_ms INTEGER NOT NULL
);
