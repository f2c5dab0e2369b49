"""Databases of every earlier version, opened by this one; and both versions on one file at once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from greencrawl.cli.main import main
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Admission, Commit, CrawlOptions, PageFilter, Stamp
from greencrawl.store.migrations import Applied, Migration, load, pending
from greencrawl.store.sqlite.migrations import FOLDER, SqliteUpgrade, applied
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.sqlite.tables import lists
from greencrawl.store.sqlite.tables.contents import OWN_BODIES
from tests.support import old_store
from tests.support.old_store import OldProcess, create, url
from tests.support.store_content import MAIN, SPANS, TEXT
from tests.support.store_records import attempt, digest, final, page

LAST = len(load(FOLDER))
POST = [one.number for one in load(FOLDER) if one.post]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


def numbers(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    found = sorted(applied(db))
    db.close()
    return found


def fill(path: Path, version: int) -> None:
    """Rows of all kinds that ``version`` knew."""
    old = OldProcess(path)
    old.db.execute("UPDATE clock SET value = 7")
    identity = msgspec.json.encode(old_store.IDENTITY).decode()
    old.db.execute("INSERT INTO frontier (only, identity) VALUES (1, ?)", (identity,))
    assert old.put_crawl("news") == 1
    assert old.put_crawl("gone", deleted=True) == 2
    old.put_page(1, 1, 1000, b"one" * 500, "http://a/")
    old.put_page(1, 2, 1000, b"two" * 500, content="18446744073709551615")
    old.put_page(1, 3, 1000, b"one" * 500)
    old.put_page(1, 4, 1000, b"", content=77)
    old.put_page(1, 5, 1000, b"five", content=-5)
    old.put_page(2, 1, 1000, b"of a deleted crawl")
    for at_ms in (1000, 2000):
        old.put_attempt(1, 1, at_ms)
    old.put_final(1, 9, 1000)
    seeds = old_store.pack(msgspec.msgpack.encode([Admission("http://s/")]))
    old.db.execute(
        "INSERT INTO seed_batches (crawl, stamp, forced, urls) VALUES (1, 7, 1, ?)", (seeds,)
    )
    old.db.execute("INSERT INTO blocks VALUES ('a.org', 5000, '429')")
    if version >= 2:
        old.db.execute("INSERT INTO nodes VALUES ('n0', 4)")
    if version >= 3:
        put = (
            "INSERT INTO overflow (crawl, fingerprint, partition, level, depth, redirects, queued, "
            "host, url) VALUES (1, {0}, 7, 3, 1, 0, {1}, 'a.org', 'http://a.org/{0}')"
        )
        old.db.execute(put.format(50, 0))
        old.db.execute(put.format(51, 4))  # queued, under epoch 4
    if version >= 4:
        old.db.execute("INSERT INTO purges (crawl, asked_ms) VALUES (2, 5)")
        old.db.execute("INSERT INTO purges (crawl, host, asked_ms) VALUES (1, 'a.org', 6)")
    if version >= 5:
        noted = str(int.from_bytes(digest(b"noted" * 100), "big"))
        old.put_page(1, 6, 2000, b"noted" * 100, content=noted)
        columns = "crawl, fingerprint, fetched_ms, status, body_bytes, digest"
        values = (1, 6, 1000, 203, 5, digest(b"first"))
        old.db.execute(f"INSERT INTO versions ({columns}) VALUES (?, ?, ?, ?, ?, ?)", values)
    old.close()


def check(store: SqliteStore, version: int) -> None:
    """Check that all rows of :func:`fill` are read correctly."""
    assert store.clock() == Stamp(7, {"n0": 4} if version >= 2 else {})
    assert store.frontier() == old_store.IDENTITY
    assert [(c.id, c.name, c.roots) for c in store.crawls()] == [(1, "news", ("example.org",))]
    bodies = {1: b"one" * 500, 2: b"two" * 500, 3: b"one" * 500, 4: b"", 5: b"five"}
    if version >= 5:
        bodies[6] = b"noted" * 100
    for number, body in bodies.items():
        stored = store.page(1, number)
        assert stored is not None
        assert (stored.url, stored.body, stored.digest) == (url(number), body, hashed(body))
        assert stored.headers == {"a": "b"}
        assert stored.text == f"text {stored.fetched_ms}"
        assert stored.main is None, "nothing was told then"
        latest = store.history(1, number)[0]
        assert (latest.digest, latest.body_bytes) == (hashed(body), len(body))
    assert {one.fingerprint: one.body for _, one in store.pages(1, detail="body")} == bodies
    first = store.page(1, 1, detail="text")
    assert first is not None
    assert [link.url for link in first.links] == ["http://a/"]
    assert [one.at_ms for one in store.attempts(1, 1)] == [2000, 1000]
    dead = store.final(1, 9)
    assert dead is not None
    assert (dead.url, dead.state, dead.detail) == (url(9), "dead", "gave up")
    assert [(b.id, b.urls, b.force) for b in store.pending_seeds()] == [
        (1, (Admission("http://s/"),), True)
    ]
    assert store.blocks(0) == [("a.org", 5000, "429")]
    waiting = [row.item.url for row in store.overflow(1, 7, "a.org", 5)]
    assert waiting == (["http://a.org/50"] if version >= 3 else [])
    store.free_overflow(7, since=store.clock().clock)  # it is unknown when it was queued
    freed = [row.item.url for row in store.overflow(1, 7, "a.org", 5)]
    assert freed == (["http://a.org/50", "http://a.org/51"] if version >= 3 else [])
    asked = [(purge.crawl, purge.host) for purge in store.purges()]
    assert asked == [("gone", ""), ("news", "a.org")][: 2 if version >= 4 else 1]
    if version >= 5:
        assert [(v.fetched_ms, v.status, v.changed) for v in store.history(1, 6)] == [
            (2000, 200, True),
            (1000, 203, True),
        ]


def test_a_page_that_an_older_process_has_replaced_has_no_main_text(path: Path) -> None:
    create(path, 4)
    old = OldProcess(path)
    store = SqliteStore(path)
    crawl = old.put_crawl("news")
    store.commit(Commit([page(crawl, 1, text=TEXT, spans=SPANS)]))
    told = store.page(crawl, 1)
    assert told is not None
    assert told.main == MAIN
    old.put_page(crawl, 1, 2_000_000_000_000, b"new")
    old.close()
    found = store.page(crawl, 1)
    assert found is not None
    assert (found.text, found.main) == ("text 2000000000000", None)
    store.close()


def hashed(body: bytes) -> bytes:
    return digest(body) if body else b""


@pytest.fixture(params=["alone", "beside another"])
def other(request: pytest.FixtureRequest, path: Path) -> Iterator[list[OldProcess]]:
    """Whether an old process has the file open during the upgrade."""
    opened: list[OldProcess] = []
    if request.param != "alone":
        opened.append(None)  # type: ignore[arg-type]
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_a_database_of_each_version_is_upgraded_and_reads_right(
    path: Path, version: int, other: list[OldProcess]
) -> None:
    create(path, version)
    fill(path, min(version, 5))
    other[:] = [OldProcess(path) for _ in other]
    store = SqliteStore(path)
    behind = [number for number in POST if number > version] if other else []
    assert numbers(path) == [n for n in range(1, LAST + 1) if n not in behind]
    check(store, version)

    store.commit(
        Commit(
            [
                page(1, 1, 3000, body=b"new"),
                page(1, 2, 3000, body=b"two" * 500),
                page(1, 3, 500, body=b"late"),
                page(1, 4, 3000, body=b"new"),
                page(1, 9, 3000),
            ],
            [attempt(1, 1, 3000)],
            [final(1, 5, 4000, "gone")],
        )
    )
    bodies = {1: b"new", 2: b"two" * 500, 3: b"one" * 500, 4: b"new", 5: b"five"}
    for number, body in bodies.items():
        stored = store.page(1, number)
        assert stored is not None
        assert (stored.body, stored.digest) == (body, hashed(body))
    assert [(v.fetched_ms, v.changed) for v in store.history(1, 1)] == [(3000, True), (1000, True)]
    assert [(v.fetched_ms, v.changed) for v in store.history(1, 2)] == [(3000, False), (1000, True)]
    assert [v.fetched_ms for v in store.history(1, 3)] == [1000, 500]
    linked = store.page(1, 1)
    assert linked is not None
    assert [link.url for link in linked.links] == ["http://a/"]
    assert store.final(1, 9) is None
    assert store.counts(1)["attempts"] == 3
    (gone, *_) = store.purges()
    while store.purge_step(gone):
        pass
    assert [(purge.crawl, purge.host) for purge in store.purges()] == (
        [("news", "a.org")] if version >= 4 else []
    )
    store.close()


def test_old_and_new_processes_write_on_side_by_side_and_read_each_others_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(path, 4)
    old = OldProcess(path)
    crawl = old.put_crawl("news")
    old.put_page(crawl, 1, 1000, b"old " * 400, "http://a/")
    new = SqliteStore(path)
    assert not set(POST) & set(numbers(path))

    new.commit(
        Commit(
            [
                page(crawl, 1, 2000, body=b"new " * 400, text="words", links=[Admission("http://b/")]),
                page(crawl, 2, 1000, body=b"same" * 400),
                page(crawl, 3, 1000, body=b"same" * 400),
            ]
        )
    )  # fmt: skip
    seen = old.page(crawl, 1)
    assert (seen["body"], seen["fetched_ms"], seen["text"]) == (b"new " * 400, 2000, b"words")
    assert seen["links"] == {"http://a/", "http://b/"}
    assert isinstance(seen["content"], int)
    assert [old.page(crawl, n)["body"] for n in (2, 3)] == [b"same" * 400] * 2

    old.put_page(crawl, 1, 3000, b"newer" * 400, "http://c/")
    old.put_page(crawl, 2, 500, b"late")
    stored = new.page(crawl, 1)
    assert stored is not None
    assert (stored.body, stored.digest) == (b"newer" * 400, digest(b"newer" * 400))
    assert {link.url for link in stored.links} == {"http://a/", "http://b/", "http://c/"}
    assert [v.fetched_ms for v in new.history(crawl, 1)] == [3000, 1000]
    new.commit(Commit([page(crawl, 1, 4000, body=b"newer" * 400)]))
    assert [(v.fetched_ms, v.changed) for v in new.history(crawl, 1)] == [
        (4000, False),
        (3000, True),
        (1000, True),
    ]
    assert old.page(crawl, 1)["body"] == b"newer" * 400

    monkeypatch.setattr(lists, "WINDOW", 1)
    for host, found in (("example.org", {1, 2, 3}), ("other.org", set())):
        wanted = PageFilter(host=host)
        assert {one.fingerprint for _, one in new.pages(crawl, wanted)} == found
    monkeypatch.undo()

    old.close()
    upgrade = SqliteUpgrade(path)
    assert [one.number for one in upgrade.pending()] == POST
    assert upgrade.apply(post=True, told=lambda _: None) == len(POST)
    new.commit(Commit([page(crawl, 4, 1000, body=b"same" * 400), page(crawl, 2, 5000, body=b"2")]))
    bodies = {one.fingerprint: one.body for _, one in new.pages(crawl, detail="body")}
    assert bodies == {1: b"newer" * 400, 2: b"2", 3: b"same" * 400, 4: b"same" * 400}
    new.close()


def test_texts_stay_in_their_rows_while_an_older_process_reads_them_there(path: Path) -> None:
    create(path, OWN_BODIES)
    old = OldProcess(path)
    store = SqliteStore(path)
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    store.commit(Commit([page(crawl, 1, body=b"same" * 99, text="before" * 99)]))
    sql = "SELECT text, contents.body FROM pages, contents WHERE fingerprint = 1"
    text, body = old.db.execute(sql).fetchone()
    assert (old_store.unpack(text), old_store.unpack(body)) == (b"before" * 99, b"same" * 99)

    old.close()
    assert SqliteUpgrade(path).apply(post=True, told=lambda _: None) == 1
    more = [(2, b"same" * 99, "before" * 99), (3, b"other" * 99, "after" * 99)]
    store.commit(Commit([page(crawl, n, body=body, text=text) for n, body, text in more]))
    for detail in ("text", "body"):
        found = {one.fingerprint: one.text for _, one in store.pages(crawl, detail=detail)}
        assert found == {1: "before" * 99, 2: "before" * 99, 3: "after" * 99}
    bodies = {one.fingerprint: one.body for _, one in store.pages(crawl, detail="body")}
    assert bodies == {1: b"same" * 99, 2: b"same" * 99, 3: b"other" * 99}
    store.close()
    db = sqlite3.connect(path)
    kept = db.execute("SELECT typeof(text) FROM pages ORDER BY fingerprint").fetchall()
    assert kept == [("blob",), ("blob",), ("integer",)]
    db.close()


def test_a_process_finishes_the_upgrade_only_if_no_older_process_is_there(
    path: Path,
) -> None:
    create(path, 4)
    old = OldProcess(path)
    SqliteStore(path).close()
    assert not set(POST) & set(numbers(path))
    old.close()
    SqliteStore(path).close()
    assert numbers(path) == list(range(1, LAST + 1))


@pytest.mark.parametrize(
    "look",
    [["pages"], ["export", "--format", "jsonl"], ["status"], ["explain", "http://a/"], ["dead"]],
)
def test_commands_that_only_read_change_no_schema(
    path: Path, monkeypatch: pytest.MonkeyPatch, look: list[str]
) -> None:
    for name in ("BROKER", "STORE", "BODIES"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    create(path, 4)
    fill(path, 4)
    command = [*look, "--data", str(path.parent)]
    before = schema_of(path)
    assert main(command) != 0, "tables that this version reads are not there"
    assert schema_of(path) == before
    SqliteUpgrade(path).apply(post=False, told=lambda _: None)
    before = schema_of(path)
    assert main(command) == 0
    assert schema_of(path) == before
    assert not set(POST) & set(numbers(path))
    SqliteStore(path).close()
    assert set(POST) <= set(numbers(path)), "whoever writes does finish it"


def schema_of(path: Path) -> list[tuple[str, ...]]:
    db = sqlite3.connect(path)
    found = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    found += db.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()
    db.close()
    return found


def test_an_upgrade_of_another_programs_file_is_refused_before_it_begins(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GREENCRAWL_STORE", raising=False)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE invoices (n)")
    db.close()
    for command in (["migrate", "--dry-run"], ["migrate"], ["pages"]):
        assert main([*command, "--data", str(path.parent)]) != 0
        out, error = capsys.readouterr()
        assert "another program's database (it has a table 'invoices')" in error
        assert "would be applied" not in out


# -- the rules, whatever the database


def made(number: int, name: str) -> Migration:
    return Migration(number, name, "", f"sum {number}")


AVAILABLE = [made(1, "content"), made(2, "pre_more"), made(3, "post_more"), made(4, "pre_last")]
ALL = {one.number: Applied(one.name, one.checksum) for one in AVAILABLE}


def test_an_empty_database_gets_all_migrations_and_others_wait_with_post() -> None:
    assert pending(AVAILABLE, {}, post=False) == AVAILABLE
    first = {1: ALL[1]}
    assert [one.number for one in pending(AVAILABLE, first, post=False)] == [2, 4]
    assert [one.number for one in pending(AVAILABLE, first)] == [2, 3, 4]
    assert pending(AVAILABLE, ALL) == []


def test_pre_migrations_of_a_later_version_are_accepted_and_post_migrations_refused() -> None:
    assert pending(AVAILABLE, ALL | {7: Applied("pre_later", "x")}) == []
    for name in ("post_later", "later"):
        with pytest.raises(InvalidConfig, match=f"newer version .*0007_{name}"):
            pending(AVAILABLE, ALL | {7: Applied(name, "x")})
    with pytest.raises(InvalidConfig, match="0002_pre_more was edited"):
        pending(AVAILABLE, ALL | {2: Applied("pre_more", "other")})


def test_a_store_opens_beside_a_later_pre_migration_but_not_a_post_migration(path: Path) -> None:
    SqliteStore(path).close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("INSERT INTO migrations VALUES (9001, 'pre_future', 'x', 0)")
    raw.execute("CREATE TABLE future (n)")
    store = SqliteStore(path)
    assert store.tick() == 2
    store.close()
    raw.execute("INSERT INTO migrations VALUES (9002, 'post_future', 'x', 0)")
    raw.close()
    with pytest.raises(InvalidConfig, match=r"newer version .*9002_post_future"):
        SqliteStore(path)


def test_migrations_that_were_shipped_before_are_unchanged() -> None:
    known = {
        "0001_content": "597ce3eaeecfdac0",
        "0002_epochs": "6c523e04aaaec07b",
        "0003_overflow": "5ad3e30bc88af19f",
        "0004_purges": "8d9660216828aecc",
    }
    shipped = {str(one): one.checksum[:16] for one in load(FOLDER)}
    assert shipped.items() >= known.items()
    later = [one.name for one in load(FOLDER) if str(one) not in known]
    assert all(name.startswith(("pre_", "post_")) for name in later)


def test_the_upgrade_of_a_missing_file_creates_it_only_when_applied(path: Path) -> None:
    upgrade = SqliteUpgrade(path)
    assert len(upgrade.pending()) == LAST
    assert not path.exists()
    told: list[Migration] = []
    assert upgrade.apply(post=False, told=told.append) == LAST
    assert [one.number for one in told] == list(range(1, LAST + 1))
    shutil.rmtree(path.parent)
