-- Where the main text of a page stands in its text. Last, where scans of what is before never read it.

ALTER TABLE pages ADD COLUMN spans BLOB;   -- see schema/text/spans.py; NULL: it was not told
