"""The contract on a real file, and the particularities of SQLite: full disks, damage, other
processes."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import disk_usage

import gevent
import pytest

from greencrawl.schema import wire
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.records import Commit, CrawlOptions, NodeOptions, PageFilter
from greencrawl.store import open_store as open_url
from greencrawl.store.base import Store
from greencrawl.store.errors import Closed, Damaged, Unstorable
from greencrawl.store.months import month_of, start_ms
from greencrawl.store.rows import Row
from greencrawl.store.sqlite import connection
from greencrawl.store.sqlite.connection import opening
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.sqlite.tables import attempts, lists, replay_log
from tests.support.store_contract import (
    Opener,
    StoreContract,
    attempt,
    beyond,
    crawl,
    final,
    links,
    page,
    store,
)
from tests.support.store_members import member
from tests.support.store_parked import DAYS, parked

__all__ = ["crawl", "store"]  # fixtures


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


@pytest.fixture
def open_store(path: Path) -> Iterator[Opener]:
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(SqliteStore(path))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


class TestSqlite(StoreContract):
    pass


def test_overflow_waits_on_if_its_page_or_parked_state_is_refused(open_store: Opener) -> None:
    store = open_store()
    crawl = store.put_crawl("few", CrawlOptions(max_pages=1), []).id
    store.add_released(crawl, [DAYS])
    store.put_overflow(crawl, beyond([0] * 4, "example.org", first=1))
    rows = store.overflow(crawl, 7, "example.org", 10)
    store.raise_epoch("n", 0, 1)
    store.overflow_taken(rows, "n", 1)
    work = Commit([page(crawl, 1), page(crawl, 2)], finals=[parked(crawl, 3), final(crawl, 4)])
    assert store.commit(work).refused == {(crawl, 2), (crawl, 3)}
    store.free_overflow(7)
    left = [row.fingerprint for row in store.overflow(crawl, 7, "example.org", 10)]
    assert left == [2, 3]


def test_a_url_opens_a_file_and_makes_its_folder(tmp_path: Path) -> None:
    opened = open_url(f"sqlite:///{tmp_path}/new/folder/x.sqlite")
    opened.put_crawl("a", CrawlOptions(), [])
    opened.close()
    assert (tmp_path / "new/folder/x.sqlite").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:p@h", "names no database"),
        ("sqlite://host/x", "sqlite:///PATH"),
        ("sqlite:///", "sqlite:///PATH"),
        ("sqlite:///:memory:", "sqlite:///PATH"),
        ("/var/x.sqlite", "sqlite:///PATH"),
    ],
)
def test_a_url_of_another_kind_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        open_url(url)


def test_commits_are_durable_by_a_synchronous_log(store: SqliteStore) -> None:
    found = store._commits.lane.run(
        lambda db: [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]
    )
    assert found == ["wal", 2]


def test_a_commit_fails_while_the_disk_is_full_and_earlier_ones_stay(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=b"kept")]))
    lane = store._commits.lane

    def allow(pages: int) -> None:
        # This concerns this connection: the next one has no limit. A limit below the size means "no
        # growth".
        lane.run(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    allow(1)
    big = Commit([page(crawl, n, body=(b"%d" % n) * 10_000) for n in range(2, 60)])
    noise = [
        page(crawl, n, body=bytes((n * k * 7919) % 251 for k in range(9000))) for n in range(60, 99)
    ]
    with pytest.raises(Unavailable, match="disk full"):
        store.commit(Commit([*big.pages, *noise]))
    assert store.counts(crawl)["pages"] == 1
    store.commit(Commit([*big.pages, *noise]))  # there is room again
    assert store.counts(crawl)["pages"] == 98
    stored = store.page(crawl, 1)
    assert stored is not None
    assert stored.body == b"kept"


def test_a_full_disk_is_named_with_what_to_do(
    store: SqliteStore, crawl: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "PRAGMA max_page_count = 1"
    store._commits.lane.run(lambda db: db.execute(limit).fetchone())
    monkeypatch.setattr(connection, "LEAST_ROOM_BYTES", disk_usage(path.parent).total + 1)
    noise = [page(crawl, n, body=os.urandom(9000)) for n in range(1, 60)]
    with pytest.raises(Unavailable) as raised:
        store.commit(Commit(noise))
    assert str(raised.value) == f"the disk of {path} is full: make room there, and try again"


def test_the_opening_of_a_store_waits_a_bounded_time_for_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.store.sqlite.connection.OPENING_SECONDS", 0.05)
    with (
        opening(path),  # as a process that is frozen in it
        pytest.raises(Unavailable, match="another process has been opening"),
    ):
        SqliteStore(path)
    SqliteStore(path).close()


def test_a_commit_fails_while_a_lock_is_held_for_too_long_and_succeeds_after_it(
    store: SqliteStore, crawl: int, path: Path
) -> None:
    store._commits.lane.run(lambda db: db.execute("PRAGMA busy_timeout = 50").fetchone())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process"):
        store.commit(Commit([page(crawl, 1)]))
    other.execute("ROLLBACK")
    other.close()
    store.commit(Commit([page(crawl, 1)]))
    assert store.counts(crawl)["pages"] == 1


def test_a_writer_waits_for_another_process_to_finish(
    store: SqliteStore, crawl: int, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    job = gevent.spawn(store.commit, Commit([page(crawl, 1)]))
    gevent.sleep(0.05)
    assert not job.ready()
    assert store.counts(crawl)["pages"] == 0  # readers do not wait
    other.execute("COMMIT")
    other.close()
    job.get(timeout=10)
    assert store.counts(crawl)["pages"] == 1


def test_a_file_that_is_no_database_is_called_damaged(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    with pytest.raises(Damaged, match="damaged"):
        SqliteStore(path)


def test_a_database_with_corrupt_content_is_called_damaged(
    store: SqliteStore, crawl: int, path: Path
) -> None:
    store.commit(Commit([page(crawl, n, title="t" * 300) for n in range(200)]))
    store.close()
    raw = bytearray(path.read_bytes())
    raw[8192:] = b"\xff" * (len(raw) - 8192)
    path.write_bytes(bytes(raw))
    again: SqliteStore | None = None
    with pytest.raises(Damaged, match="restore a copy"):  # noqa: PT012 - at opening or at reading
        again = SqliteStore(path)
        list(again.pages(crawl))
    if again is not None:
        again.close()


def test_a_file_that_vanished_is_not_replaced_by_an_empty_one(path: Path) -> None:
    opened = SqliteStore(path)
    for file in path.parent.glob("content.sqlite*"):
        file.unlink()
    with pytest.raises(Unavailable, match="cannot be opened"):
        opened.crawls()
    with pytest.raises(Unavailable, match="cannot be opened"):
        opened.commit(Commit())
    assert not path.exists()
    opened.close()


def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="cannot be opened"):
        SqliteStore(tmp_path / "folder")


def test_one_bad_record_does_not_fail_the_commits_beside_it(store: SqliteStore, crawl: int) -> None:
    bad = page(crawl, 7, fields={"price": object()})
    jobs = [
        gevent.spawn(store.commit, Commit([one]))
        for one in (page(crawl, 1), bad, page(crawl, 2), page(crawl, 3))
    ]
    gevent.joinall(jobs, timeout=10)
    assert [job.successful() for job in jobs] == [True, False, True, True]
    with pytest.raises(Unstorable, match=r"no JSON.*example\.org/7"):
        jobs[1].get()
    assert store.counts(crawl)["pages"] == 3


def test_a_commit_whose_row_the_database_refuses_fails_alone(
    store: SqliteStore, crawl: int
) -> None:
    store._commits.lane.run(
        lambda db: db.execute(
            "CREATE TEMP TRIGGER no_seven BEFORE INSERT ON pages WHEN NEW.fingerprint = 7 "
            "BEGIN SELECT RAISE(ABORT, 'seven'); END"
        ).fetchall()
    )
    jobs = [gevent.spawn(store.commit, Commit([page(crawl, n)])) for n in (1, 6, 7, 8)]
    gevent.joinall(jobs, timeout=10)
    assert [job.successful() for job in jobs] == [True, True, False, True]
    with pytest.raises(Unstorable, match=r"seven.*example\.org/7"):
        jobs[2].get()
    assert store.counts(crawl)["pages"] == 3


def test_a_fingerprint_beyond_64_bits_is_unstorable(store: SqliteStore, crawl: int) -> None:
    with pytest.raises(Unstorable, match="signed 64-bit"):
        store.commit(Commit(finals=[final(crawl, 2**63)]))


def test_a_killed_caller_of_a_commit_does_not_hold_up_the_next(
    store: SqliteStore, crawl: int
) -> None:
    jobs = [gevent.spawn(store.commit, Commit([page(crawl, n)])) for n in range(4)]
    gevent.sleep(0)
    gevent.killall(jobs[:2], timeout=5)
    store.commit(Commit([page(crawl, 9)]))
    gevent.joinall(jobs[2:], timeout=5)
    assert all(job.successful() for job in jobs[2:])
    assert store.page(crawl, 9) is not None


def test_a_closed_store_refuses_every_use(path: Path) -> None:
    opened = SqliteStore(path)
    opened.close()
    for use in (opened.tick, opened.crawls, lambda: opened.commit(Commit())):
        with pytest.raises(Closed):
            use()


def test_a_store_that_is_closed_twice_starts_no_thread_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, dropped = SqliteStore(path), list[int]()
    opened.close()
    monkeypatch.setattr(opened._questions, "_drop", lambda: dropped.append(1))
    opened.close()
    assert dropped == []


def test_the_deletion_of_a_crawl_that_was_cut_short_is_finished_by_the_next(
    store: SqliteStore, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(Commit([page(crawl, n) for n in range(450)], [attempt(crawl, 1)]))
    steps = 0
    real = store._write

    def write(work: Callable[[sqlite3.Connection], bool | None]) -> bool | None:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise Unavailable("cut short")
        return real(work)

    monkeypatch.setattr(store, "_write", write)
    with pytest.raises(Unavailable):
        store.delete_crawl(crawl)
    assert store.crawls() == []
    assert store.counts(crawl)["pages"] == 250
    store.delete_crawl(crawl)
    assert not any(store.counts(crawl).values())


def test_stamps_follow_every_rewrite_of_a_row(store: SqliteStore, crawl: int) -> None:
    def stamps() -> list[int]:
        return store._commits.lane.run(
            lambda db: [row[0] for row in db.execute("SELECT stamp FROM pages").fetchall()]
        )

    first = store.commit(Commit([page(crawl, 1, 2000, links=links("http://a/"))])).clock
    assert stamps() == [first]
    store.tick()
    again = store.commit(Commit([page(crawl, 1, 2000, links=links("http://a/"))])).clock
    assert stamps() == [again]
    store.tick()
    late = store.commit(Commit([page(crawl, 1, 1000, links=links("http://b/"))])).clock
    assert stamps() == [late]
    assert late > again > first


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT id FROM pages WHERE crawl = 1 AND id > 5 ORDER BY id LIMIT 9", "pages_by_crawl"),
        (replay_log.MARKS["pages"].replace("(?, ?)", "(7, -1)"), "pages_by_stamp"),
        (replay_log.LINKS.replace("(?, ?)", "(7, -1)"), "pages_by_stamp"),
        (replay_log.MARKS["finals"].replace("(?, ?)", "(7, -1)"), "finals_by_stamp"),
        (replay_log.SEEDS.format(forced=0).replace("(?, ?)", "(7, -1)"), "seed_batches_by_stamp"),
        ("SELECT urls FROM seed_batches WHERE pending = 1 ORDER BY id", "seed_batches_pending"),
        (
            "SELECT url FROM finals WHERE crawl = 1 AND state = 'dead' AND id > 5 ORDER BY id",
            "finals_by_state",
        ),
        (
            f"SELECT url FROM pages WHERE crawl = 1 AND {lists.HOST} = 'a/' AND id > 5 ORDER BY id",
            "pages_by_host",
        ),
        ("SELECT id FROM pages WHERE crawl = 1 AND id > 5 AND status = 404", "pages_by_crawl"),
        (
            "SELECT url FROM attempts WHERE crawl = 1 AND fingerprint = 2 ORDER BY at_ms DESC",
            "attempts_by_url",
        ),
    ],
)
def test_queries_use_an_index_and_do_not_sort(store: SqliteStore, sql: str, index: str) -> None:
    plan = store._questions.run(lambda db: str(db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()))
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_links_are_kept_in_one_compressed_blob(store: SqliteStore, crawl: int) -> None:
    many = links(*(f"http://example.org/section/page-{n}.html" for n in range(200)))
    store.commit(Commit([page(crawl, 1, links=many)]))
    (blob,) = store._questions.run(lambda db: db.execute("SELECT links FROM pages").fetchone())
    assert len(blob) < len(wire.to_msgpack(many)) / 3


def test_equal_bodies_are_stored_once_and_removed_with_their_last_page(
    store: SqliteStore, crawl: int
) -> None:
    def kept() -> tuple[int, int]:
        sql = "SELECT COUNT(*), COALESCE(SUM(length(body)), 0) FROM contents"
        count, size = store._questions.run(lambda db: db.execute(sql).fetchone())
        return int(count), int(size)

    noise = random.Random(1).randbytes(50_000)
    store.commit(Commit([page(crawl, n, body=noise) for n in range(100)]))
    count, size = kept()
    assert count == 1
    assert size < 60_000
    store.commit(Commit([page(crawl, n, 2000, body=b"changed") for n in range(99)]))
    assert kept()[0] == 2
    store.commit(Commit([page(crawl, 99, 2000, body=b"changed")]))
    assert kept() == (1, len(store._codec.pack(b"changed")))
    store.commit(Commit([page(crawl, n, 3000) for n in range(100)]))
    assert kept() == (0, 0)


def test_a_filter_that_finds_few_rows_reads_in_bounded_steps(
    store: SqliteStore, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "WINDOW", 50)
    store.commit(
        Commit(
            [page(crawl, n, status=404 if n % 100 == 7 else 200) for n in range(1000)],
            finals=[final(crawl, n, n) for n in range(2000, 3000)],
        )
    )
    steps = 0
    run = store._scans.run

    def counted(work: Callable[[sqlite3.Connection], list[Row]]) -> list[Row]:
        nonlocal steps
        steps += 1
        return run(work)

    monkeypatch.setattr(store._scans, "run", counted)
    found = [one.fingerprint for _, one in store.pages(crawl, PageFilter(status=(400, 499)))]
    assert found == list(range(7, 1000, 100))
    assert steps >= 20
    steps = 0
    assert [one.fingerprint for _, one in store.finals(crawl, 2990)] == list(range(2990, 3000))
    assert steps >= 20


def test_old_months_of_the_journal_go_in_bounded_steps_and_late_rows_with_the_next(
    store: SqliteStore, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "STEP", 10)
    monkeypatch.setattr(attempts, "PATIENCE", 60)
    january, february, march = (start_ms(month_of(0) + 12 * 61 + n) for n in range(3))
    young = range(february, february + 140)
    times = [
        *range(january, january + 50), *young[:40], january + 100, *young[40:70], january + 200,
        *young[70:], january + 500,
    ]  # fmt: skip
    for at_ms in times:
        store.commit(Commit(attempts=[attempt(crawl, 1, at_ms)]))
    steps = 0
    real = store._write

    def write(work: Callable[[sqlite3.Connection], bool]) -> bool:
        nonlocal steps
        steps += 1
        return real(work)

    monkeypatch.setattr(store, "_write", write)
    assert sum(store.drop_months(february)) == 1
    assert 15 < steps < 25
    left = {one.at_ms for one in store.attempts(crawl, 1, limit=1000)}
    assert left == {*young, january + 500}, "one came too late to be looked for"
    assert sum(store.drop_months(march)) == 2
    assert store.attempts(crawl, 1) == []
    assert store.counts(crawl)["attempts"] == len(times)


@pytest.mark.parametrize("drop", ["drop_months", "drop_successes"])
def test_a_step_deletes_few_rows_of_the_journal_and_lets_others_write_after_it(
    store: SqliteStore, crawl: int, monkeypatch: pytest.MonkeyPatch, drop: str
) -> None:
    monkeypatch.setattr(attempts, "DELETED", 20)
    january, february = (start_ms(month_of(0) + 12 * 61 + n) for n in range(2))
    kinds = ("ok", "timeout", "ok")  # a row that is passed over must be read only once
    tries = [attempt(crawl, n, january + n, kind=kinds[n % 3]) for n in range(90)]
    store.commit(Commit(attempts=tries))
    left = [len(rows_left(store))]
    with closing(sqlite3.connect(store.path, timeout=0, isolation_level=None)) as other:
        for _ in getattr(store, drop)(february):
            other.execute("BEGIN IMMEDIATE")  # it raises if the lock is held
            other.execute("COMMIT")
            left.append(len(rows_left(store)))
    steps = [before - after for before, after in itertools.pairwise(left)]
    assert set(steps[:3]) == {20}
    assert max(steps) == 20
    assert rows_left(store) == ([] if drop == "drop_months" else [*range(1, 90, 3)])


def rows_left(store: SqliteStore) -> list[int]:
    """Return the fingerprints of the journal's rows."""
    sql = "SELECT fingerprint FROM attempts ORDER BY id"
    return [number for (number,) in store._questions.run(lambda db: db.execute(sql).fetchall())]


def test_a_list_after_the_highest_cursor_is_empty(store: SqliteStore, crawl: int) -> None:
    store.commit(Commit([page(crawl, 1)], finals=[final(crawl, 2**63 - 1)]))
    last = str(2**63 - 1)
    assert (store.dead(crawl, after=last), list(store.pages(crawl, after=last))) == ([], [])
    assert list(store.finals(crawl, after=last)) == []
    ((cursor, _),) = store.finals(crawl, 1)
    assert list(store.finals(crawl, 1, after=cursor)) == []


def test_a_node_that_joins_while_it_is_forgotten_keeps_its_orders(path: Path, store: Store) -> None:
    store.put_member(member("w-0"))
    ordered = store.put_orders("w", NodeOptions(drain=True), (), "ann", 600)
    store.member_left("w-0", 10, "lost", 1000)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TRIGGER joins AFTER DELETE ON members BEGIN INSERT INTO members "
            "(id, node, kind, incarnation, version, address, joined_ms) "
            "VALUES ('w-1', 'w', 'worker', 11, '1', '', 2000); END"
        )
    store.forget_node("w", "bob", 3000)
    assert [one.id for one in store.members()] == ["w-1"]
    assert store.orders().nodes == (ordered,)
    assert store.orders_log(1)[0].changed == {"forgotten": True}
