"""Databases of every version since 0.1.0, opened by this one; and two versions on one file."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Admission, Commit, PageFilter, Stamp
from greencrawl.store.migrations import Applied, Migration, load, pending
from greencrawl.store.sqlite.migrations import FOLDER, SqliteUpgrade, applied, prepare
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.sqlite.tables import lists
from tests.support import old_store
from tests.support.body_uses import check_uses
from tests.support.old_store import (
    FIRST,
    GONE,
    NEWS,
    OldProcess,
    create,
    later_version,
    schema_of,
    url,
)
from tests.support.store_content import MAIN, SPANS, TEXT
from tests.support.store_records import attempt, digest, final, page

LAST = load(FOLDER)[-1].number
BODIES = {1: b"one " * 50, 2: b"two " * 50, 3: b"one " * 50, 4: b"", 5: b"second"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


def numbers(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    found = sorted(applied(db))
    db.close()
    return found


def change(path: Path, sql: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(sql).rowcount != 0
    db.close()


def check(store: SqliteStore) -> None:
    """Check that all rows that version 0.1.0 wrote are read correctly."""
    assert store.clock() == Stamp(1, {"n0": 4})
    assert store.frontier() == old_store.IDENTITY
    assert [(c.id, c.name, c.roots) for c in store.crawls()] == [(NEWS, "news", ("example.org",))]
    for number, body in BODIES.items():
        stored = store.page(NEWS, number)
        assert stored is not None
        assert (stored.url, stored.body, stored.digest) == (url(number), body, hashed(body))
        assert (stored.title, stored.headers) == (f"title {stored.fetched_ms}", {"a": "b"})
        assert stored.text == (f"text {number}" if body else "")
        assert stored.main is None, "nothing was told then"
        latest = store.history(NEWS, number)[0]
        assert (latest.digest, latest.body_bytes) == (hashed(body), len(body))
    assert {one.fingerprint: one.body for _, one in store.pages(NEWS, detail="body")} == BODIES
    texts = {one.fingerprint: one.text for _, one in store.pages(NEWS, detail="text")}
    assert texts == {number: f"text {number}" if body else "" for number, body in BODIES.items()}
    assert [(v.fetched_ms, v.digest, v.changed) for v in store.history(NEWS, 5)] == [
        (2000, digest(b"second"), True),
        (1000, digest(b"first"), True),
    ]
    first = store.page(NEWS, 1, detail="text")
    assert first is not None
    assert [link.url for link in first.links] == ["http://a/"]
    fifth = store.page(NEWS, 5, detail="text")
    assert fifth is not None
    assert fifth.fields == {"price": 3}
    assert [one.at_ms for one in store.attempts(NEWS, 1)] == [2000, 1000]
    dead = store.final(NEWS, 9)
    assert dead is not None
    assert (dead.url, dead.state, dead.detail) == (url(9), "dead", "after 5 tries")
    assert [(b.id, b.urls, b.force) for b in store.pending_seeds()] == [
        (1, (Admission("http://s/"),), True)
    ]
    assert store.blocks(0) == [("a.org", 5000, "429")]
    assert store.delays() == {"a.org": 1500}
    assert list(store.debts()) == ["n0"]
    assert [row.item.url for row in store.overflow(NEWS, 7, "a.org", 5)] == ["http://a.org/50"]
    store.free_overflow(7, since=2)
    assert [row.item.url for row in store.overflow(NEWS, 7, "a.org", 5)] == ["http://a.org/50"]
    store.free_overflow(7, since=1)
    freed = [row.item.url for row in store.overflow(NEWS, 7, "a.org", 5)]
    assert freed == ["http://a.org/50", "http://a.org/51"]
    assert [(one.crawl, one.host) for one in store.purges()] == [("gone", ""), ("news", "a.org")]


def hashed(body: bytes) -> bytes:
    return digest(body) if body else b""


@pytest.fixture(params=["alone", "beside another"])
def other(request: pytest.FixtureRequest) -> Iterator[list[OldProcess]]:
    """Return whether an old process has the file open during the upgrade."""
    opened: list[OldProcess] = []
    if request.param != "alone":
        opened.append(None)  # type: ignore[arg-type]
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
def test_a_database_of_each_version_is_upgraded_and_reads_right(
    path: Path, version: int, other: list[OldProcess]
) -> None:
    create(path, version)
    other[:] = [OldProcess(path) for _ in other]
    store = SqliteStore(path)
    assert numbers(path) == list(range(1, LAST + 1))
    check(store)

    store.commit(
        Commit(
            [
                page(1, 1, 3000, body=b"new"),
                page(1, 2, 3000, body=b"two " * 50),
                page(1, 3, 500, body=b"late"),
                page(1, 4, 3000, body=b"new"),
                page(1, 9, 3000),
            ],
            [attempt(1, 1, 3000)],
            [final(1, 5, 4000, "gone")],
        )
    )
    bodies = {1: b"new", 2: b"two " * 50, 3: b"one " * 50, 4: b"new", 5: b"second"}
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
    assert [(purge.crawl, purge.host) for purge in store.purges()] == [("news", "a.org")]
    check_uses(store, NEWS)
    store.close()


def test_a_database_of_0_1_0_gets_the_schema_and_the_records_of_a_new_one(
    path: Path, tmp_path: Path
) -> None:
    create(path)
    SqliteStore(path).close()
    new = tmp_path / "new.sqlite"
    SqliteStore(new).close()
    assert schema_of(path) == schema_of(new)


def test_a_page_that_an_older_process_has_replaced_has_no_main_text(path: Path) -> None:
    create(path)
    old = OldProcess(path)
    store = SqliteStore(path)
    store.commit(Commit([page(NEWS, 1, 2000, text=TEXT, spans=SPANS)]))
    told = store.page(NEWS, 1)
    assert told is not None
    assert told.main == MAIN
    old.put_page(NEWS, 1, 2_000_000_000_000, b"new")
    old.close()
    found = store.page(NEWS, 1)
    assert found is not None
    assert (found.text, found.main) == ("text 2000000000000", None)
    store.close()


def test_old_and_new_processes_write_on_side_by_side_and_read_each_others_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(path)
    old = OldProcess(path)
    old.put_page(NEWS, 11, 1000, b"old " * 400, "http://a/")
    new = SqliteStore(path)
    new.delete_crawl(GONE)

    new.commit(
        Commit(
            [
                page(NEWS, 11, 2000, body=b"new " * 400, text="words", links=[Admission("http://b/")]),
                page(NEWS, 12, 1000, body=b"same" * 400),
                page(NEWS, 13, 1000, body=b"same" * 400),
            ]
        )
    )  # fmt: skip
    seen = old.page(NEWS, 11)
    assert (seen["body"], seen["fetched_ms"], seen["text"]) == (b"new " * 400, 2000, b"words")
    assert seen["links"] == {"http://a/", "http://b/"}
    assert seen["digest"] == digest(b"new " * 400)
    assert [old.page(NEWS, n)["body"] for n in (12, 13)] == [b"same" * 400] * 2

    old.put_page(NEWS, 11, 3000, b"newer" * 400, "http://c/")
    stored = new.page(NEWS, 11)
    assert stored is not None
    assert (stored.body, stored.digest) == (b"newer" * 400, digest(b"newer" * 400))
    assert stored.text == "text 3000"
    assert {link.url for link in stored.links} == {"http://a/", "http://b/", "http://c/"}
    assert [v.fetched_ms for v in new.history(NEWS, 11)] == [3000, 2000, 1000]
    new.commit(Commit([page(NEWS, 11, 4000, body=b"newer" * 400)]))
    assert [(v.fetched_ms, v.changed) for v in new.history(NEWS, 11)] == [
        (4000, False),
        (3000, True),
        (2000, True),
        (1000, True),
    ]
    assert old.page(NEWS, 11)["body"] == b"newer" * 400
    check_uses(new, NEWS)

    monkeypatch.setattr(lists, "WINDOW", 1)
    for host, found in (("example.org", {1, 2, 3, 4, 5, 11, 12, 13}), ("other.org", set())):
        wanted = PageFilter(host=host)
        assert {one.fingerprint for _, one in new.pages(NEWS, wanted)} == found
    old.close()
    new.close()


def test_a_process_finishes_the_upgrade_only_if_no_older_process_is_there(
    path: Path, tmp_path: Path
) -> None:
    create(path)
    newer = later_version(tmp_path / "newer")
    old = OldProcess(path)
    prepare(path, newer)
    assert numbers(path)[-1] == 9001
    assert [one.number for one in SqliteUpgrade(path, newer).pending()] == [9002]
    old.close()
    prepare(path, newer)
    assert numbers(path)[-2:] == [9001, 9002]


@pytest.mark.parametrize(
    "look",
    [["pages"], ["export", "--format", "jsonl"], ["status"], ["explain", "http://a/"], ["dead"]],
)
def test_commands_that_only_read_change_no_schema(
    path: Path, monkeypatch: pytest.MonkeyPatch, look: list[str]
) -> None:
    for name in ("BROKER", "STORE", "BODIES"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    create(path)
    command = [*look, "--data", str(path.parent)]
    before = schema_of(path)
    assert main(command) != 0, "tables that this version reads are not there"
    assert schema_of(path) == before
    SqliteUpgrade(path).apply(post=False, told=lambda _: None)
    before = schema_of(path)
    assert main(command) == 0
    assert schema_of(path) == before


def dump(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    found = list(db.iterdump())
    db.close()
    return found


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return why writers, readers and the upgrade refuse a file; they change no row."""
    before = dump(path)
    with pytest.raises(InvalidConfig) as told:
        SqliteStore(path)
    for command in (["migrate", "--dry-run"], ["migrate", "--post"], ["pages"]):
        assert main([*command, "--data", str(path.parent)]) != 0
        out, error = capsys.readouterr()
        assert str(told.value)[:60] in " ".join(error.split())
        assert "would be applied" not in out
    assert dump(path) == before
    return str(told.value)


@pytest.mark.parametrize(
    ("left", "missing"),
    [("number <= 4", "0005_pre_bodies"), ("number NOT IN (6, 7)", "0006_post_apart")],
)
def test_a_database_from_before_0_1_0_is_refused_with_the_version_to_start_first(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    left: str,
    missing: str,
) -> None:
    monkeypatch.delenv("GREENCRAWL_STORE", raising=False)
    create(path)
    change(path, f"DELETE FROM migrations WHERE NOT ({left})")
    told = refused(path, capsys)
    assert f"before 0.1.0 (migration {missing} is missing)" in told
    assert "`greencrawl migrate --post` of version 0.1.0 once" in told


def test_pages_in_the_form_of_a_version_before_0_1_0_are_refused_and_not_misread(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GREENCRAWL_STORE", raising=False)
    create(path)
    change(path, "UPDATE pages SET content = '18446744073709551615', body = x'28' WHERE id = 3")
    SqliteUpgrade(path).apply(post=True, told=lambda _: None)
    assert "has pages that a version before 0.1.0 stored" in refused(path, capsys)


def test_an_upgrade_of_another_programs_file_is_refused_before_it_begins(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GREENCRAWL_STORE", raising=False)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE invoices (n)")
    db.close()
    assert "another program's database (it has a table 'invoices')" in refused(path, capsys)


# -- the rules, whatever the database


def made(number: int, name: str) -> Migration:
    return Migration(number, name, "", {number: Applied(name, f"sum {number}")})


AVAILABLE = [made(1, "content"), made(2, "pre_more"), made(3, "post_more"), made(4, "pre_last")]
ALL = {number: one for file in AVAILABLE for number, one in file.records.items()}
BASE = [Migration(2, "base", "", {1: ALL[1], 2: ALL[2]}), *AVAILABLE[2:]]


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


def test_a_base_is_applied_to_an_empty_database_and_stands_for_its_files_in_others() -> None:
    assert pending(BASE, {}, post=False) == BASE
    assert [one.number for one in pending(BASE, {1: ALL[1], 2: ALL[2]}, post=False)] == [4]
    assert pending(BASE, ALL) == []
    for part in ({1: ALL[1]}, {2: ALL[2], 3: ALL[3]}, {7: Applied("pre_later", "x")}):
        with pytest.raises(InvalidConfig, match=r"before 0\.1\.0 \(migration 000\d_"):
            pending(BASE, part)
    with pytest.raises(InvalidConfig, match="0001_content was edited"):
        pending(BASE, ALL | {1: Applied("content", "other")})


def test_migrations_that_were_shipped_before_are_unchanged(path: Path) -> None:
    """The migrations of the commit before the base, which took over stores of version 0.1.0."""
    known = {
        9: "4248413b", 10: "16f9bb16", 11: "701b433c",
        12: "e5bc0728", 13: "ac104856", 14: "64afe738",
    }  # fmt: skip
    shipped = {n: one.checksum[:8] for file in load(FOLDER) for n, one in file.records.items()}
    assert shipped.items() >= known.items()
    create(path)
    db = sqlite3.connect(path)
    assert load(FOLDER)[0].records == applied(db)
    db.close()
    later = load(FOLDER)[1:]
    assert all(one.name.startswith(("pre_", "post_")) for one in later)


def test_the_upgrade_of_a_missing_file_creates_it_only_when_applied(path: Path) -> None:
    upgrade = SqliteUpgrade(path)
    assert upgrade.pending() == load(FOLDER)
    assert not path.exists()
    told: list[Migration] = []
    assert upgrade.apply(post=False, told=told.append) == len(load(FOLDER))
    assert [one.number for one in told] == list(range(FIRST, LAST + 1))
    shutil.rmtree(path.parent)
