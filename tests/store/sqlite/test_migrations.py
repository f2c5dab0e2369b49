"""Migrations: once each, in order, whichever process comes first; and foreign databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import gevent
import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import CrawlOptions
from greencrawl.store.migrations import load, statements
from greencrawl.store.sqlite.connection import connect
from greencrawl.store.sqlite.migrations import FOLDER, migrate
from greencrawl.store.sqlite.store import SqliteStore
from tests.store.sqlite.test_processes import run

TRIGGER = """-- two tables; one of them sums
CREATE TABLE a (n INTEGER); -- a remark; with a semicolon
CREATE TABLE b (total INTEGER);
INSERT INTO b VALUES (0);
CREATE TRIGGER summed AFTER INSERT ON a BEGIN
    UPDATE b SET total = total + NEW.n;
    DELETE FROM a WHERE n = ';';
END;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "migrations"
    made.mkdir()
    (made / "0001_first.sql").write_text(TRIGGER)
    return made


def test_migrations_apply_once_in_order(path: Path, folder: Path) -> None:
    connection = connect(path, create=True)
    (folder / "0002_more.sql").write_text("ALTER TABLE a ADD COLUMN more TEXT;\n")
    (folder / "README.sql").write_text("not a migration")
    assert migrate(connection, folder) == 2
    assert migrate(connection, folder) == 0
    connection.execute("INSERT INTO a VALUES (3, ''), (4, '')")
    assert connection.execute("SELECT total FROM b").fetchone() == (7,)
    (folder / "0003_third.sql").write_text("DROP TABLE a;")
    assert migrate(connection, folder) == 1
    connection.close()


def test_processes_that_start_at_once_migrate_once(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from greencrawl.store.sqlite.store import SqliteStore\n"
        "print(SqliteStore(Path(sys.argv[1])).tick())"
    )
    starters = [run(code, path) for _ in range(6)]
    ticks = [int(starter.communicate(timeout=60)[0]) for starter in starters]
    assert sorted(ticks) == [2, 3, 4, 5, 6, 7]


def test_opening_an_old_database_again_keeps_its_content(path: Path) -> None:
    first = SqliteStore(path)
    made = first.put_crawl("a", CrawlOptions(), [])
    first.close()
    second = SqliteStore(path)
    assert second.crawls() == [made]
    second.close()


def test_a_database_of_a_newer_version_is_refused_untouched(path: Path) -> None:
    SqliteStore(path).close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("INSERT INTO migrations VALUES (9001, 'future', 'x', 0)")
    raw.close()
    with pytest.raises(InvalidConfig, match=r"newer version .*9001"):
        SqliteStore(path)


def test_an_edited_migration_is_refused(path: Path, folder: Path) -> None:
    connection = connect(path, create=True)
    migrate(connection, folder)
    (folder / "0001_first.sql").write_text(TRIGGER + "-- edited\n")
    with pytest.raises(InvalidConfig, match="0001_first was edited"):
        migrate(connection, folder)
    connection.close()


def test_another_programs_database_is_refused_untouched(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("CREATE TABLE invoices (n INTEGER)")
    raw.close()
    with pytest.raises(InvalidConfig, match=r"another program's database.*invoices"):
        SqliteStore(path)
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("invoices",)]
    raw.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path, folder: Path) -> None:
    connection = connect(path, create=True)
    (folder / "0002_wrong.sql").write_text("CREATE TABLE c (n);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, folder)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()


def test_a_script_splits_into_statements() -> None:
    found = list(statements(TRIGGER))
    assert len(found) == 4
    assert found[-1].endswith("END;")
    with pytest.raises(ValueError, match="no semicolon"):
        list(statements("CREATE TABLE a (n);\nCREATE TABLE b (n)"))


def test_shipped_migrations_are_numbered_without_gaps() -> None:
    base, *later = load(FOLDER)
    assert base.base
    assert list(base.records) == list(range(1, base.number + 1))
    first = base.number + 1
    assert [one.number for one in later] == list(range(first, first + len(later)))


def test_stores_opened_by_greenlets_at_once_do_not_block_each_other(path: Path) -> None:
    jobs = [gevent.spawn(SqliteStore, path) for _ in range(5)]
    gevent.joinall(jobs, timeout=20)
    stores = [job.get() for job in jobs]
    assert sorted(store.tick() for store in stores) == [2, 3, 4, 5, 6]
    for store in stores:
        store.close()
