"""``greencrawl diff``: its exit code distinguishes a change from a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store import open_store
from tests.cli.commands.test_pages import DAY, SECRET, fill, stored
from tests.support.store_records import digest

HTML = {"content-type": "text/html"}
URL = "https://example.org/page"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS", "ADMIN_TOKEN"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    fill(tmp_path)
    return tmp_path


def fetched(data: Path, *bodies: bytes, keep: int = 2) -> None:
    """A page that was fetched once with each of ``bodies``."""
    store = open_store(f"sqlite:///{data / 'content.sqlite'}")
    crawl = store.put_crawl("example", CrawlOptions(keep_versions=keep), ["example.org"]).id
    for number, body in enumerate(bodies):
        page = stored(
            crawl, SECRET, "page", status=200, headers=HTML, body=body, body_bytes=len(body),
            digest=digest(body), fetched_ms=DAY + number,
        )  # fmt: skip
        store.commit(Commit([page]))
    store.close()


def diff(data: Path, *more: str, url: str = URL) -> int:
    return main(["diff", url, *more, "--data", str(data)])


def test_diff_exits_with_1_for_a_change_0_for_none_and_2_for_an_unknown_page(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched(data, b"<p>one")
    assert (diff(data), diff(data, url="https://example.org/unknown")) == (0, 2)
    assert f"{URL} has not changed since it was first fetched" in capsys.readouterr().err
    fetched(data, b"<p>one", b"<p>two")
    assert diff(data) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["-one", "+two"]
    assert diff(data, "--from", "2020-01-01") == 2


def test_diff_exits_with_2_if_a_version_is_not_kept(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched(data, b"<p>one", b"<p>two", keep=0)
    assert diff(data) == 2
    assert "is not kept" in capsys.readouterr().err


def test_diff_compares_with_an_empty_version(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched(data, b"", b"<p>two")
    assert diff(data) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "+two"


def test_versions_names_the_first_fetch_as_such(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched(data, b"one", b"one", b"two")
    assert main(["versions", URL, "--data", str(data)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines] == ["changed", "unchanged", "first"]
