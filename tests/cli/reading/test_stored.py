"""``greencrawl page --text`` and ``export --text``: main text of stored pages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.records import Commit
from greencrawl.store import open_store
from greencrawl.worker.extract import main as main_text
from greencrawl.worker.extract.main import text
from tests.cli.commands.test_pages import DAY, SECRET, fill, stored
from tests.cli.reading.test_extract import compiled_by
from tests.support.store_content import MAIN, SPANS, TEXT
from tests.support.store_records import digest
from tests.worker.extract.main.test_main_text import ARTICLE, HEAD, HEADED, STORY

needs_compiled = pytest.mark.skipif(not main_text.available(), reason="nothing was compiled")
HTML, DATA = {"content-type": "text/html; charset=utf-8"}, {"content-type": "application/json"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS", "ADMIN_TOKEN"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    data = tmp_path / "data"
    fill(data)
    store = open_store(f"sqlite:///{data / 'content.sqlite'}")
    store.commit(Commit([
        stored(1, SECRET, "story", status=200, fetched_ms=DAY, text="all of it", headers=HTML,
               body=HEADED.replace("stalls", "<a href=../ice>stalls</a>").encode()),
        stored(1, SECRET, "data", status=200, fetched_ms=DAY, text="no page", headers=DATA,
               body=b"no page"),
        stored(1, SECRET, "withheld", status=200, fetched_ms=DAY, headers=HTML),
    ]))  # fmt: skip
    store.close()
    return str(data)


def shown(
    capfdbinary: pytest.CaptureFixture[bytes], folder: str, *arguments: str
) -> tuple[str, str]:
    assert main(["page", *arguments, "--data", folder]) == 0
    said = capfdbinary.readouterr()
    return said.out.decode(), said.err.decode()


@needs_compiled
def test_main_text_is_read_from_the_stored_body(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found, error = shown(capfdbinary, folder, "example.org/story", "--text")
    assert STORY[2] in found
    assert "Topic 3" not in found + error
    found, _ = shown(capfdbinary, folder, "example.org/story", "--markdown")
    assert f"## {HEAD}" in found
    found, _ = shown(capfdbinary, folder, "example.org/story", "--full")
    assert found == "all of it\n"


def test_all_text_is_shown_if_a_page_has_no_main_text(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, error = shown(capfdbinary, folder, "example.org/data", "--text")
    assert found == "no page\n"
    assert "this is all of its text" in error
    assert shown(capfdbinary, folder, "example.org/withheld", "--text") == ("\n", "")
    monkeypatch.setattr(text, "compiled", None)
    found, error = shown(capfdbinary, folder, "example.org/story", "--text")
    assert found == "all of it\n"
    assert "no main text without the part in C" in error


@needs_compiled
def test_an_export_may_have_main_text(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def texts(*arguments: str) -> dict[str, str]:
        assert main(["export", "--pages-only", *arguments, "--data", folder]) == 0
        lines = capfdbinary.readouterr().out.decode().splitlines()
        rows = map(json.loads, lines)
        return {row["url"].rpartition("/")[2]: row["text"] for row in rows}

    full, found, marked = texts(), texts("--text", "main"), texts("--text", "markdown")
    assert full["story"] == "all of it"
    assert STORY[2] in found["story"]
    assert "Topic 3" not in found["story"]
    assert "[stalls](https://example.org/ice)" in marked["story"]
    assert found["data"] == full["data"] == "no page"
    assert found["withheld"] == ""
    assert found.keys() == full.keys()


@needs_compiled
def test_main_text_that_was_stored_with_a_page_is_used_without_reading_its_body(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    store = open_store(f"sqlite:///{Path(folder) / 'content.sqlite'}")
    body = ARTICLE.encode()
    store.commit(Commit([
        stored(1, SECRET, "told", status=200, fetched_ms=DAY, text=TEXT, headers=HTML, body=body,
               spans=SPANS),
        stored(1, SECRET, "cut", status=200, fetched_ms=DAY, text=TEXT, headers=HTML,
               digest=digest(body), spans=SPANS),
        stored(1, SECRET, "none", status=200, fetched_ms=DAY, text="Menu", headers=HTML, body=body,
               spans=bytes([4])),
    ]))  # fmt: skip
    store.close()
    for name in ("told", "cut"):
        assert shown(capfdbinary, folder, f"example.org/{name}", "--text") == (f"{MAIN}\n", "")
    found, error = shown(capfdbinary, folder, "example.org/none", "--text")
    assert (found, error) == ("Menu\n", "there is no main text: this is all of its text\n")
    assert STORY[2] in shown(capfdbinary, folder, "example.org/told", "--markdown")[0]
    assert main(["export", "--pages-only", "--text", "main", "--data", folder]) == 0
    said = capfdbinary.readouterr()
    rows = {row["url"]: row["text"] for row in map(json.loads, said.out.decode().splitlines())}
    texts = [rows[f"https://example.org/{name}"] for name in ("told", "cut", "none")]
    assert texts == [MAIN, MAIN, ""]
    assert STORY[2] in rows["https://example.org/story"], "by its body, since nothing was told"
    assert b"without a body" not in said.err, "none was needed"
    assert main(["export", "--pages-only", "--text", "main", "--bodies", "--data", folder]) == 0
    assert b"1 page without a body" in capfdbinary.readouterr().err


@needs_compiled
def test_a_csv_export_may_have_main_text(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", "--format", "csv", "--text", "main", "--data", folder]) == 0
    rows = csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode()))
    assert any(STORY[1] in row["text"] for row in rows)


def test_an_export_of_main_text_is_refused_for_warc_and_without_the_compiled_part(
    folder: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", "--format", "warc", "--text", "main", "--data", folder]) == 2
    assert b"an archive has no text" in capfdbinary.readouterr().err
    monkeypatch.setattr(text, "compiled", None)
    assert main(["export", "--text", "main", "--data", folder]) == 1
    said = capfdbinary.readouterr()
    compiled_by(said.err.decode())
    assert said.out == b""
