"""Texts of a SQLite store, which are in one frame with their page's body."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from greencrawl.schema.records import Commit, CrawlOptions, StoredPage
from greencrawl.store.base import Detail
from greencrawl.store.errors import BodyAway
from greencrawl.store.export.formats import Jsonl
from greencrawl.store.export.resumable import Wanted, export
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.sqlite.tables import contents
from tests.support.body_uses import check_uses
from tests.support.store_records import attempt, final, links, page

BODY = b"<p>many words, and some more of them</p>" * 40
TEXT = "many words, and some more of them " * 40
OTHER = "mots, mots, mots; déjà lus " * 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> int:
    return store.put_crawl("news", CrawlOptions(), []).id


def kept(store: SqliteStore) -> dict[int, int | bytes]:
    """Fingerprint → the column ``text``."""
    sql = "SELECT fingerprint, text FROM pages"
    return dict(store._questions.run(lambda db: db.execute(sql).fetchall()))


def frames(store: SqliteStore) -> list[bytes]:
    sql = "SELECT body FROM contents ORDER BY id"
    found = store._questions.run(lambda db: db.execute(sql).fetchall())
    return [zstandard.ZstdDecompressor().decompress(row[0]) for row in found]


def texts(store: SqliteStore, crawl: int) -> dict[int, str]:
    """Return the texts as both ways of reading have them."""
    details: tuple[Detail, Detail] = ("text", "body")
    streams = [
        {one.fingerprint: one.text for _, one in store.pages(crawl, detail=detail)}
        for detail in details
    ]
    for detail in details:
        single: dict[int, StoredPage | None] = {
            number: store.page(crawl, number, detail=detail) for number in streams[0]
        }
        streams.append({number: one.text for number, one in single.items() if one})
    assert all(found == streams[0] for found in streams)
    return streams[0]


def bodies(store: SqliteStore, crawl: int) -> dict[int, bytes]:
    return {one.fingerprint: one.body for _, one in store.pages(crawl, detail="body")}


def test_a_text_and_its_body_share_a_frame_and_each_is_read_by_itself(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=BODY, text=OTHER), page(crawl, 2, body=b"2")]))
    store.commit(Commit([page(crawl, 3, text=TEXT), page(crawl, 4)]))
    assert frames(store) == [OTHER.encode() + BODY, b"2"]
    columns = kept(store)
    assert (columns[1], columns[2], columns[4]) == (len(OTHER.encode()), b"", b"")
    assert isinstance(columns[3], bytes), "there is no body to go with"
    assert texts(store, crawl) == {1: OTHER, 2: "", 3: TEXT, 4: ""}
    assert bodies(store, crawl) == {1: BODY, 2: b"2", 3: b"", 4: b""}


@pytest.mark.parametrize("together", [True, False])
def test_equal_pages_share_a_frame_and_a_text_that_differs_stays_with_its_page(
    store: SqliteStore, crawl: int, together: bool
) -> None:
    pages = [page(crawl, n, body=BODY, text=text) for n, text in enumerate((TEXT, TEXT, OTHER, ""))]
    for work in [pages] if together else [[one] for one in pages]:
        store.commit(Commit(work))
    assert frames(store) == [TEXT.encode() + BODY]
    columns = kept(store)
    assert columns[0] == columns[1] == len(TEXT.encode())
    assert isinstance(columns[2], bytes)
    assert columns[3] == b""
    assert texts(store, crawl) == {0: TEXT, 1: TEXT, 2: OTHER, 3: ""}
    assert set(bodies(store, crawl).values()) == {BODY}


def test_a_frame_stays_for_other_pages_when_the_page_that_brought_it_changes(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, n, body=BODY, text=TEXT) for n in (1, 2)]))
    store.commit(Commit([page(crawl, 1, 2000, body=b"new", text=OTHER)]))
    assert texts(store, crawl) == {1: OTHER, 2: TEXT}
    store.commit(Commit([page(crawl, 2, 2000, body=b"new", text=OTHER)]))
    assert frames(store) == [OTHER.encode() + b"new"]
    assert texts(store, crawl) == {1: OTHER, 2: OTHER}


def test_a_refetch_with_the_same_body_keeps_the_frame_and_may_change_the_text(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT)]))
    store.commit(Commit([page(crawl, 1, 2000, body=BODY, text=TEXT)]))
    assert kept(store) == {1: len(TEXT)}
    store.commit(Commit([page(crawl, 1, 3000, body=BODY, text=OTHER)]))
    assert isinstance(kept(store)[1], bytes)
    assert texts(store, crawl) == {1: OTHER}
    store.commit(Commit([page(crawl, 1, 500, body=b"late", text="late")]))
    assert (texts(store, crawl), bodies(store, crawl)) == ({1: OTHER}, {1: BODY})
    assert frames(store) == [TEXT.encode() + BODY]


def test_the_frame_of_a_late_page_is_not_taken_for_that_of_a_page_with_the_same_body(
    store: SqliteStore, crawl: int
) -> None:
    """Two pages have one new body. The frame would be that of the first page, but this page is left
    out."""
    store.commit(Commit([page(crawl, 1, 2000, body=b"newer", text="newer")]))
    late = page(crawl, 1, 1000, body=BODY, text=OTHER)
    store.commit(Commit([late, page(crawl, 2, 1000, body=BODY, text=TEXT)]))
    assert texts(store, crawl) == {1: "newer", 2: TEXT}
    assert bodies(store, crawl) == {1: b"newer", 2: BODY}


def test_a_frame_is_shared_though_it_was_compressed_with_other_settings(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT)]))
    frame = zstandard.ZstdCompressor(level=19).compress(TEXT.encode() + BODY)
    db = sqlite3.connect(store.path)
    assert db.execute("UPDATE contents SET body = ? WHERE body <> ?", (frame, frame)).rowcount == 1
    db.commit()
    db.close()
    store.commit(Commit([page(crawl, 2, body=BODY, text=TEXT)]))
    assert kept(store) == {1: len(TEXT), 2: len(TEXT)}
    assert texts(store, crawl) == {1: TEXT, 2: TEXT}


def test_commits_of_every_size_are_written_whole(store: SqliteStore, crawl: int) -> None:
    number = 0
    for size in [*range(1, 20), 63, 64, 65, 130]:
        numbers = range(number, number + size)
        pages = [page(crawl, n, body=b"%d" % n, text=str(n)) for n in numbers]
        tries = [attempt(crawl, n) for n in numbers]
        store.commit(Commit(pages, tries, [final(crawl, -n - 1) for n in numbers]))
        store.commit(Commit([page(crawl, n, 2000, body=b"%d" % n, text=str(n)) for n in numbers]))
        number += size
    assert texts(store, crawl) == {n: str(n) for n in range(number)}
    assert bodies(store, crawl) == {n: b"%d" % n for n in range(number)}
    counts = store.counts(crawl)
    assert (counts["pages"], counts["attempts"], counts["dead"]) == (number,) * 3
    check_uses(store, crawl)


def test_crawls_share_no_frames(store: SqliteStore, crawl: int) -> None:
    other = store.put_crawl("other", CrawlOptions(), []).id
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT), page(other, 1, body=BODY, text="")]))
    store.commit(Commit([page(other, 2, body=BODY, text=OTHER)]))
    store.delete_crawl(crawl)
    assert texts(store, other) == {1: "", 2: OTHER}
    assert frames(store) == [BODY]


def test_a_page_whose_frame_was_lost_is_read_without_its_text(
    store: SqliteStore, crawl: int
) -> None:
    found = links("http://example.org/2")
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT, links=found)]))
    db = sqlite3.connect(store.path)
    db.execute("DELETE FROM contents")
    db.commit()
    db.close()
    with pytest.raises(BodyAway, match=r"http://example\.org/1"):
        store.page(crawl, 1)
    stored = store.page(crawl, 1, detail="text")
    assert stored is not None
    assert (stored.text, stored.links) == ("", found)


def test_the_text_of_a_large_page_is_read_without_the_rest_of_its_frame(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=bytes(5_000_000), text=TEXT)]))
    db = sqlite3.connect(store.path)
    db.execute("UPDATE contents SET body = substr(body, 1, length(body) - 10)")
    db.commit()
    db.close()
    stored = store.page(crawl, 1, detail="text")
    assert stored is not None
    assert (stored.text, stored.body_bytes) == (TEXT, 5_000_000)
    with pytest.raises(BodyAway, match="damaged"):
        store.page(crawl, 1)


def damage(store: SqliteStore) -> None:
    """Make every frame unreadable, as a bad sector does."""
    db = sqlite3.connect(store.path)
    assert db.execute("UPDATE contents SET body = zeroblob(length(body))").rowcount > 0
    db.commit()
    db.close()


def test_a_page_is_committed_though_the_stored_frame_of_its_body_is_damaged(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT)]))
    damage(store)
    again = page(crawl, 1, 2000, body=BODY, text=TEXT)
    store.commit(Commit([again, page(crawl, 2, body=BODY, text=TEXT), page(crawl, 3, text=OTHER)]))
    found = {one.fingerprint: one.text for _, one in store.pages(crawl, detail="text")}
    assert found == {1: TEXT, 2: TEXT, 3: OTHER}


def test_a_page_is_committed_though_its_stored_body_was_lost(
    store: SqliteStore, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT)]))
    db = sqlite3.connect(store.path)
    db.execute("DELETE FROM bodies")
    db.commit()
    db.close()
    lost = {(crawl, BODY[:16]): -1}
    try:
        assert store._write(lambda db: contents.count(db, lost, {})) == set()
    except contents.Vanished:
        pytest.fail("it is asked for, though its last page goes")
    store.commit(Commit([page(crawl, 1, 2000, body=b"another", text=OTHER)]))
    stored = store.page(crawl, 1, detail="body")
    assert stored is not None
    assert (stored.body, stored.text) == (b"another", OTHER)


def test_lists_and_exports_go_on_past_pages_whose_frames_are_damaged(
    store: SqliteStore, crawl: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = links("http://example.org/2")
    store.commit(Commit([page(crawl, 1, body=BODY, text=TEXT, links=found)]))
    damage(store)
    store.commit(Commit([page(crawl, 2, body=b"2", text=OTHER)]))
    listed = {one.fingerprint: one for _, one in store.pages(crawl, detail="text")}
    assert {number: one.text for number, one in listed.items()} == {1: "", 2: OTHER}
    assert listed[1].links == found
    told = capsys.readouterr().err
    assert "text lost" in told
    assert "http://example.org/1" in told
    assert "http://example.org/2" not in told
    with pytest.raises(BodyAway, match=r"damaged.*http://example\.org/1"):
        store.page(crawl, 1)

    out = io.BytesIO()
    position = export(store, Wanted(crawl=store.crawl(crawl)), Jsonl(bodies=True), out)
    assert (position.pages, position.no_body) == (2, 1)
    assert [json.loads(line)["text"] for line in out.getvalue().splitlines()] == ["", OTHER]


def test_a_text_of_which_a_part_is_lost_is_read_as_lost(store: SqliteStore, crawl: int) -> None:
    text = "".join(map(str, range(60_000)))
    store.commit(Commit([page(crawl, 1, body=BODY, text=text)]))
    db = sqlite3.connect(store.path)
    db.execute("UPDATE contents SET body = substr(body, 1, length(body) * 9 / 10)")
    db.commit()
    db.close()
    stored = store.page(crawl, 1, detail="text")
    assert stored is not None
    assert stored.text == ""
