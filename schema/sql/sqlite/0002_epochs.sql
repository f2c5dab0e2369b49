-- The epoch of each Redis node of the frontier, raised before the log is read for its recovery. Each
-- commit reads it in its own transaction: what was committed before is in what recovery reads, and
-- who commits after knows that an older server of that node counts no more.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,              -- as in the identity's list of nodes
    epoch INTEGER NOT NULL
) WITHOUT ROWID;
