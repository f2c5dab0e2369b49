-- What a page says about its use, and as what. As in the SQLite file 0010.
--
-- Columns are added at once, whatever the size of the table.

-- The URL that it names; empty: its own; NULL: none.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'contents' AND column_name = 'canonical'), 'DO 0',
    'ALTER TABLE contents ADD COLUMN canonical MEDIUMTEXT NULL');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;

-- JSON of Directives; NULL: it says nothing.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'contents' AND column_name = 'directives'), 'DO 0',
    'ALTER TABLE contents ADD COLUMN directives MEDIUMTEXT NULL');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;
