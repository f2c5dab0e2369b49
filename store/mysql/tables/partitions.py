"""The journal's partitions by month (UTC): made ahead, dropped as a whole.

Partition ``mYYYYMM`` of ``attempts`` holds what is older than the next month; ``rest`` takes
what comes after the last of them. Altering a table commits, so each step stands for itself, and
is all that its transaction changes: the fence is held until it begins (see ``Cluster.alter``).
"""

from __future__ import annotations

import re

from greencrawl.store.calendar import month_of, start_ms
from greencrawl.store.mysql.connection import Db

AHEAD = 2
"""Months after this one that have a partition."""

_LAST_MONTH = 9999 * 12 + 10  # of the calendar, so that the next one has a first day

_PARTITIONS = (
    "SELECT partition_name, partition_description FROM information_schema.partitions "
    "WHERE table_schema = DATABASE() AND table_name = 'attempts' "
    "ORDER BY partition_ordinal_position"
)


def partitions(db: Db) -> list[tuple[str, int]]:
    """(name, the moment in ms before which its rows are) of each month's partition, in order."""
    db.execute(_PARTITIONS)
    return [
        (str(name), int(bound)) for name, bound in db.fetchall() if re.fullmatch(r"m\d{6}", name)
    ]


def prepare(db: Db, now_ms: int) -> None:
    """See ``Store.prepare_months``. Rows in ``rest`` are copied to where they belong."""
    there = partitions(db)
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
    """One step of ``Store.drop_months``: the oldest such month; whether there was one."""
    over = [name for name, bound in partitions(db) if bound <= before_ms]
    if over:
        db.execute(f"ALTER TABLE attempts DROP PARTITION {over[0]}")
    return bool(over)
