-- What the coordinator keeps: counters of crawls for plots, and what people are to be told of.

-- A crawl's counters at the beginning of a minute; sums are those since it was made.
CREATE TABLE samples (
    crawl INTEGER NOT NULL,
    minute INTEGER NOT NULL,                -- minutes since 1970
    pages INTEGER NOT NULL,                 -- sums: pages, bytes, errors, unchanged
    bytes INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    waiting INTEGER NOT NULL,               -- as it was then: all others
    leased INTEGER NOT NULL,
    later INTEGER NOT NULL,
    overflow INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    parked INTEGER NOT NULL,
    hosts INTEGER NOT NULL,
    PRIMARY KEY (crawl, minute)
) WITHOUT ROWID;
CREATE INDEX samples_by_minute ON samples (minute);

-- Something that is not as it should be, from when it was first seen.
CREATE TABLE alerts (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    since_ms INTEGER NOT NULL,              -- when it was first seen
    began_ms INTEGER NOT NULL DEFAULT 0,    -- 0: not for long enough yet to be told
    over_ms INTEGER NOT NULL DEFAULT 0,     -- 0 while it lasts
    told INTEGER NOT NULL DEFAULT 0,        -- how many of its two messages were delivered
    text TEXT NOT NULL,
    PRIMARY KEY (kind, subject, since_ms)
) WITHOUT ROWID;
