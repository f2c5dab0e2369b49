"""``max_pages`` in a commit's transaction, on MySQL; see :mod:`greencrawl.store.sqlite.page_limit`.

Each commit with pages of a crawl locks the row of the crawl's limit, so that these commits come one
after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.rows import Page
from greencrawl.store.mysql.tables.pages import Known
from greencrawl.store.mysql.transaction import Key
from greencrawl.store.rows import is_page


def lock(db: Db, crawls: Iterable[int]) -> dict[int, int]:
    """Return crawl → its pages so far, counted now if no commit has counted them; they are locked
    until the transaction ends."""
    counts: dict[int, int] = {}
    for crawl in sorted(crawls):
        db.execute("SELECT pages FROM limits WHERE crawl = %s FOR UPDATE", (crawl,))
        row = db.fetchone()
        if row is None:
            sql = "SELECT COALESCE(SUM(pages), 0) FROM sums WHERE crawl = %s LOCK IN SHARE MODE"
            db.execute(sql, (crawl,))
            (row,) = db.fetchall()
            db.execute("INSERT INTO limits (crawl, pages) VALUES (%s, %s)", (crawl, int(row[0])))
        counts[crawl] = int(row[0])
    return counts


def surplus(
    db: Db,
    limits: Mapping[int, int],
    counts: Mapping[int, int],
    arrived: Mapping[Key, Sequence[Page]],
    known: Mapping[Key, Known],
) -> frozenset[Key]:
    """Return the URLs whose pages are not to be stored; the others are counted as stored."""
    refused: set[Key] = set()
    now = dict(counts)
    for key, pages in arrived.items():
        if key[0] not in counts:
            continue
        newest = max(pages, key=lambda page: page.fetched_ms).fetched_ms
        last = [page for page in pages if page.fetched_ms == newest][-1]
        old = known.get(key)
        if old is not None and last.fetched_ms < old.fetched_ms:
            continue  # an older version: the current one stays
        more = is_page(last.status) - (old is not None and is_page(old.status))
        if more > 0 and now[key[0]] >= limits[key[0]]:
            refused.add(key)
        else:
            now[key[0]] += more
    for crawl, count in now.items():
        if count != counts[crawl]:
            db.execute("UPDATE limits SET pages = %s WHERE crawl = %s", (count, crawl))
    return frozenset(refused)
