-- Equal bodies once a crawl, and the versions of a page. Until 0006 is applied the body of each page
-- stays in its row, where processes of the version before look for it; versions are kept at once.

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

-- Apart from `bodies`, so that counting a use never rewrites a body.
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
    digest BLOB NOT NULL,             -- empty: fetched by a version that did not note it
    PRIMARY KEY (crawl, fingerprint, fetched_ms)
) WITHOUT ROWID;
