"""Export of the records that a hook found, as lines and as a table."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.records import Commit, Crawl, CrawlOptions, PageFilter
from greencrawl.store.export.items import (
    MOST_COLUMNS,
    ItemsCsv,
    ItemsJsonl,
    TooManyColumns,
    columns_of,
)
from greencrawl.store.sqlite.store import SqliteStore
from tests.store.export.test_formats import exported
from tests.store.export.test_resumable import export, killed_export
from tests.support.store_records import final, page

MOMENT = 1_772_366_400_250
SHOWN = "2026-03-01T12:00:00.250Z"


def encoded(*items: dict[str, Any]) -> bytes:
    return json.dumps(items, ensure_ascii=False).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "STORE", "BODIES"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    folder.mkdir()
    opened = SqliteStore(folder / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> Crawl:
    made = store.put_crawl("shop", CrawlOptions(), [])
    first = encoded(
        {"name": "茶, grün", "price": 3.2, "tags": ["a"]}, {"name": "=1+1", "_url": "x"}
    )
    third = encoded({"more": True, "name": None, "line": "a\r\nb"})
    store.commit(
        Commit(
            [
                page(made.id, 1, MOMENT, text="a text", items=first),
                page(made.id, 2, MOMENT),
                page(made.id, 3, MOMENT, items=third),
            ],
            finals=[final(made.id, 5)],
        )
    )  # fmt: skip
    return made


def test_each_record_is_a_line_of_jsonl_with_the_url_of_its_page(
    store: SqliteStore, crawl: Crawl
) -> None:
    data, position = exported(store, crawl, ItemsJsonl())
    assert [json.loads(line) for line in data.splitlines()] == [
        {
            "_url": "http://example.org/1", "_fetched": SHOWN, "name": "茶, grün", "price": 3.2,
            "tags": ["a"],
        },
        {"_url": "x", "_fetched": SHOWN, "name": "=1+1"},
        {
            "_url": "http://example.org/3", "_fetched": SHOWN, "more": True, "name": None,
            "line": "a\r\nb",
        },
    ]  # fmt: skip
    assert (position.pages, position.finals) == (2, 0)


@pytest.mark.parametrize("raw", [True, False])
def test_a_csv_of_records_has_a_column_for_each_name_in_any_record(
    store: SqliteStore, crawl: Crawl, raw: bool
) -> None:
    columns = columns_of(store, crawl.id, PageFilter())
    assert columns == ("_url", "_fetched", "name", "price", "tags", "more", "line")
    data, _ = exported(store, crawl, ItemsCsv(columns, raw=raw))
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    assert [[*row.values()] for row in rows] == [
        ["http://example.org/1", SHOWN, "茶, grün", "3.2", '["a"]', "", ""],
        ["x", SHOWN, "=1+1" if raw else "'=1+1", "", "", "", ""],
        ["http://example.org/3", SHOWN, "", "", "", "true", "a\r\nb"],
    ]


def test_records_with_too_many_names_are_refused_as_csv(store: SqliteStore, crawl: Crawl) -> None:
    wide = [{f"n{n}": n} for n in range(MOST_COLUMNS)]
    store.commit(Commit([page(crawl.id, 9, items=encoded(*wide))]))
    with pytest.raises(TooManyColumns, match="use --format jsonl"):
        columns_of(store, crawl.id, PageFilter())


def test_a_killed_export_goes_on_with_the_columns_that_it_began_with(
    store: SqliteStore, crawl: Crawl, folder: Path, tmp_path: Path
) -> None:
    some = [page(crawl.id, n, items=encoded({"name": f"tea {n}"})) for n in range(10, 400)]
    store.commit(Commit(some))
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    asked = ("--items", "--format", "csv")
    code, said = export(folder, *asked, "-o", whole)
    assert (code, said.split(":")[0]) == (0, "records of 392 pages")
    killed = killed_export(folder, *asked, "-o", out, fault="export.checkpoint:3")
    assert killed.returncode == -signal.SIGKILL
    store.commit(Commit([page(crawl.id, 500, items=encoded({"name": "last", "new": 1}))]))
    code, said = export(folder, *asked, "-o", out)
    assert code == 0
    assert "continuing after" in said
    last = b"http://example.org/500,1970-01-01T00:00:01.000Z,last,,,,\r\n"
    assert out.read_bytes() == whole.read_bytes() + last


def test_the_command_exports_records_and_refuses_options_that_do_not_fit(
    store: SqliteStore, crawl: Crawl, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for kind, first in (("jsonl", b'{"_url":'), ("csv", b"_url,_fetched,name,")):
        assert main(["export", "--items", "--format", kind, "--data", str(folder)]) == 0
        assert capfdbinary.readouterr().out.startswith(first)
    for other in (["--bodies"], ["--text", "main"], ["--format", "warc"]):
        assert main(["export", "--items", *other, "--data", str(folder)]) == 2
        assert b"--items is for jsonl and csv" in capfdbinary.readouterr().err


def test_csv_defuses_a_text_that_looks_like_a_negative_number_and_keeps_real_numbers() -> None:
    items = ItemsCsv(("n", "t"))
    made = items.page(page(1, 1, items=encoded({"n": -1.5, "t": "-1.5"})))
    assert made == b"-1.5,'-1.5\r\n"
