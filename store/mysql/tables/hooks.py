"""Pages whose hook failed, on MySQL, in a caller's transaction.

See :mod:`greencrawl.store.sqlite.tables.hooks`.

A transaction that stores a page has locked the page's row, so what is known of its hook changes in
order. The sums are written last, only before the sums of hosts: if a crawl's hook always fails, one
row counts all its pages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from greencrawl.schema.records import HookRun
from greencrawl.store import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import insert, keys
from greencrawl.store.mysql.transaction import Key, by_crawl
from greencrawl.store.rows import Row
from greencrawl.store.tables.hooks import Key as Message
from greencrawl.store.tables.hooks import cleaned, told_apart

_COLUMNS = "crawl, fingerprint, function, at_ms, url, message"


class Sums:
    """The changes of a transaction to the sums by message; :meth:`write` them at its end."""

    def __init__(self) -> None:
        self._added: Counter[tuple[int, Message]] = Counter()

    def add(self, crawl: int, key: Message, pages: int) -> None:
        """Count ``pages`` more (or fewer, below 0) of a crawl with this (function, message)."""
        self._added[crawl, key] += pages

    def write(self, db: Db, most_bytes: int) -> None:
        """Write the changes."""
        changed: list[Row] = [
            (crawl, function.encode(), message.encode(), pages)
            for (crawl, (function, message)), pages in sorted(self._added.items())
            if pages
        ]
        insert(
            db, "hook_sums", "crawl, function, message, pages", changed, most_bytes=most_bytes,
            tail="ON DUPLICATE KEY UPDATE pages = pages + VALUES(pages)",
        )  # fmt: skip


def settle(db: Db, runs: Sequence[HookRun], current: Mapping[Key, int], most_bytes: int) -> Sums:
    """Note the results of hooks; ``current`` has the fetch times of pages in this transaction.

    Returns the changes of the sums.
    """
    sums = Sums()
    crawls = {run.crawl for run in runs}
    if not any(run.failures for run in runs) and not _any(db, crawls):
        return sums
    latest = {(run.crawl, run.fingerprint): run for run in runs}
    there = _there(db, sorted(latest))
    apart = [key for key in sorted(latest) if key not in current]
    since = dict(current) | _fetched(db, apart)
    new: list[Row] = []
    known: dict[int, set[Message]] = {}
    for key, run in sorted(latest.items()):
        if since.get(key, run.at_ms) > rows.bounded(run.at_ms):
            continue
        for function, message in there[key]:
            if function in run.functions:
                sums.add(run.crawl, (function, message), -1)
                db.execute(
                    "DELETE FROM hook_failures "
                    "WHERE crawl = %s AND fingerprint = %s AND function = %s",
                    (*key, function.encode()),
                )
        for failure in cleaned(run):
            if run.crawl not in known:
                known[run.crawl] = _messages(db, run.crawl)
            function, message = told_apart(failure, known[run.crawl])
            known[run.crawl].add((function, message))
            sums.add(run.crawl, (function, message), 1)
            at_ms = rows.bounded(run.at_ms)
            text = message.encode()
            new.append((*key, function.encode(), at_ms, rows.clean(run.url), text))
    insert(db, "hook_failures", _COLUMNS, new, most_bytes=most_bytes, names=[row[4] for row in new])
    return sums


def _any(db: Db, crawls: Iterable[int]) -> bool:
    named = ", ".join(f"{crawl:d}" for crawl in crawls) or "0"
    return bool(db.execute(f"SELECT 1 FROM hook_sums WHERE crawl IN ({named}) LIMIT 1"))


def _there(db: Db, wanted: Sequence[Key]) -> defaultdict[Key, list[Message]]:
    """Return what is known of these pages, locked."""
    found: defaultdict[Key, list[Message]] = defaultdict(list)
    sql = "SELECT fingerprint, function, message FROM hook_failures WHERE"
    for crawl, some in by_crawl(wanted):
        tail = "ORDER BY fingerprint, function FOR UPDATE"
        for number, function, message in keys(db, sql, crawl, some, tail):
            found[crawl, number].append((function.decode(), message.decode()))
    return found


def _fetched(db: Db, wanted: Sequence[Key]) -> dict[Key, int]:
    sql = "SELECT fingerprint, fetched_ms FROM pages WHERE"
    return {
        (crawl, number): fetched_ms
        for crawl, some in by_crawl(wanted)
        for number, fetched_ms in keys(db, sql, crawl, some)
    }


def _messages(db: Db, crawl: int) -> set[Message]:
    db.execute("SELECT function, message FROM hook_sums WHERE crawl = %s AND pages > 0", (crawl,))
    return {(function.decode(), message.decode()) for function, message in db.fetchall()}
