-- Who does what only one may do; what is owed to a Redis node that was away; versions of a crawl's
-- state; pages under a limit; operators' delays; hooks that failed.

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

-- Rises with every change of the row, and is compared by whoever acts on what it has read before.
ALTER TABLE crawls ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

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

-- When a row began to wait, by the log's clock: recovery reads a window of it. When it was queued is
-- in `queued`: 2^40 and the clock. What is below that is an epoch, of a process of the version before.
ALTER TABLE overflow ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
CREATE INDEX overflow_by_stamp ON overflow (partition, stamp);

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
