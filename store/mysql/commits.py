"""The worker's commit on MySQL: one transaction that first locks the rows concerned.

The order of locks is the same everywhere, so that few transactions deadlock: nodes, crawls, limits,
pages, final states, attempts, failures of hooks, overflow, calendar, sums, debts. Within each kind
of row, keys are in order. A row that is not there yet cannot be locked: the second transaction that
inserts the same key is refused, and runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import pymysql
from msgspec.structs import replace

from greencrawl.schema import crash_points
from greencrawl.schema.records import Check, Final, Stamp
from greencrawl.store import recrawl_calendar
from greencrawl.store import rows as common
from greencrawl.store.bodies import Place
from greencrawl.store.mysql import page_limit, rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.recrawl import calendar
from greencrawl.store.mysql.rows import Page, Prepared
from greencrawl.store.mysql.statements import chunks, keys, numbers, raw
from greencrawl.store.mysql.tables import (
    bodies,
    hooks,
    overflow,
    pages,
    parked,
    replay_log,
)
from greencrawl.store.mysql.tables.bodies import Body
from greencrawl.store.mysql.transaction import Key, Transaction, by_crawl, replacing
from greencrawl.store.rows import Codec
from greencrawl.store.tables import plans
from greencrawl.store.tables.crawls import reopen_finished
from greencrawl.store.tables.nodes import owe

NEVER = -(2**63) - 1
"""Before any time that a record can have."""


class Write:
    """A commit; each :meth:`run` is one try in a transaction of its own.

    The first try assumes that attempts, and bodies that are not among ``known``, are new. This is
    wrong only if a commit is repeated: then the server refuses a key, and the second try checks.
    ``places`` are the places of bodies in files.
    """

    def __init__(self, codec: Codec, known: Set[Body], places: Mapping[Body, Place]) -> None:
        self._codec = codec
        self._known = known
        self._places = places
        self._tried = False

    def run(self, db: Db, work: Prepared) -> Stamp:
        """Write ``work`` except records of deleted crawls. Raises Unstorable, MySQLError."""
        begun = replay_log.begin(db, _crawls(work))
        transaction = Transaction(
            db, self._codec, begun.stamp, begun.most_bytes, begun.connection,
            careful=self._tried,
        )  # fmt: skip
        self._tried = True
        arrived: dict[Key, list[Page]] = {}
        for page in work.pages:
            if page.crawl in begun.alive:
                arrived.setdefault(page.key, []).append(page)
        finals = [one for one in work.finals if one.crawl in begun.alive]
        counts = page_limit.lock(db, {key[0] for key in arrived} & begun.limits.keys())
        checks = [one for one in work.checks if one.crawl in begun.alive]
        settled = sorted({*arrived, *_named(finals, checks)})
        known = pages.lock(transaction, settled)
        refused = page_limit.surplus(db, begun.limits, counts, arrived, known)
        if freed := parked.let_go(db, finals):
            finals = [one for one in finals if (one.crawl, one.fingerprint) not in freed]
            refused |= freed
        if refused:
            arrived = {key: some for key, some in arrived.items() if key not in refused}
            settled = sorted({*arrived, *_named(finals, checks)})
        every = [page for some in arrived.values() for page in some]
        reopened = begun.finished & {page.crawl for page in every if page.links}
        reopen_finished(db, sorted(reopened))
        bodies.write(transaction, every, self._known, self._places)
        current = pages.write(transaction, arrived, known)
        pages.check(transaction, checks, known, current)
        _write_finals(transaction, finals, settled, current)
        _write_attempts(transaction, work, begun.alive)
        runs = [
            run for run in work.hooks
            if run.crawl in begun.alive and (run.crawl, run.fingerprint) not in refused
        ]  # fmt: skip
        failed = hooks.settle(db, runs, current, begun.most_bytes) if runs else None
        overflow.settled(db, settled)
        retired = _plan(db, work, begun.recurring, refused)
        if failed is not None:
            failed.write(db, begun.most_bytes)
        transaction.sums.write(db, begun.connection, begun.most_bytes)
        owe(db, work.owes, begun.stamp.clock)
        crash_points.point("store.before_commit")
        if refused or retired:
            return replace(begun.stamp, refused=refused, retired=retired)
        return begun.stamp


def _plan(db: Db, work: Prepared, crawls: Set[int], refused: Set[Key]) -> frozenset[Key]:
    """Update the calendars with what was found; return what is retired."""
    known = plans.plans(db, sorted(crawls))
    found = recrawl_calendar.observed(work.work, known) if known else []
    found = [one for one in found if (one.crawl, one.fingerprint) not in refused]
    return calendar.settle(db, found, known).retired if found else frozenset()


def _named(finals: Sequence[Final], checks: Sequence[Check]) -> Iterator[Key]:
    yield from ((one.crawl, one.fingerprint) for one in finals)
    yield from ((one.crawl, one.fingerprint) for one in checks)


def _crawls(work: Prepared) -> list[int]:
    named = {page.crawl for page in work.pages}
    named |= {row[0] for row in work.attempts} | {one.crawl for one in work.finals}
    named |= {run.crawl for run in work.hooks} | {one.crawl for one in work.checks}
    return sorted(crawl for crawl in named if 0 < crawl < 2**32)


def _write_finals(
    transaction: Transaction,
    finals: Sequence[Final],
    settled: Sequence[Key],
    current: Mapping[Key, int],
) -> None:
    """Write final states; the newest of a URL stays, and a page as new or newer replaces it.

    Any page, and any other final state, replaces a parked state: see ``Store.commit``.
    """
    known = _outlived(transaction, _known_finals(transaction, settled), current)
    chosen: dict[Key, Final] = {}
    for one in finals:
        key = (one.crawl, one.fingerprint)
        at_ms = common.bounded(one.at_ms)
        state, before = "", NEVER
        if key in chosen:
            state, before = chosen[key].state, chosen[key].at_ms
        elif key in known:
            state, before, _ = known[key]
        parks, parked_before = one.state == "parked", state == "parked"
        newer = at_ms >= before if parks == parked_before or not state else parked_before
        if newer and (key not in current if parks else at_ms > current.get(key, NEVER)):
            chosen[key] = one
    for there in (False, True):
        some = sorted(key for key in chosen if (key in known) == there)
        found = []
        for key in some:
            state, _, stamp = known.get(key, ("", 0, 0))
            transaction.sums.final(key[0], 1, chosen[key].state)
            if there:
                transaction.sums.final(key[0], -1, state)
            found.append(rows.final_row(chosen[key], max(transaction.now.clock, stamp)))
        tail = replacing(rows.FINALS, 2) if there else ""
        transaction.insert("finals", rows.FINALS, found, [row[9] for row in found], tail)
    _check_for_newer_pages(
        transaction, sorted(key for key in chosen if key not in known and key not in current)
    )


def _known_finals(
    transaction: Transaction, settled: Sequence[Key]
) -> dict[Key, tuple[str, int, int]]:
    """Return (state, at_ms, stamp) of the existing final states, locked."""
    sql = "SELECT fingerprint, state, at_ms, stamp FROM finals WHERE"
    return {
        (crawl, number): (state.decode(), at_ms, stamp)
        for crawl, some in by_crawl(settled)
        for number, state, at_ms, stamp in keys(
            transaction.db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE"
        )
    }


def _outlived(
    transaction: Transaction, known: dict[Key, tuple[str, int, int]], current: Mapping[Key, int]
) -> dict[Key, tuple[str, int, int]]:
    """Delete the final states that a page replaces; return the others."""
    over = sorted(
        key for key in known.keys() & current.keys()
        if known[key][0] == "parked" or known[key][1] <= current[key]
    )  # fmt: skip
    for crawl, some in by_crawl(over):
        for part in chunks(some):
            sql = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
            raw(transaction.db, sql % (crawl, numbers(part)))
    for key in over:
        transaction.sums.final(key[0], -1, known.pop(key)[0])
    return known


def _check_for_newer_pages(transaction: Transaction, finals: Iterable[Key]) -> None:
    """Check for a page of the same URL that was committed since the first look.

    The two transactions did not see each other's row, so the later transaction begins again.
    """
    for crawl, some in by_crawl(list(finals)):
        sql = "SELECT 1 FROM pages WHERE"
        if keys(transaction.db, sql, crawl, some, "LIMIT 1 LOCK IN SHARE MODE"):
            raise pymysql.err.OperationalError(1213, "a page came before its final state")


def _write_attempts(transaction: Transaction, work: Prepared, alive: Set[int]) -> None:
    """Write new attempts, each once, and count them."""
    found = {
        row[:3]: (row, host)
        for row, host in zip(work.attempts, work.hosts, strict=True)
        if row[0] in alive
    }
    if not found:
        return
    if transaction.careful:
        times = [key[2] for key in found]
        # this tells the server the partitions
        between = f"at_ms BETWEEN {min(times)} AND {max(times)}"
        sql = f"SELECT fingerprint, at_ms FROM attempts WHERE {between} AND"
        for crawl, some in by_crawl(sorted({key[:2] for key in found})):
            for number, at_ms in keys(transaction.db, sql, crawl, some):
                found.pop((crawl, number, at_ms), None)
    new = [found[key] for key in sorted(found)]
    new_rows = [row for row, _ in new]
    transaction.insert("attempts", rows.ATTEMPTS, new_rows, [row[8] for row in new_rows])
    for row, host in new:
        transaction.sums.attempt(row[0], host, row[3], row[6])
