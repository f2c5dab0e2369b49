"""Bodies of a SQLite store in files: what SQL has about them, and the calls to the files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import gevent
import pytest
from gevent import monkey

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Commit, CrawlOptions, StoredPage
from greencrawl.store.base import Detail
from greencrawl.store.bodies import Place
from greencrawl.store.errors import BodyAway
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.sqlite.tables.contents import Known
from tests.support.body_uses import check_uses
from tests.support.store_records import digest, page

DETAILS: tuple[Detail, Detail] = ("text", "body")


class Files:
    """Bodies one after the other in one file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "bodies"
        self.told: list[tuple[list[int], set[bytes]]] = []
        self.full = False
        self.closed = False
        self.inside = monkey.get_original("threading", "Lock")()
        self.before: Callable[[], None] | None = None

    def append(self, pages: Sequence[StoredPage], known: Mapping[Known, Place]) -> list[Place]:
        assert self.inside.acquire(blocking=False), "one at a time"
        assert threading.current_thread() is not threading.main_thread()
        if self.full:
            self.inside.release()
            raise Unavailable("disk full")
        self.told.append(([one.fingerprint for one in pages], {name[1] for name in known}))
        if self.before is not None:
            self.before()
        places = []
        with self.file.open("ab") as out:
            for one in pages:
                if not one.body or (one.crawl, one.digest) in known:
                    places.append(Place("", 0, 0))
                    continue
                places.append(Place("bodies", out.tell(), len(one.body)))
                out.write(one.body)
        self.inside.release()
        return places

    def read(self, place: Place) -> bytes:
        with self.inside:
            try:
                raw = self.file.read_bytes()
            except OSError as error:
                raise BodyAway(place.file, str(error)) from error
            return raw[place.offset : place.offset + place.length]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def store(tmp_path: Path, files: Files) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite", files)
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> int:
    return store.put_crawl("news", CrawlOptions(), []).id


def bodies(store: SqliteStore, crawl: int) -> dict[int, bytes]:
    return {one.fingerprint: one.body for _, one in store.pages(crawl, detail="body")}


def in_sql(store: SqliteStore) -> int:
    sql = "SELECT (SELECT COUNT(*) FROM contents) + (SELECT SUM(length(body)) FROM pages)"
    return int(store._questions.run(lambda db: db.execute(sql).fetchone())[0])


def test_bodies_go_to_files_once_and_come_back(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    redirect = page(crawl, 3, status=301)
    store.commit(Commit([page(crawl, 1, body=b"one"), page(crawl, 2, body=b"two"), redirect]))
    store.commit(Commit([page(crawl, 4, body=b"one"), page(crawl, 2, 2000, body=b"new")]))
    assert bodies(store, crawl) == {1: b"one", 2: b"new", 3: b"", 4: b"one"}
    stored = store.page(crawl, 4)
    assert stored is not None
    assert stored.body == b"one"
    assert in_sql(store) == 0
    assert files.told == [([1, 2, 3], set()), ([4, 2], {digest(b"one")})]
    assert files.file.read_bytes() == b"onetwonew"


def test_a_missing_file_of_bodies_is_named_and_rows_are_read_all_the_same(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    store.commit(Commit([page(crawl, 1, body=b"one")]))
    files.file.unlink()
    with pytest.raises(BodyAway, match="bodies"):
        store.page(crawl, 1)
    with pytest.raises(BodyAway, match="bodies"):
        list(store.pages(crawl, detail="body"))
    assert store.page(crawl, 1, detail="text") is not None
    assert len(list(store.pages(crawl))) == 1


def test_a_store_without_the_folder_of_bodies_names_the_missing_setting(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    store.commit(Commit([page(crawl, 1, body=b"one", text="1")]))
    without = SqliteStore(store.path)
    with pytest.raises(BodyAway, match="GREENCRAWL_BODIES"):
        without.page(crawl, 1)
    more = [page(crawl, 2, body=b"one", text="1"), page(crawl, 3, body=b"three", text="3")]
    without.commit(Commit(more))
    without.close()
    store.commit(Commit([page(crawl, 4, body=b"three", text="3")]))
    assert bodies(store, crawl) == {1: b"one", 2: b"one", 3: b"three", 4: b"three"}
    for detail in DETAILS:
        texts = {one.fingerprint: one.text for _, one in store.pages(crawl, detail=detail)}
        assert texts == {1: "1", 2: "1", 3: "3", 4: "3"}


def test_bodies_stored_in_sql_before_stay_readable_after_a_change_to_files(
    tmp_path: Path, files: Files
) -> None:
    first = SqliteStore(tmp_path / "content.sqlite")
    crawl = first.put_crawl("news", CrawlOptions(), []).id
    first.commit(Commit([page(crawl, 1, body=b"one")]))
    first.close()
    second = SqliteStore(tmp_path / "content.sqlite", files)
    second.commit(Commit([page(crawl, 2, body=b"one"), page(crawl, 3, body=b"three")]))
    assert bodies(second, crawl) == {1: b"one", 2: b"one", 3: b"three"}
    second.close()
    assert files.closed


def test_a_commit_stores_nothing_while_the_disk_of_the_files_is_full(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    store.commit(Commit([page(crawl, 1, body=b"one")]))
    files.full = True
    with pytest.raises(Unavailable, match="disk full"):
        store.commit(Commit([page(crawl, 2, body=b"two")]))
    assert bodies(store, crawl) == {1: b"one"}
    files.full = False
    store.commit(Commit([page(crawl, 2, body=b"two")]))
    assert bodies(store, crawl) == {1: b"one", 2: b"two"}


def test_a_body_that_another_process_removes_meanwhile_is_written_again(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    store.commit(Commit([page(crawl, 1, body=b"one")]))

    def remove() -> None:  # as a process does that finds the page empty
        files.before = None
        other = sqlite3.connect(store.path)
        other.execute("UPDATE pages SET fetched_ms = 2000, body_bytes = 0, content = x''")
        other.execute("DELETE FROM bodies")
        other.commit()
        other.close()

    files.before = remove
    store.commit(Commit([page(crawl, 2, body=b"one")]))
    assert bodies(store, crawl) == {1: b"", 2: b"one"}
    assert [known for _, known in files.told[1:]] == [{digest(b"one")}, set()]


def test_a_deleted_crawl_leaves_no_places_of_bodies(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    store.commit(Commit([page(crawl, n, body=b"%d" % n) for n in range(300)]))
    store.delete_crawl(crawl)
    sql = "SELECT COUNT(*) FROM bodies"
    assert store._questions.run(lambda db: db.execute(sql).fetchone()) == (0,)


def test_readers_and_the_writer_use_the_files_one_at_a_time(
    store: SqliteStore, crawl: int, files: Files
) -> None:
    def write(first: int) -> None:
        for n in range(first, first + 20):
            store.commit(Commit([page(crawl, n, body=b"%d" % n)]))

    def read() -> None:
        for _ in range(20):
            assert all(b"%d" % number == body for number, body in bodies(store, crawl).items())

    jobs = [gevent.spawn(write, 100), gevent.spawn(write, 200), gevent.spawn(read)]
    gevent.joinall(jobs, timeout=60, raise_error=True)
    assert len(bodies(store, crawl)) == 40


@pytest.mark.parametrize("apart", [False, True])
def test_the_last_versions_of_a_page_keep_their_bodies_and_older_ones_do_not(
    tmp_path: Path, files: Files, apart: bool
) -> None:
    store = SqliteStore(tmp_path / "kept.sqlite", files if apart else None)
    crawl = store.put_crawl("x", CrawlOptions(keep_versions=2), []).id

    def kept() -> list[bool]:
        return [
            store.body(crawl, one.digest, one.body_bytes) is not None
            for one in store.history(crawl, 1)
        ]

    bodies = [b"first", b"second", b"third", b"third", b"fourth"]
    for at, body in enumerate(bodies):
        store.commit(Commit([page(crawl, 1, body=body, fetched_ms=1000 + at)]))
        if not apart:
            check_uses(store, crawl)
    assert kept() == [True, True, True, False, False]
    assert store.body(crawl, digest(b"third"), 5) == b"third"
    store.commit(Commit([page(crawl, 1, body=b"late", fetched_ms=500)]))
    store.commit(Commit([page(crawl, 2, body=b"third", fetched_ms=1000)]))
    assert kept() == [True, True, True, False, False, False], "what came late is not kept"
    assert sum(store.drop_versions(2000)) == 5
    assert store.body(crawl, digest(b"third"), 5) == b"third", "another page has it"
    assert store.body(crawl, digest(b"second"), 6) is None
    if not apart:
        check_uses(store, crawl)
    store.delete_crawl(crawl)
    assert store.body(crawl, digest(b"fourth"), 6) is None
    store.close()


@pytest.mark.parametrize("batches", [[[1, 2, 1]], [[1], [2, 1]], [[1, 3, 1, 2]]])
def test_the_body_of_a_replaced_version_is_kept_once_if_its_commit_comes_again_late(
    tmp_path: Path, batches: list[list[int]]
) -> None:
    store = SqliteStore(tmp_path / "kept.sqlite")
    crawl = store.put_crawl("x", CrawlOptions(keep_versions=1), []).id
    for times in batches:
        store.commit(Commit([page(crawl, 1, body=b"%d" % at, fetched_ms=at) for at in times]))
        check_uses(store, crawl)
    assert store.body(crawl, digest(b"1"), 1) == b"1"
    store.close()


def test_versions_of_a_page_in_one_commit_keep_the_last_bodies(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kept.sqlite")
    crawl = store.put_crawl("x", CrawlOptions(keep_versions=1), []).id
    pages = [page(crawl, 1, body=b"%d" % at, fetched_ms=at) for at in range(1, 5)]
    store.commit(Commit(pages))
    check_uses(store, crawl)
    assert [store.body(crawl, digest(b"%d" % at), 1) for at in range(1, 5)] == [
        None, None, b"3", b"4",
    ]  # fmt: skip
    store.close()
