"""The journal's months (UTC): made in advance, dropped as a whole.

On MySQL each month is a partition of a table. ``mYYYYMM`` of ``attempts`` holds the rows of its
month, and of earlier months without a partition; ``rest`` takes the rows after the last month.
Altering a table commits. So each step is a transaction of its own with no other change, and the
fence is held until the step begins (see ``Cluster.alter``).
"""

from __future__ import annotations

import re

from greencrawl.store.months import month_of, start_ms
from greencrawl.store.mysql.connection import Db

AHEAD = 2
"""This many months after the current one are made in advance."""

_LAST_MONTH = 9999 * 12 + 10  # the last month of the calendar whose next month has a first day

_PARTITIONS = (
    "SELECT partition_name, partition_description FROM information_schema.partitions "
    "WHERE table_schema = DATABASE() AND table_name = 'attempts' "
    "ORDER BY partition_ordinal_position"
)


def listed(db: Db) -> list[tuple[str, int]]:
    """Return the months in order: (name, the moment in ms before which its rows
    are)."""
    db.execute(_PARTITIONS)
    return [
        (str(name), int(bound)) for name, bound in db.fetchall() if re.fullmatch(r"m\d{6}", name)
    ]


def prepare(db: Db, now_ms: int) -> None:
    """See ``Store.prepare_months``. Rows in ``rest`` are copied to their months."""
    there = listed(db)
    end = there[-1][1] if there else 0
    month = min(month_of(now_ms), _LAST_MONTH - AHEAD)
    wanted = [one for one in range(month, month + AHEAD + 1) if start_ms(one + 1) > end]
    if not wanted:
        return
    made = ", ".join(
        f"PARTITION m{one // 12:04d}{one % 12 + 1:02d} VALUES LESS THAN ({start_ms(one + 1)})"
        for one in wanted
    )
    db.execute(
        f"ALTER TABLE attempts REORGANIZE PARTITION rest INTO ({made}, "
        "PARTITION rest VALUES LESS THAN MAXVALUE)"
    )


def drop(db: Db, before_ms: int) -> bool:
    """Do one step of ``Store.drop_months``: drop the oldest month that ended by ``before_ms``;
    return whether there was one."""
    over = [name for name, bound in listed(db) if bound <= before_ms]
    if over:
        db.execute(f"ALTER TABLE attempts DROP PARTITION {over[0]}")
    return bool(over)
