-- Where the main text of a page stands in its text. As in the SQLite file 0013.
--
-- The column is added at once, whatever the size of the table.

-- As schema/text/spans.py has it; NULL: it was not told.
SET @due = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'contents' AND column_name = 'spans'), 'DO 0',
    'ALTER TABLE contents ADD COLUMN spans LONGBLOB NULL');
PREPARE due FROM @due;
EXECUTE due;
DEALLOCATE PREPARE due;
