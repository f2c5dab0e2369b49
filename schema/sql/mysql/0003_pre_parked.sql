-- URLs that are parked by the shape that they are of, and the shapes that people let go. As in the
-- SQLite file 0009.
--
-- Columns are added at once, whatever the size of the table; the index is built while the table is
-- read and written as ever.

-- Of a parked URL, else empty.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'finals' AND column_name = 'shape'), 'DO 0',
    'ALTER TABLE finals ADD COLUMN shape VARBINARY(1200) NOT NULL DEFAULT ''''');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

-- What is parked, by shape: how many, since when, and the latest, without touching a row.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()
    AND table_name = 'finals' AND index_name = 'finals_by_shape'), 'DO 0',
    'ALTER TABLE finals ADD KEY finals_by_shape (crawl, state, shape, at_ms)');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'sums' AND column_name = 'parked'), 'DO 0',
    'ALTER TABLE sums ADD COLUMN parked BIGINT NOT NULL DEFAULT 0');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

-- JSON list of shapes; NULL: none.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'crawls' AND column_name = 'released'), 'DO 0',
    'ALTER TABLE crawls ADD COLUMN released MEDIUMTEXT NULL');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;
