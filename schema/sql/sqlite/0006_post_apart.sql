-- From here on bodies are in `bodies` and `contents`, and `pages.content` holds the digest itself:
-- processes of the version before would neither find the one nor understand the other. Rows from
-- before stay as they are, and are read as they are.

-- Pages of a host, in the order of storing. The key is "host/", of the unit of politeness: without the
-- port if it is 80 or 443. Built-in functions only, so that any program can write to the table.
CREATE INDEX pages_by_host ON pages (
    crawl,
    replace(replace(substr(url, instr(url, '://') + 3, instr(substr(url, instr(url, '://') + 3), '/')),
        ':80/', '/'), ':443/', '/')
);
