"""Counts of many rows in steps: one statement over 100 million is answered too late to be heard."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from store.mysql.connection import Db
from store.mysql.reading import Scan

ROWS = 300_000
"""Rows of a step, about; a fraction of a second."""


class Run(NamedTuple):
    """An index in whose order the rows of a crawl are counted, and from where."""

    table: str
    index: str
    column: str
    """Of the index, behind ``crawl``."""
    after: int | bytes


LEAST = -(2**64)
"""Below any number."""


def count(scan: Scan[tuple[int, int | bytes | None]], crawl: int, run: Run) -> int:
    """Rows of ``run``, each step a work of ``scan``."""
    total = 0
    after: int | bytes | None = run.after
    while after is not None:
        some, after = scan(partial(_step, crawl=crawl, run=run._replace(after=after)))
        total += some
    return total


def _step(db: Db, crawl: int, run: Run) -> tuple[int, int | bytes | None]:
    """(rows, the value up to which they were counted, None at the end)."""
    source = f"FROM {run.table} FORCE INDEX ({run.index}) WHERE crawl = %s AND {run.column} > %s"
    db.execute(
        f"SELECT {run.column} {source} ORDER BY {run.column} LIMIT 1 OFFSET {ROWS - 1}",
        (crawl, run.after),
    )
    last = db.fetchone()
    if last is None:
        db.execute(f"SELECT COUNT(*) {source}", (crawl, run.after))
    else:
        db.execute(f"SELECT COUNT(*) {source} AND {run.column} <= %s", (crawl, run.after, last[0]))
    ((some,),) = db.fetchall()
    return int(some), None if last is None else last[0]
