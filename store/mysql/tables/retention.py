"""Rows that a MySQL store drops by itself, a step at a time; each step runs in a caller's
transaction.

Tables are searched along their primary keys, one crawl after another. Attempts that brought a page
are dropped with their month's partition, when the whole month is old enough. So only rows are read
that may be dropped, but rows may stay up to a month longer than the setting says.
"""

from __future__ import annotations

from typing import NamedTuple

from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.tables import months

STEP = 1000
"""Fingerprints of a step; a replica repeats a step as one transaction."""


class Pass(NamedTuple):
    """One pass over the rows of a crawl in a table; ``old`` is the condition for deleting a row."""

    table: str
    crawl: int
    old: str

    def step(self, db: Db, first: int) -> tuple[int, int] | None:
        """Read some rows from fingerprint ``first`` on and delete the old ones.

        Returns (how many, where the next step begins), None at the end.
        """
        if first >= 2**63:
            return None
        db.execute(
            f"SELECT fingerprint FROM {self.table} WHERE crawl = %s AND fingerprint >= %s "
            f"ORDER BY fingerprint LIMIT {STEP}",
            (self.crawl, first),
        )
        found = db.fetchall()
        if not found:
            return None
        last = found[-1][0]
        dropped = db.execute(
            f"DELETE FROM {self.table} WHERE crawl = %s AND fingerprint BETWEEN %s AND %s "
            f"AND {self.old}",
            (self.crawl, first, last),
        )
        return dropped, last + 1


def old_months(db: Db, before_ms: int) -> list[str]:
    """Return the months of the journal that only have older rows."""
    return [name for name, bound in months.listed(db) if bound <= before_ms]
