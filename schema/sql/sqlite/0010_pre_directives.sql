-- What a page says about its use, and as what. Last, where scans of what is before never read them;
-- NULL takes no room.

ALTER TABLE pages ADD COLUMN canonical TEXT;   -- the URL that it names; empty: its own; NULL: none
ALTER TABLE pages ADD COLUMN directives TEXT;  -- JSON of Directives, or NULL: it says nothing
