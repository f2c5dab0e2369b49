-- Records that a hook found on a page. As in the SQLite file 0011.
--
-- The column is added at once, whatever the size of the table.

-- zstd of a JSON array of objects; NULL: there are none.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'contents' AND column_name = 'items'), 'DO 0',
    'ALTER TABLE contents ADD COLUMN items LONGBLOB NULL');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;
