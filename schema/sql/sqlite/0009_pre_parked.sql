-- URLs that are parked by the shape that they are of, and the shapes that people let go.

-- Of a parked URL, else empty. Last, as a scan of what is before it never reads it.
ALTER TABLE finals ADD COLUMN shape TEXT NOT NULL DEFAULT '';

-- What is parked, by shape: how many, since when, and the latest, without touching a row.
CREATE INDEX finals_parked ON finals (crawl, shape, at_ms) WHERE state = 'parked';

ALTER TABLE crawls ADD COLUMN released TEXT NOT NULL DEFAULT '[]';  -- JSON list of shapes
