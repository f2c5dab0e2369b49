-- Records that a hook found on a page. Last, where scans of what is before never read them.

ALTER TABLE pages ADD COLUMN items BLOB;   -- zstd of a JSON array of objects; NULL: there are none
