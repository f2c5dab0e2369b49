-- When pages of a crawl that begins again are asked for next: a row for each that has a page, or is gone.
-- Its URL is that of its page, or of its final state.

CREATE TABLE calendar (
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    host INTEGER NOT NULL,                  -- hash of the host, so that none takes all room
    depth INTEGER NOT NULL,
    task INTEGER NOT NULL,                  -- what it is asked for as
    due_s INTEGER NOT NULL,                 -- seconds of the epoch: the first period from then on
    queued INTEGER NOT NULL DEFAULT 0,      -- epoch of the node that has it in memory, 0: it waits
    checked_ms INTEGER NOT NULL,            -- when it was fetched last
    misses INTEGER NOT NULL DEFAULT 0,      -- times in a row that it was gone
    missed_s INTEGER NOT NULL DEFAULT 0,    -- the period of the first of them
    PRIMARY KEY (crawl, fingerprint)
) WITHOUT ROWID;
CREATE INDEX calendar_due ON calendar (crawl, partition, due_s, host, fingerprint) WHERE queued = 0;
CREATE INDEX calendar_queued ON calendar (partition, queued) WHERE queued <> 0;
