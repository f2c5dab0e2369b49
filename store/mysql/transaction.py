"""The data that the steps of one commit's transaction share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from greencrawl.schema.records import Stamp
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import insert
from greencrawl.store.rows import Codec, Row, is_page

SLOTS = 16
"""A sum is spread over this many rows, by connection."""

Key = tuple[int, int]
"""A crawl and a fingerprint."""

SUMS = "pages, bytes, dead, gone, excluded, parked"
"""Columns of the sums of a crawl."""

_LONGEST_MS = 2**40  # the longest answer, so that no sum overflows its column


def _more(columns: str) -> str:
    return "ON DUPLICATE KEY UPDATE " + ", ".join(
        f"{column} = {column} + VALUES({column})" for column in columns.split(", ")
    )


class Sums:
    """The changes of a transaction to the sums of its crawls and of their hosts."""

    def __init__(self) -> None:
        self._crawls: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._hosts: dict[tuple[int, bytes], list[int]] = defaultdict(lambda: [0, 0, 0])

    def page(self, crawl: int, sign: int, status: int, body_bytes: int) -> None:
        """Count a page that is added (1) or removed (-1); only a status of 200 … 299 counts."""
        if is_page(status):
            self._crawls[crawl]["pages"] += sign
            self._crawls[crawl]["bytes"] += sign * body_bytes

    def final(self, crawl: int, sign: int, state: str) -> None:
        """Count a final state that is added (1) or removed (-1)."""
        self._crawls[crawl][state] += sign

    def attempt(self, crawl: int, host: bytes, code: int, elapsed_ms: int) -> None:
        """Count an attempt; an attempt with a status code is an answer."""
        found = self._hosts[crawl, host]
        found[0] += 1
        if code > 0:
            found[1] += 1
            found[2] += min(max(elapsed_ms, 0), _LONGEST_MS)

    def write(self, db: Db, connection: int, most_bytes: int) -> None:
        """Write the changes last in the transaction: other transactions wait for these rows."""
        slot = connection % SLOTS
        hosts: list[Row] = [(*key, slot, *found) for key, found in sorted(self._hosts.items())]
        insert(
            db, "hosts", "crawl, host, slot, attempts, answers, elapsed_ms", hosts,
            most_bytes=most_bytes, tail=_more("attempts, answers, elapsed_ms"),
        )  # fmt: skip
        crawls: list[Row] = [
            (crawl, slot, *(found[name] for name in SUMS.split(", ")))
            for crawl, found in sorted(self._crawls.items())
            if any(found.values())
        ]
        insert(
            db, "sums", f"crawl, slot, {SUMS}", crawls, most_bytes=most_bytes, tail=_more(SUMS),
        )  # fmt: skip


@dataclass
class Transaction:
    """One try of a commit."""

    db: Db
    codec: Codec
    now: Stamp
    most_bytes: int
    connection: int
    careful: bool
    """True if each insertion first looks for the row, since an insertion was refused before."""
    sums: Sums = field(default_factory=Sums)

    def insert(
        self, table: str, columns: str, rows: Sequence[Row], names: Sequence[str], tail: str = ""
    ) -> None:
        """INSERT ``rows``, which belong to the URLs ``names``. Raises Unstorable."""
        insert(self.db, table, columns, rows, most_bytes=self.most_bytes, names=names, tail=tail)


def by_crawl(found: Sequence[Key]) -> Iterator[tuple[int, list[int]]]:
    """Yield (crawl, fingerprints) from keys in order."""
    for crawl, group in groupby(found, itemgetter(0)):
        yield crawl, [number for _, number in group]


def replacing(columns: str, key: int) -> str:
    """Return the clause that replaces all columns but the first ``key`` ones."""
    return "ON DUPLICATE KEY UPDATE " + ", ".join(
        f"{column} = VALUES({column})" for column in columns.split(", ")[key:]
    )
