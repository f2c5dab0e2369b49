-- Rounds of crawls over what they have stored: of each kind the last one.

CREATE TABLE rounds (
    crawl INTEGER NOT NULL,
    kind TEXT NOT NULL,                     -- read, fetch
    why TEXT NOT NULL,
    least_depth INTEGER NOT NULL DEFAULT 0,
    started_ms INTEGER NOT NULL,
    before_ms INTEGER NOT NULL,             -- what was fetched later is no part of it
    ended_ms INTEGER NOT NULL DEFAULT 0,    -- 0 while it is under way
    total INTEGER NOT NULL DEFAULT -1,      -- URLs when it began; -1: not counted yet
    queued INTEGER NOT NULL DEFAULT 0,
    place TEXT NOT NULL DEFAULT '',         -- the cursor up to which they are queued
    PRIMARY KEY (crawl, kind)
) WITHOUT ROWID;
-- Versions whose bodies are kept, for crawls with `keep_versions`: each counts among `bodies.uses`.
ALTER TABLE versions ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
