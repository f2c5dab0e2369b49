"""The worker's commit on MySQL: one transaction, in which the rows concerned are locked first.

The order of locks is the same everywhere, so that few transactions meet head-on: nodes, crawls,
pages, final states, attempts, overflow, sums; keys in order within each. What is not there yet
cannot be locked: who inserts the same key second is refused, and its transaction runs again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import pymysql
from msgspec import Struct

from schema import faults
from schema.records import Final, Stamp
from store import rows as common
from store.bodies import Place
from store.mysql import log, overflow, rows
from store.mysql.connection import Db
from store.mysql.numbers import Numbers
from store.mysql.rows import Page, Prepared
from store.mysql.sql import chunks, insert, keys, literal, numbers, raw
from store.rows import Codec, Row

SLOTS = 16
"""Rows that one sum is spread over."""
Key = tuple[int, int]

PAGES = "crawl, fingerprint, stamp, place, fetched_ms, status, body_bytes, digest, host, wide"
_REPLACED = "ON DUPLICATE KEY UPDATE " + ", ".join(
    f"{column} = VALUES({column})" for column in PAGES.split(", ")[2:]
)
_OTHER_FINAL = "ON DUPLICATE KEY UPDATE " + ", ".join(
    f"{column} = VALUES({column})" for column in rows.FINALS.split(", ")[2:]
)
_MORE_SUMS = "ON DUPLICATE KEY UPDATE " + ", ".join(
    f"{column} = {column} + VALUES({column})"
    for column in ("pages", "bytes", "dead", "gone", "excluded")
)
_MORE_ATTEMPTS = "ON DUPLICATE KEY UPDATE " + ", ".join(
    f"{column} = {column} + VALUES({column})" for column in ("attempts", "answers", "elapsed_ms")
)
_LONGEST_MS = 2**40  # of one answer, so that no sum leaves its column
_STATES = ("dead", "gone", "excluded")


class _Known(Struct):
    """A page as its narrow row has it."""

    stamp: int
    place: int
    fetched_ms: int
    status: int
    body_bytes: int
    digest: bytes


class _Sums:
    """What a transaction adds to the sums of its crawls."""

    def __init__(self) -> None:
        self._crawls: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def page(self, crawl: int, sign: int, status: int, body_bytes: int) -> None:
        if 200 <= status <= 299:
            self._crawls[crawl]["pages"] += sign
            self._crawls[crawl]["bytes"] += sign * body_bytes

    def final(self, crawl: int, sign: int, state: str) -> None:
        self._crawls[crawl][state] += sign

    def rows(self, slot: int) -> list[Row]:
        return [
            (crawl, slot, *(found[name] for name in ("pages", "bytes", *_STATES)))
            for crawl, found in sorted(self._crawls.items())
            if any(found.values())
        ]


class Write:
    """One run of a commit's transaction."""

    def __init__(
        self, db: Db, codec: Codec, ids: Numbers, places: Mapping[tuple[int, bytes], Place] | None
    ) -> None:
        self._db = db
        self._codec = codec
        self._ids = ids
        self._places = places
        """Where bodies are in files, by (crawl, digest); None if they are kept here."""
        self._sums = _Sums()
        self._now = Stamp(0, {})
        self._most = 0
        self._slot = 0

    def run(self, work: Prepared) -> Stamp:
        """Write ``work`` but for records of deleted crawls. Raises Unstorable, MySQLError."""
        self._now, self._most, self._slot = log.begin(self._db)
        alive = self._alive(work)
        pages: dict[Key, list[Page]] = defaultdict(list)
        for page in work.pages:
            if page.crawl in alive:
                pages[page.key].append(page)
        finals = [one for one in work.finals if one.crawl in alive]
        attempts = [
            (row, host)
            for row, host in zip(work.attempts, work.hosts, strict=True)
            if row[0] in alive
        ]
        settled = sorted({*pages, *((one.crawl, one.fingerprint) for one in finals)})
        known = self._known(settled)
        current = self._write_pages(pages, known)
        self._write_finals(finals, settled, current)
        hosts = self._write_attempts(attempts)
        overflow.settled(self._db, settled)
        self._write_sums(hosts)
        faults.point("store.before_commit")
        return self._now

    def _alive(self, work: Prepared) -> set[int]:
        """Ids of the crawls concerned that are not deleted, kept from being so meanwhile."""
        named = {page.crawl for page in work.pages}
        named |= {row[0] for row in work.attempts} | {one.crawl for one in work.finals}
        some = sorted(crawl for crawl in named if 0 < crawl < 2**32)
        if not some:
            return set()
        sql = b"SELECT id FROM crawls WHERE id IN (%b) AND deleted = 0 LOCK IN SHARE MODE"
        raw(self._db, sql % numbers(some))
        return {row[0] for row in self._db.fetchall()}

    def _known(self, settled: Sequence[Key]) -> dict[Key, _Known]:
        """Pages that are there, locked."""
        sql = (
            "SELECT fingerprint, stamp, place, fetched_ms, status, body_bytes, digest "
            "FROM pages WHERE"
        )
        return {
            (crawl, number): _Known(*rest)
            for crawl, some in _by_crawl(settled)
            for number, *rest in keys(self._db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE")
        }

    # -- pages

    def _write_pages(
        self, pages: Mapping[Key, Sequence[Page]], known: Mapping[Key, _Known]
    ) -> dict[Key, int]:
        """Write each URL's newest page and its versions; returns when each is from."""
        self._write_bodies([page for some in pages.values() for page in some])
        current = {key: old.fetched_ms for key, old in known.items()}
        links = self._links([key for key in pages if key in known], known)
        first = self._ids.take(len(pages) or 1)
        new: list[tuple[Row, Page]] = []
        replaced: list[tuple[Row, Page]] = []
        left: list[tuple[Key, _Known]] = []
        wide: list[tuple[Row, Page]] = []
        versions: dict[tuple[int, int, int], Row] = {}
        for index, (key, some) in enumerate(pages.items()):
            old = known.get(key)
            blob = links.get(key, b"")
            winner: Page | None = None
            at = None if old is None else old.fetched_ms
            for page in sorted(some, key=lambda page: page.fetched_ms):
                blob = self._codec.merge_links(blob, page.links)
                if at is not None and page.fetched_ms < at:
                    versions[(*key, page.fetched_ms)] = _version(page)
                    continue
                if winner is not None and page.fetched_ms > winner.fetched_ms:
                    versions[(*key, winner.fetched_ms)] = _version(winner)
                winner, at = page, page.fetched_ms
            if winner is None:
                assert old is not None
                left.append((key, old))
                if blob != links[key]:
                    self._put_links(key, old, blob)
                continue
            winner.links = blob
            place = first + index
            stamp = self._now.clock if old is None else max(old.stamp, self._now.clock)
            narrow = (
                *key, stamp, place, winner.fetched_ms, winner.status, len(winner.plain),
                winner.digest, winner.host, winner.wide_bytes,
            )  # fmt: skip
            wide.append(((key[0], place, key[1], *winner.wide, blob, winner.text), winner))
            current[key] = winner.fetched_ms
            self._sums.page(key[0], 1, winner.status, len(winner.plain))
            if old is None:
                new.append((narrow, winner))
                continue
            replaced.append((narrow, winner))
            self._sums.page(key[0], -1, old.status, old.body_bytes)
            if old.fetched_ms != winner.fetched_ms:
                versions[(*key, old.fetched_ms)] = (old.status, old.body_bytes, old.digest)
        self._insert("pages", PAGES, sorted(new, key=itemgetter(0)))
        self._insert("pages", PAGES, sorted(replaced, key=itemgetter(0)), _REPLACED)
        gone = [(key, old) for key, old in known.items() if (key in pages)]
        self._delete_contents([(key, old) for key, old in gone if (key, old) not in left])
        self._restamp(left)
        self._insert("contents", rows.CONTENTS, wide)
        insert(
            self._db, "versions", "crawl, fingerprint, fetched_ms, status, body_bytes, digest",
            [(*key, *rest) for key, rest in sorted(versions.items())], most_bytes=self._most,
            tail="ON DUPLICATE KEY UPDATE status = VALUES(status), "
            "body_bytes = VALUES(body_bytes), digest = VALUES(digest)",
        )  # fmt: skip
        return current

    def _insert(
        self, table: str, columns: str, found: Sequence[tuple[Row, Page]], tail: str = ""
    ) -> None:
        names = [page.url for _, page in found]
        rows_ = [row for row, _ in found]
        insert(self._db, table, columns, rows_, most_bytes=self._most, names=names, tail=tail)

    def _links(self, of: Sequence[Key], known: Mapping[Key, _Known]) -> dict[Key, bytes]:
        """The links that the log has of these pages."""
        found: dict[Key, bytes] = {}
        for crawl, where in _places(of, known):
            sql = b"SELECT fingerprint, links FROM contents WHERE crawl = %d AND (%b)"
            raw(self._db, sql % (crawl, where))
            found.update(((crawl, number), blob) for number, blob in self._db.fetchall())
        return {key: found.get(key, b"") for key in of}

    def _delete_contents(self, old: Sequence[tuple[Key, _Known]]) -> None:
        for crawl, where in _places([key for key, _ in old], dict(old)):
            sql = b"DELETE FROM contents WHERE crawl = %d AND (%b)"
            raw(self._db, sql % (crawl, where))

    def _put_links(self, key: Key, old: _Known, blob: bytes) -> None:
        sql = b"UPDATE contents SET links = %b WHERE crawl = %d AND place = %d AND fingerprint = %d"
        raw(self._db, sql % (literal(blob), key[0], old.place, key[1]))

    def _restamp(self, left: Sequence[tuple[Key, _Known]]) -> None:
        """A late page was admitted again all the same: the log tells of it at this stamp."""
        late = [key for key, old in left if old.stamp < self._now.clock]
        for crawl, some in _by_crawl(late):
            sql = b"UPDATE pages SET stamp = %d WHERE crawl = %d AND fingerprint IN (%b)"
            for part in chunks(some):
                raw(self._db, sql % (self._now.clock, crawl, numbers(part)))

    def _write_bodies(self, pages: Sequence[Page]) -> None:
        """Bodies that the crawl does not have yet."""
        by_digest = {(page.crawl, page.digest): page for page in pages if page.plain}
        have = set(known_bodies(self._db, by_digest))
        new = sorted(item for item in by_digest.items() if item[0] not in have)
        if not new:
            return
        if self._places is None:
            rows.pack_bodies(self._codec, [page for _, page in new])
        first = self._ids.take(len(new))
        digests: list[Row] = []
        bodies: list[tuple[Row, Page]] = []
        for index, ((crawl, digest), page) in enumerate(new):
            file, start, length = (self._places or {}).get((crawl, digest), Place("", 0, 0))
            body = b"" if file else page.packed
            if body is None:
                body = self._codec.pack(page.plain)
            digests.append((crawl, digest, first + index, length or len(body)))
            row = (crawl, first + index, digest, file.encode(), start, length, body)
            bodies.append((row, page))
        insert(self._db, "digests", "crawl, digest, place, bytes", digests, most_bytes=self._most)
        self._insert("bodies", "crawl, place, digest, file, start, length, body", bodies)

    # -- final states

    def _write_finals(
        self, finals: Sequence[Final], settled: Sequence[Key], current: Mapping[Key, int]
    ) -> None:
        known: dict[Key, tuple[str, int, int]] = {}
        sql = "SELECT fingerprint, state, at_ms, stamp FROM finals WHERE"
        for crawl, some in _by_crawl(settled):
            found = keys(self._db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE")
            for number, state, at_ms, stamp in found:
                known[crawl, number] = (state.decode(), at_ms, stamp)
        outlived = [key for key in known if known[key][1] <= current.get(key, -(2**63))]
        for crawl, some in _by_crawl(sorted(outlived)):
            sql_delete = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
            for part in chunks(some):
                raw(self._db, sql_delete % (crawl, numbers(part)))
        for key in outlived:
            self._sums.final(key[0], -1, known.pop(key)[0])
        chosen: dict[Key, Final] = {}
        for one in finals:
            key = (one.crawl, one.fingerprint)
            before = chosen[key].at_ms if key in chosen else known[key][1] if key in known else None
            at_ms = common.bounded(one.at_ms)
            if at_ms > current.get(key, -(2**63) - 1) and (before is None or at_ms >= before):
                chosen[key] = one
        new = [rows.final_row(one, self._now.clock) for one in chosen.values() if one]
        other = [row for row in new if row[:2] in known]
        new = [row for row in new if row[:2] not in known]
        for row in (*new, *other):
            self._sums.final(row[0], 1, row[3])
        for row in other:
            self._sums.final(row[0], -1, known[row[:2]][0])
        other = [(*row[:2], max(row[2], known[row[:2]][2]), *row[3:]) for row in other]
        for group, tail in ((new, ""), (other, _OTHER_FINAL)):
            group.sort(key=itemgetter(0, 1))
            urls = [row[9] for row in group]
            insert(
                self._db, "finals", rows.FINALS, group, most_bytes=self._most, names=urls, tail=tail
            )
        self._look_again([row[:2] for row in new if row[:2] not in current])

    def _look_again(self, alone: Sequence[Key]) -> None:
        """A page of the same URL may have been committed since we looked for one.

        It did not see the final state, nor this transaction the page: who comes second begins anew.
        """
        for crawl, some in _by_crawl(sorted(alone)):
            sql = "SELECT 1 FROM pages WHERE"
            if keys(self._db, sql, crawl, some, "LIMIT 1 LOCK IN SHARE MODE"):
                raise pymysql.err.OperationalError(1213, "a page came before its final state")

    # -- the journal

    def _write_attempts(
        self, attempts: Sequence[tuple[Row, bytes]]
    ) -> dict[tuple[int, bytes], list[int]]:
        """Write those that are new, and return what they add to each host's sums."""
        wanted = {row[:3]: (row, host) for row, host in attempts}
        if not wanted:
            return {}
        low, high = min(key[2] for key in wanted), max(key[2] for key in wanted)
        sql = f"SELECT fingerprint, at_ms FROM attempts WHERE at_ms BETWEEN {low} AND {high} AND"
        for crawl, some in _by_crawl(sorted({key[:2] for key in wanted})):
            for number, at_ms in keys(self._db, sql, crawl, some):
                wanted.pop((crawl, number, at_ms), None)
        found = sorted(wanted.values(), key=lambda one: one[0][:3])
        insert(
            self._db, "attempts", rows.ATTEMPTS, [row for row, _ in found],
            most_bytes=self._most, names=[row[8] for row, _ in found],
        )  # fmt: skip
        hosts: dict[tuple[int, bytes], list[int]] = defaultdict(lambda: [0, 0, 0])
        for row, host in found:
            sums = hosts[row[0], host]
            sums[0] += 1
            if row[3] > 0:
                sums[1] += 1
                sums[2] += min(max(row[6], 0), _LONGEST_MS)
        return hosts

    def _write_sums(self, hosts: Mapping[tuple[int, bytes], Sequence[int]]) -> None:
        insert(
            self._db, "hosts", "crawl, host, slot, attempts, answers, elapsed_ms",
            [(*key, self._slot, *map(common.bounded, sums)) for key, sums in sorted(hosts.items())],
            most_bytes=self._most, tail=_MORE_ATTEMPTS,
        )  # fmt: skip
        insert(
            self._db, "sums", "crawl, slot, pages, bytes, dead, gone, excluded",
            self._sums.rows(self._slot), most_bytes=self._most, tail=_MORE_SUMS,
        )  # fmt: skip


def known_bodies(
    db: Db, digests: Iterable[tuple[int, bytes]]
) -> dict[tuple[int, bytes], tuple[int, int]]:
    """(crawl, digest) → (place, stored bytes) of bodies that are there."""
    found: dict[tuple[int, bytes], tuple[int, int]] = {}
    for crawl, group in groupby(sorted(digests), key=itemgetter(0)):
        for some in chunks([digest for _, digest in group]):
            names = b",".join(map(literal, some))
            sql = b"SELECT digest, place, bytes FROM digests WHERE crawl = %d AND digest IN (%b)"
            raw(db, sql % (crawl, names))
            found.update(((crawl, digest), (place, size)) for digest, place, size in db.fetchall())
    return found


def known_files(db: Db, digests: Iterable[tuple[int, bytes]]) -> dict[tuple[int, bytes], Place]:
    """(crawl, digest) → where the body is, of those that are in files."""
    known = known_bodies(db, digests)
    found: dict[tuple[int, bytes], Place] = {}
    for crawl, group in groupby(sorted(known), key=itemgetter(0)):
        for some in chunks([known[key][0] for key in group]):
            sql = (
                b"SELECT digest, file, start, length FROM bodies WHERE crawl = %d "
                b"AND place IN (%b) AND file <> ''"
            )
            raw(db, sql % (crawl, numbers(some)))
            for digest, file, start, length in db.fetchall():
                if (crawl, digest) in known:
                    found[crawl, digest] = Place(file.decode(), start, length)
    return found


def _version(page: Page) -> Row:
    return page.status, len(page.plain), page.digest


def _by_crawl(found: Sequence[Key]) -> list[tuple[int, list[int]]]:
    """Keys in order → (crawl, fingerprints)."""
    return [
        (crawl, [number for _, number in group]) for crawl, group in groupby(found, itemgetter(0))
    ]


def _places(of: Sequence[Key], known: Mapping[Key, _Known]) -> list[tuple[int, bytes]]:
    """(crawl, condition) that names the wide rows of these pages."""
    named = []
    for crawl, some in _by_crawl(sorted(of)):
        for part in chunks(some):
            one = b"place = %d AND fingerprint = %d"
            where = b" OR ".join([one % (known[crawl, number].place, number) for number in part])
            named.append((crawl, where))
    return named
