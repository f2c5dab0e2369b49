BEGIN TRANSACTION;
CREATE TABLE addresses (
    node TEXT PRIMARY KEY,
    address TEXT NOT NULL
) WITHOUT ROWID;
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
INSERT INTO "attempts" VALUES(1,1,1,1000,200,0,NULL,100,'example.org','ok','http://example.org/1','','');
INSERT INTO "attempts" VALUES(2,1,1,2000,200,0,NULL,100,'example.org','ok','http://example.org/1','','');
CREATE TABLE blocks (
    host TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "blocks" VALUES('a.org',5000,'429');
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
INSERT INTO "bodies" VALUES(1,X'16367AACB67A4A017C8DA8AB95682CCB',1,5,NULL,NULL,NULL);
INSERT INTO "bodies" VALUES(1,X'496B2D48B4F3FF31378D68FDCB2DCE5D',1,2,NULL,NULL,NULL);
INSERT INTO "bodies" VALUES(1,X'9333B0E233283A388A6B0659801049DD',2,1,NULL,NULL,NULL);
INSERT INTO "bodies" VALUES(2,X'3FB50897E9F78C45E70F9734C48C8852',1,4,NULL,NULL,NULL);
CREATE TABLE clock (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    value INTEGER NOT NULL
);
INSERT INTO "clock" VALUES(1,1);
CREATE TABLE contents (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
INSERT INTO "contents" VALUES(1,X'28B52FFD20CE8D0000507465787420316F6E65200100C1298704');
INSERT INTO "contents" VALUES(2,X'28B52FFD20CE8D00005074657874203274776F200100C1298704');
INSERT INTO "contents" VALUES(4,X'28B52FFD2016B10000676F6E656F6620612064656C6574656420637261776C');
INSERT INTO "contents" VALUES(5,X'28B52FFD200C6100007465787420357365636F6E64');
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
, version INTEGER NOT NULL DEFAULT 1);
INSERT INTO "crawls" VALUES(1,'news','active','',1,5,5,0,0,0,0,'{"seeds":[],"scope":"host","include":[],"exclude":[],"depth":50,"max_pages":0,"max_bytes":0,"max_seconds":0,"max_body_bytes":10485760,"bodies":"text","delay":1.0,"slots":1,"tries":5,"order":"breadth","user_agent":"greencrawl/0.1","contact":"","hook":"","weight":1}','["example.org"]',1);
INSERT INTO "crawls" VALUES(2,'gone','active','',1,5,5,0,0,0,1,'{"seeds":[],"scope":"host","include":[],"exclude":[],"depth":50,"max_pages":0,"max_bytes":0,"max_seconds":0,"max_body_bytes":10485760,"bodies":"text","delay":1.0,"slots":1,"tries":5,"order":"breadth","user_agent":"greencrawl/0.1","contact":"","hook":"","weight":1}','[]',1);
CREATE TABLE debts (
    node TEXT PRIMARY KEY,
    since INTEGER NOT NULL,
    serial INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "debts" VALUES('n0',1,0);
CREATE TABLE delays (
    host TEXT PRIMARY KEY,
    delay_ms INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "delays" VALUES('a.org',1500);
CREATE TABLE duties (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_ms INTEGER NOT NULL         -- epoch milliseconds; 0: given back
) WITHOUT ROWID;
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
INSERT INTO "finals" VALUES(1,1,9,1,'dead','timeout',0,2,3,1000,'http://example.org/9','after 5 tries');
CREATE TABLE frontier (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL            -- JSON of FrontierIdentity
);
INSERT INTO "frontier" VALUES(1,'{"id":"f1","secret":18446744073709551615,"partitions":64,"suffixes":"psl","canonicaliser":1,"layout":1,"nodes":["n0"],"placement":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}');
CREATE TABLE hook_failures (
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    function TEXT NOT NULL,
    at_ms INTEGER NOT NULL,           -- of the fetch that it failed on
    url TEXT NOT NULL,
    message TEXT NOT NULL,            -- what does not change from page to page; see hook_sums
    PRIMARY KEY (crawl, fingerprint, function)
) WITHOUT ROWID;
CREATE TABLE hook_sums (
    crawl INTEGER NOT NULL,
    function TEXT NOT NULL,
    message TEXT NOT NULL,
    pages INTEGER NOT NULL,
    PRIMARY KEY (crawl, function, message)
) WITHOUT ROWID;
CREATE TABLE hosts (
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    answers INTEGER NOT NULL,         -- attempts with a code
    elapsed_ms INTEGER NOT NULL,      -- of the answers
    PRIMARY KEY (crawl, host)
) WITHOUT ROWID;
INSERT INTO "hosts" VALUES(1,'example.org',2,2,200);
CREATE TABLE limits (
    crawl INTEGER PRIMARY KEY,
    pages INTEGER NOT NULL
);
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied_ms INTEGER NOT NULL);
INSERT INTO "migrations" VALUES(1,'content','597ce3eaeecfdac0ffe51ae5eef77d728c1fc40dced416448bcd58a4f9937fc3',1);
INSERT INTO "migrations" VALUES(2,'epochs','6c523e04aaaec07b9244765dda5d75dcc932c51b1149a031c53241781f5e332f',1);
INSERT INTO "migrations" VALUES(3,'overflow','5ad3e30bc88af19f67b7ab90ed73394654a98de4f0ca479cf2a3da360d2fbc17',1);
INSERT INTO "migrations" VALUES(4,'purges','8d9660216828aecc1137ed179ed9354b2f030f4665c65a8bf41aa8206b74642a',1);
INSERT INTO "migrations" VALUES(5,'pre_bodies','80de273f628a1e642c6a9fa9ed4e62a31b9c815f73e7d17c4f8c66e813171c8b',1);
INSERT INTO "migrations" VALUES(6,'post_apart','a2e76a9c8d89f6f818985762dc9980cd074b435bad8adfed9477833431cc9232',1);
INSERT INTO "migrations" VALUES(7,'post_texts','48c2b11e8d514c4bcdd2e5820049df220ccf51a841302d9eb055e12b5579e97e',1);
INSERT INTO "migrations" VALUES(8,'pre_duties','146913c1df46ce831d58b79c84bb4948617974b12ce8190bc83f4cb54a505efe',1);
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,              -- as in the identity's list of nodes
    epoch INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "nodes" VALUES('n0',4);
CREATE TABLE overflow (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of arrival
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    level INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    redirects INTEGER NOT NULL,
    queued INTEGER NOT NULL DEFAULT 0,      -- epoch of the node that has it in memory, 0: none
    host TEXT NOT NULL,
    url TEXT NOT NULL
, stamp INTEGER NOT NULL DEFAULT 0);
INSERT INTO "overflow" VALUES(1,1,50,7,3,0,0,0,'a.org','http://a.org/50',1);
INSERT INTO "overflow" VALUES(2,1,51,7,3,0,0,1099511627777,'a.org','http://a.org/51',1);
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
INSERT INTO "pages" VALUES(1,1,1,1,1000,9,200,1,200,0,X'9333B0E233283A388A6B0659801049DD','http://example.org/1',NULL,'en','utf-8','title 1000','{"a":"b"}',NULL,X'28B52FFD200F7900009194A9687474703A2F2F612F010000',6,X'');
INSERT INTO "pages" VALUES(2,1,2,1,1000,9,200,1,200,0,X'496B2D48B4F3FF31378D68FDCB2DCE5D','http://example.org/2',NULL,'en','utf-8','title 1000','{"a":"b"}',NULL,X'',6,X'');
INSERT INTO "pages" VALUES(3,1,3,1,1000,9,200,1,200,0,X'9333B0E233283A388A6B0659801049DD','http://example.org/3',NULL,'en','utf-8','title 1000','{"a":"b"}',NULL,X'',X'28B52FFD2006310000746578742033',X'');
INSERT INTO "pages" VALUES(4,1,4,1,1000,9,301,1,0,0,X'','http://example.org/4',NULL,'en','utf-8','title 1000','{"a":"b"}',NULL,X'',X'',X'');
INSERT INTO "pages" VALUES(5,1,5,1,2000,9,200,1,6,0,X'16367AACB67A4A017C8DA8AB95682CCB','http://example.org/5',NULL,'en','utf-8','title 2000','{"a":"b"}','{"price":3}',X'',6,X'');
INSERT INTO "pages" VALUES(6,2,1,1,1000,0,200,0,18,0,X'3FB50897E9F78C45E70F9734C48C8852','http://example.org/1',NULL,'','','','{}',NULL,X'',4,X'');
CREATE TABLE purges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL DEFAULT '',        -- '': all of the crawl
    asked_ms INTEGER NOT NULL,
    total INTEGER NOT NULL DEFAULT 0,     -- rows or tasks at the beginning; 0: not counted yet
    removed INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "purges" VALUES(1,2,'',6,0,0);
INSERT INTO "purges" VALUES(2,1,'a.org',7,0,0);
CREATE TABLE refusals (
    worker TEXT NOT NULL,
    crawl INTEGER NOT NULL,
    host TEXT NOT NULL,               -- the machine
    hook TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_ms INTEGER NOT NULL,        -- it counts until then
    PRIMARY KEY (worker, crawl)
) WITHOUT ROWID;
CREATE TABLE seed_batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1,
    forced INTEGER NOT NULL,
    urls BLOB NOT NULL                -- msgpack list of Admission
);
INSERT INTO "seed_batches" VALUES(1,1,1,1,1,X'28B52FFD200F7900009194A9687474703A2F2F732F000000');
CREATE TABLE versions (
    crawl INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    fetched_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,             -- empty: fetched by a version that did not note it
    PRIMARY KEY (crawl, fingerprint, fetched_ms)
) WITHOUT ROWID;
INSERT INTO "versions" VALUES(1,5,1000,200,5,X'A7937B64B8CAA58F03721BB6BACF5C78');
CREATE UNIQUE INDEX crawls_by_name ON crawls (name) WHERE deleted = 0;
CREATE UNIQUE INDEX pages_by_url ON pages (crawl, fingerprint);
CREATE INDEX pages_by_crawl ON pages (crawl, id, status, body_bytes);
CREATE INDEX pages_by_stamp ON pages (stamp);
CREATE UNIQUE INDEX finals_by_url ON finals (crawl, fingerprint);
CREATE INDEX finals_by_state ON finals (crawl, state, id);
CREATE INDEX finals_by_stamp ON finals (stamp);
CREATE UNIQUE INDEX attempts_by_url ON attempts (crawl, fingerprint, at_ms);
CREATE TRIGGER attempts_are_summed AFTER INSERT ON attempts BEGIN
    INSERT INTO hosts (crawl, host, attempts, answers, elapsed_ms)
    VALUES (NEW.crawl, NEW.host, 1, NEW.code > 0, iif(NEW.code > 0, NEW.elapsed_ms, 0))
    ON CONFLICT (crawl, host) DO UPDATE SET
        attempts = attempts + 1,
        answers = answers + excluded.answers,
        elapsed_ms = elapsed_ms + excluded.elapsed_ms;
END;
CREATE INDEX seed_batches_pending ON seed_batches (id) WHERE pending = 1;
CREATE INDEX seed_batches_by_crawl ON seed_batches (crawl, pending);
CREATE INDEX seed_batches_by_stamp ON seed_batches (stamp);
CREATE UNIQUE INDEX overflow_by_url ON overflow (crawl, fingerprint);
CREATE INDEX overflow_waiting ON overflow (crawl, partition, host, level, id) WHERE queued = 0;
CREATE INDEX overflow_queued ON overflow (partition, queued) WHERE queued <> 0;
CREATE UNIQUE INDEX purges_by_host ON purges (crawl, host);
CREATE INDEX pages_by_host ON pages (
    crawl,
    replace(replace(substr(url, instr(url, '://') + 3, instr(substr(url, instr(url, '://') + 3), '/')),
        ':80/', '/'), ':443/', '/')
);
CREATE INDEX overflow_by_stamp ON overflow (partition, stamp);
CREATE INDEX hook_failures_by_message ON hook_failures (crawl, function, message, fingerprint);
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('purges',2);
INSERT INTO "sqlite_sequence" VALUES('crawls',2);
INSERT INTO "sqlite_sequence" VALUES('seed_batches',1);
INSERT INTO "sqlite_sequence" VALUES('overflow',2);
COMMIT;
