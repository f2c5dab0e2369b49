"""The contract of stores with bodies in WARC files, and the particularities of such a store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Commit, CrawlOptions, Directives
from greencrawl.store import open_store as open_url
from greencrawl.store.base import Store
from greencrawl.store.errors import BodyAway
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.warc.files import WarcFiles
from tests.support.archive import Archive, check
from tests.support.checkout import ROOT
from tests.support.store_contract import Opener, StoreContract, crawl, store
from tests.support.store_records import digest, page

__all__ = ["crawl", "store"]  # fixtures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "warc"


@pytest.fixture
def open_store(tmp_path: Path, folder: Path) -> Iterator[Opener]:
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(SqliteStore(tmp_path / "content.sqlite", WarcFiles(folder)))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


class TestSqliteWithWarc(StoreContract):
    pass


def finished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.warc.gz"))


def test_the_settings_of_store_and_bodies_open_sql_and_warc_together(
    tmp_path: Path, folder: Path
) -> None:
    opened = open_url(f"sqlite:///{tmp_path / 'c.sqlite'}", f"warc:{folder}")
    number = opened.put_crawl("a", CrawlOptions(), []).id
    opened.commit(Commit([page(number, n, body=b"same") for n in range(3)]))
    opened.commit(Commit([page(number, 3, body=b"same"), page(number, 4, body=b"other")]))
    opened.close()
    assert check(finished(folder)) == ""
    archive = Archive(finished(folder))
    assert archive.kinds == {"warcinfo": 1, "response": 2, "revisit": 3, "request": 5}
    assert archive.answers["http://example.org/3"].body == b"same"
    for no_place in ("zip:x", "warc:"):  # none of them means the current folder
        with pytest.raises(InvalidConfig):
            open_url(f"sqlite:///{tmp_path / 'c.sqlite'}", no_place)


def test_pages_are_read_without_their_bodies_if_the_setting_of_bodies_is_missing(
    tmp_path: Path, folder: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    opened = open_url(url, f"warc:{folder}")
    number = opened.put_crawl("a", CrawlOptions(), []).id
    opened.commit(Commit([page(number, 1, body=b"x", title="T")]))
    opened.close()
    plain = open_url(url)
    with pytest.raises(BodyAway):
        plain.page(number, 1)
    found = plain.page(number, 1, detail="text")
    assert found is not None
    assert found.title == "T"
    plain.close()


def test_bodies_kept_in_sql_before_are_read_and_written_anew_to_files(
    tmp_path: Path, folder: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    before = open_url(url)
    number = before.put_crawl("a", CrawlOptions(), []).id
    before.commit(Commit([page(number, 1, body=b"same")]))
    before.close()
    after = open_url(url, f"warc:{folder}")
    after.commit(Commit([page(number, 2, body=b"same"), page(number, 3, body=b"new")]))
    bodies = [one.body for _, one in after.pages(number, detail="body")]
    assert bodies == [b"same", b"same", b"new"]
    after.close()
    archive = Archive(finished(folder))
    assert archive.kinds["response"] == 2  # the file is complete by itself


def test_a_page_stored_without_a_body_takes_none_from_an_equal_page(
    tmp_path: Path, folder: Path
) -> None:
    opened = open_url(f"sqlite:///{tmp_path / 'c.sqlite'}", f"warc:{folder}")
    number = opened.put_crawl("a", CrawlOptions(), []).id
    without = page(number, 1, body=b"", digest=digest(b"a picture"))
    opened.commit(Commit([without, page(number, 2, body=b"a picture")]))
    found = [one.body for _, one in opened.pages(number, detail="body")]
    assert found == [b"", b"a picture"]
    opened.close()


def test_no_record_is_written_of_a_page_that_is_not_to_be_kept(
    tmp_path: Path, folder: Path
) -> None:
    opened = open_url(f"sqlite:///{tmp_path / 'c.sqlite'}", f"warc:{folder}")
    number = opened.put_crawl("a", CrawlOptions(), []).id
    said = Directives(robots=("noindex",), withheld="noindex")
    withheld = page(number, 1, digest=digest(b"words"), directives=said)
    opened.commit(Commit([withheld, page(number, 2, body=b"other")]))
    assert opened.page(number, 1) == withheld
    opened.close()
    archive = Archive(finished(folder))
    assert list(archive.answers) == ["http://example.org/2"]
    assert b"words" not in b"".join(one.body for one in archive.answers.values())


WRITER = """
import os, sys
from gevent import monkey; monkey.patch_all()
from greencrawl.schema import crash_points
from greencrawl.schema.records import Commit
from greencrawl.store import open_store
from tests.support.store_records import page
crash_points.arm(os.environ.get("GREENCRAWL_FAULT", ""))
store = open_store(sys.argv[1], sys.argv[2])
for n in range(6):
    store.commit(Commit([page(1, m, body=b"body %d" % m * 99) for m in range(10 * n, 10 * n + 10)]))
    print(10 * n + 10, flush=True)
"""


@pytest.mark.parametrize(
    "point",
    ["warc.before_write:3", "warc.before_sync:3", "warc.after_sync:3", "store.before_commit:3"],
)
def test_a_kill_between_the_writes_to_file_and_sql_damages_neither(
    tmp_path: Path, folder: Path, point: str
) -> None:
    url, where = f"sqlite:///{tmp_path / 'c.sqlite'}", f"warc:{folder}"
    opened = open_url(url, where)
    number = opened.put_crawl("a", CrawlOptions(), []).id
    killed = subprocess.run(
        [sys.executable, "-c", WRITER, url, where],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "GREENCRAWL_FAULT": point},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    told = int(killed.stdout.split()[-1])
    assert told == 20
    rows = {one.fingerprint: one.body for _, one in opened.pages(number, detail="body")}
    assert len(rows) >= told
    assert all(body == b"body %d" % n * 99 for n, body in rows.items())
    opened.commit(Commit([page(number, 100, body=b"later")]))
    assert len([path for path in folder.iterdir() if path.suffix == ".open"]) == 1
    opened.close()
    assert check(finished(folder)) == ""
    assert {f"http://example.org/{n}" for n in rows} <= set(Archive(finished(folder)).answers)
