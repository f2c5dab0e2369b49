"""The content of an export, line by line."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store.export.formats import Jsonl
from greencrawl.store.export.objects import iso8601
from greencrawl.store.export.resumable import Wanted
from greencrawl.store.export.resumable import export as export_all
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.store_contract import final, links, page


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> int:
    return store.put_crawl("news", CrawlOptions(), []).id


def export(store: SqliteStore, crawl: int, **options: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    position = export_all(store, Wanted(crawl=store.crawl(crawl)), Jsonl(**options), out)
    lines = out.getvalue().decode().split("\n")[:-1]
    assert len(lines) == position.rows
    assert len(out.getvalue()) == position.length
    return [json.loads(line) for line in lines]


def test_a_page_is_one_object_with_all_it_holds(store: SqliteStore, crawl: int) -> None:
    store.commit(
        Commit(
            [
                page(
                    crawl, 1, 1_772_366_400_250, title="A\nB", text="two\r\nlines\u2028three",
                    language="de", encoding="utf-8", headers={"etag": '"x"'}, body=b"<p>",
                    fields={"price": 9.5}, depth=2, elapsed_ms=80, links=links("http://b.org/"),
                )
            ]
        )
    )  # fmt: skip
    assert export(store, crawl) == [
        {
            "url": "http://example.org/1",
            "final_url": "http://example.org/1",
            "state": "fetched",
            "status": 200,
            "headers": {"etag": '"x"'},
            "fetched": "2026-03-01T12:00:00.250Z",
            "elapsed_ms": 80,
            "depth": 2,
            "title": "A\nB",
            "text": "two\r\nlines\u2028three",
            "language": "de",
            "encoding": "utf-8",
            "truncated": False,
            "canonical": "",
            "directives": None,
            "fields": {"price": 9.5},
            "links": ["http://b.org/"],
        }
    ]


def test_bodies_are_exported_only_if_they_are_asked_for(store: SqliteStore, crawl: int) -> None:
    body = bytes(range(256))
    store.commit(Commit([page(crawl, 1, body=body)]))
    assert "body" not in export(store, crawl)[0]
    assert base64.b64decode(export(store, crawl, bodies=True)[0]["body"]) == body


def test_final_states_are_exported_after_the_pages(store: SqliteStore, crawl: int) -> None:
    store.commit(Commit([page(crawl, n) for n in (9, 3)], finals=[final(crawl, 1, 2000, "gone")]))
    lines = export(store, crawl)
    assert [line["state"] for line in lines] == ["fetched", "fetched", "gone"]
    assert [line["url"][-1] for line in lines] == ["9", "3", "1"]
    assert lines[2]["kind"] == "timeout"
    assert lines[2]["detail"] == "after 5 tries"
    assert lines[2]["at"] == "1970-01-01T00:00:02.000Z"


def test_a_refetched_page_keeps_its_place_in_an_export(store: SqliteStore, crawl: int) -> None:
    store.commit(Commit([page(crawl, n) for n in (5, 4, 6)]))
    store.commit(Commit([page(crawl, 4, 9000)]))
    assert [line["url"][-1] for line in export(store, crawl)] == ["5", "4", "6"]
    assert export(store, crawl) == export(store, crawl)


def test_text_that_is_no_unicode_makes_valid_json(store: SqliteStore, crawl: int) -> None:
    store.commit(Commit([page(crawl, 1, title="\ud800\0", text="\udfff")]))
    assert export(store, crawl)[0]["title"] == "�\0"


def test_only_the_crawl_asked_for_is_exported(store: SqliteStore, crawl: int) -> None:
    other = store.put_crawl("other", CrawlOptions(), []).id
    store.commit(Commit([page(crawl, 1), page(other, 2)], finals=[final(other, 3)]))
    assert len(export(store, crawl)) == 1
    with pytest.raises(UnknownCrawl):
        export(store, 99)


def test_an_interrupt_leaves_whole_lines(store: SqliteStore, crawl: int) -> None:
    store.commit(Commit([page(crawl, n, text="words " * 99) for n in range(20)]))

    class Interrupted(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 3000:
                raise KeyboardInterrupt
            return super().write(data)

    out = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        export_all(store, Wanted(crawl=store.crawl(crawl)), Jsonl(), out)
    written = out.getvalue()
    assert written.endswith(b"\n")
    assert 3000 < len(written) < 20 * 700
    assert all(json.loads(line)["text"] for line in written.splitlines())


def test_a_large_crawl_is_read_in_bounded_chunks(
    store: SqliteStore, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.store.sqlite.tables.lists.CHUNK_BYTES", 4000)
    noise = random.Random(1)
    store.commit(Commit([page(crawl, n, body=noise.randbytes(1500)) for n in range(30)]))
    sizes: list[int] = []
    run = store._scans.run

    def counted(work: Any) -> Any:
        found = run(work)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(store._scans, "run", counted)
    assert len(list(store.pages(crawl, detail="body"))) == 30
    assert max(sizes) <= 4


@pytest.mark.parametrize(
    ("epoch_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
        (2**63 - 1, None),
    ],
)
def test_moments_are_shown_in_utc(epoch_ms: int, shown: str | None) -> None:
    assert iso8601(epoch_ms) == shown
