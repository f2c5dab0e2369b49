"""The output of each format for a crawl, read back by other programs."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.records import Commit, Crawl, CrawlOptions, PageFilter
from greencrawl.store.export import formats
from greencrawl.store.export.formats import COLUMNS, Csv, Format, Jsonl, Warc
from greencrawl.store.export.resumable import Position, Wanted, export
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.archive import Archive, check
from tests.support.store_records import digest, final, page

TITLE = '新闻, "今日"\r\n=SUM(A1)'
TEXT = "两行\n第二行\0 😀"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> Crawl:
    options = CrawlOptions(user_agent="news/2", contact="https://me.example")
    made = store.put_crawl("news", options, [])
    store.commit(
        Commit(
            [
                page(made.id, 1, 1_772_366_400_250, title=TITLE, text=TEXT, body="新".encode(),
                     headers={"content-type": "text/html"}, fields={"价格": 9.5}, language="zh"),
                page(made.id, 2, status=302, final_url="http://example.org/新"),
                page(made.id, 3, body="新".encode(), text="\ud800"),
                page(made.id, 4, body=b"", digest=digest(b"a picture")),
            ],
            finals=[final(made.id, 5), final(made.id, 6, 2000, "gone")],
        )
    )  # fmt: skip
    return made


def exported(
    store: SqliteStore, crawl: Crawl, format_: Format, **wanted: Any
) -> tuple[bytes, Position]:
    out = io.BytesIO()
    position = export(store, Wanted(crawl=crawl, **wanted), format_, out)
    return out.getvalue(), position


def test_other_csv_readers_get_the_stored_values(store: SqliteStore, crawl: Crawl) -> None:
    data, position = exported(store, crawl, Csv())
    assert data.startswith(",".join(COLUMNS).encode() + b"\r\n")
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    assert len(rows) == position.rows == 6
    assert rows[0] == {
        "url": "http://example.org/1",
        "final_url": "http://example.org/1",
        "state": "fetched",
        "kind": "",
        "status": "200",
        "fetched": "2026-03-01T12:00:00.250Z",
        "elapsed_ms": "0",
        "depth": "0",
        "content_type": "text/html",
        "truncated": "false",
        "language": "zh",
        "encoding": "",
        "title": TITLE,
        "detail": "",
        "fields": '{"价格":9.5}',
        "text": TEXT,
        "canonical": "",
        "directives": "",
    }
    assert rows[1]["final_url"] == "http://example.org/新"
    assert rows[2]["text"] == "�"
    last = rows[-1]
    assert (last["state"], last["kind"], last["detail"]) == ("gone", "timeout", "after 5 tries")
    assert last["fetched"] == "1970-01-01T00:00:02.000Z"


@pytest.mark.parametrize("title", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "a=", ""])
def test_csv_cells_that_begin_a_formula_are_defused_unless_raw(
    store: SqliteStore, title: str
) -> None:
    crawl = store.put_crawl("evil", CrawlOptions(), [])
    store.commit(Commit([page(crawl.id, 1, title=title, text=title, body=b"\xfb\xef")]))
    written = {}
    for raw in (True, False):
        data, _ = exported(store, crawl, Csv(bodies=True, raw=raw))
        written[raw] = next(csv.DictReader(io.StringIO(data.decode(), newline="")))
    safe = title if title in ("a=", "") else f"'{title}"
    assert (written[True]["title"], written[True]["text"]) == (title, title)
    assert (written[False]["title"], written[False]["text"]) == (safe, safe)
    assert base64.b64decode(written[False]["body"]) == b"\xfb\xef"


def test_csv_has_bodies_in_a_last_column_when_asked_for(store: SqliteStore, crawl: Crawl) -> None:
    data, position = exported(store, crawl, Csv(bodies=True), pages_only=True)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    assert list(rows[0]) == [*COLUMNS, "body"]
    assert base64.b64decode(rows[0]["body"]).decode() == "新"
    assert (position.pages, position.finals, position.no_body) == (4, 0, 1)


def test_jsonl_says_which_bodies_were_not_kept(store: SqliteStore, crawl: Crawl) -> None:
    data, position = exported(store, crawl, Jsonl(bodies=True))
    lines = [json.loads(line) for line in data.splitlines()]
    bodies = [line["body"] for line in lines[:4]]
    assert [body and base64.b64decode(body).decode() for body in bodies] == ["新", "", "新", None]
    assert [line["state"] for line in lines[4:]] == ["dead", "gone"]
    assert lines[0]["title"] == TITLE
    assert position.no_body == 1


@pytest.mark.parametrize("name", ["out.warc.gz", "out.warc"])
def test_another_reader_of_warc_finds_the_stored_answers_and_requests(
    store: SqliteStore, crawl: Crawl, tmp_path: Path, name: str
) -> None:
    compress = name.endswith(".gz")
    data, position = exported(store, crawl, Warc(crawl, name, compress=compress))
    file = tmp_path / name
    file.write_bytes(data)
    assert check([file]) == ""
    archive = Archive([file])
    assert archive.kinds == {"warcinfo": 1, "response": 3, "revisit": 1, "request": 4}
    answers = archive.answers
    assert answers["http://example.org/1"].body.decode() == "新"
    assert answers["http://example.org/3"].body.decode() == "新"
    assert answers["http://example.org/2"].http["location"] == "http://example.org/%E6%96%B0"
    assert answers["http://example.org/4"].fields["warc-truncated"] == "unspecified"
    asked = archive.requests["http://example.org/1"]
    assert asked.http["user-agent"] == "news/2 (+https://me.example)"
    info = archive.infos[0].body.decode()
    assert "isPartOf: news\r\n" in info
    assert "operator: https://me.example\r\n" in info
    assert archive.infos[0].fields["warc-filename"] == name
    assert (position.pages, position.finals, position.no_body) == (4, 0, 1)


def test_a_warc_export_writes_a_body_again_once_its_first_record_is_forgotten(
    store: SqliteStore, crawl: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "ORIGINS", 1)
    more = [page(crawl.id, n, 3000, body=b"ab"[n % 2 : n % 2 + 1]) for n in (10, 11, 12, 14)]
    store.commit(Commit(more))
    file = tmp_path / "x.warc.gz"
    file.write_bytes(exported(store, crawl, Warc(crawl))[0])
    archive = Archive([file])
    assert archive.kinds["revisit"] == 2
    assert archive.answers["http://example.org/12"].body == b"a"
    assert archive.answers["http://example.org/14"].kind == "revisit"


@pytest.mark.parametrize(
    ("wanted", "finals"),
    [
        (PageFilter(host="example.org"), 2),
        (PageFilter(host="example.com"), 0),
        (PageFilter(status=(0, 0)), 2),
        (PageFilter(status=(404, 404)), 0),
    ],
)
def test_a_filter_of_pages_applies_to_final_states_too(
    store: SqliteStore, crawl: Crawl, wanted: PageFilter, finals: int
) -> None:
    _, position = exported(store, crawl, Jsonl(), pages=wanted)
    assert position.finals == finals
