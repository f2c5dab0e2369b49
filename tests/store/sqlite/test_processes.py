"""Several processes on one file: all at once, and killed during their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.body_uses import check_uses
from tests.support.checkout import ROOT
from tests.support.effort import by_night, cases
from tests.support.store_records import page

WRITER = """
from gevent import monkey; monkey.patch_all()
import os, sys
from pathlib import Path
from greencrawl.schema import crash_points
from greencrawl.schema.records import Commit
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.store_records import attempt, page
crash_points.arm(os.environ.get("GREENCRAWL_FAULT", ""))
path, crawl, writer, commits = Path(sys.argv[1]), *map(int, sys.argv[2:])
store = SqliteStore(path)
for commit in range(commits):
    first = (writer * commits + commit) * 10
    numbers = range(first, first + 10)
    store.commit(Commit([page(crawl, n, body=b"%d" % n * 500) for n in numbers],
                        [attempt(crawl, n) for n in numbers]))
    print(commit, flush=True)
store.close()
"""

REFETCHER = """
from gevent import monkey; monkey.patch_all()
import os, sys
from pathlib import Path
from greencrawl.schema import crash_points
from greencrawl.schema.records import Commit
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.store_records import page
crash_points.arm(os.environ.get("GREENCRAWL_FAULT", ""))
path, crawl, writer = Path(sys.argv[1]), *map(int, sys.argv[2:])
store = SqliteStore(path)
for fetch in range(writer, 40, 2):
    numbers = range(12) if writer % 2 else range(11, -1, -1)
    bodies = [b"%d" % (n % 3 + fetch // 8) for n in range(12)]
    store.commit(Commit([page(crawl, n, fetch, body=bodies[n]) for n in numbers]))
    print(fetch, flush=True)
store.close()
"""

PLAIN = """
import sys
from pathlib import Path
from greencrawl.store.sqlite.store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
print(store.tick(), len(list(store.pages(1))))
"""


def run(code: str, *arguments: object, fault: str = "") -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "GREENCRAWL_FAULT": fault}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


def test_processes_that_write_at_once_lose_no_row(path: Path) -> None:
    store = SqliteStore(path)
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    writers = [run(WRITER, path, crawl, n, 25) for n in range(4)]
    for writer in writers:
        printed, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        assert printed.split() == [str(n) for n in range(25)]
    counts = store.counts(crawl)
    assert (counts["pages"], counts["attempts"]) == (1000, 1000)
    assert {stored.fingerprint for _, stored in store.pages(crawl)} == set(range(1000))
    store.close()


@pytest.mark.parametrize("point", cases(["store.before_commit:6"], ["store.after_commit:6"]))
def test_acknowledged_commits_survive_a_process_that_is_killed_at_a_later_one(
    path: Path, point: str
) -> None:
    store = SqliteStore(path)
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    dying, living = run(WRITER, path, crawl, 0, 20, fault=point), run(WRITER, path, crawl, 1, 20)
    acknowledged = dying.communicate(timeout=60)[0].split()
    assert dying.returncode == -signal.SIGKILL
    assert acknowledged == ["0", "1", "2", "3", "4"]
    assert len(living.communicate(timeout=60)[0].split()) == 20

    stored = {row.fingerprint for _, row in store.pages(crawl)}
    assert set(range(50)) | set(range(200, 400)) <= stored
    # The sixth commit is there completely or not at all, depending on the time of the kill.
    assert len(stored & set(range(50, 200))) == (10 if "after" in point else 0)
    assert run(WRITER, path, crawl, 0, 20).communicate(timeout=60)[0].split()[-1] == "19"
    assert store.counts(crawl)["pages"] == store.counts(crawl)["attempts"] == 400
    check = store._questions.run(lambda db: db.execute("PRAGMA integrity_check").fetchone())
    assert check == ("ok",)
    store.close()


@by_night
def test_processes_that_fetch_the_same_pages_keep_all_versions_and_each_body_once(
    path: Path,
) -> None:
    store = SqliteStore(path)
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    dying = run(REFETCHER, path, crawl, 0, fault="store.before_commit:9")
    writers = [run(REFETCHER, path, crawl, writer) for writer in (0, 1, 1)]
    assert len(dying.communicate(timeout=60)[0].split()) == 8
    assert dying.returncode == -signal.SIGKILL
    for writer in writers:
        assert len(writer.communicate(timeout=60)[0].split()) == 20
    for n in range(12):
        fetches = [version.fetched_ms for version in store.history(crawl, n, limit=100)]
        assert fetches == list(range(39, -1, -1))
        stored = store.page(crawl, n)
        assert stored is not None
        assert stored.body == b"%d" % (n % 3 + 4)
    check_uses(store, crawl)
    store.close()


def test_a_process_without_gevents_patches_uses_the_store_and_ends_by_itself(path: Path) -> None:
    store = SqliteStore(path)
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    store.commit(Commit([page(crawl, n) for n in range(3)]))
    expected = store.tick() + 1
    # It does not close the store: the threads of the store must not keep the process alive.
    plain = run(PLAIN, path)
    assert plain.communicate(timeout=20)[0].split() == [str(expected), "3"]
    assert plain.returncode == 0
    store.close()


def test_a_store_cannot_be_used_in_a_forked_child(path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from greencrawl.store.sqlite.store import SqliteStore\n"
        "from greencrawl.store.errors import Closed\n"
        "store = SqliteStore(Path(sys.argv[1])); store.tick()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: store.tick()\n"
        "    except Closed: store.close(); os._exit(7)\n"
        "    os._exit(1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.tick())"
    )
    forked = run(code, path)
    assert forked.communicate(timeout=20)[0].split() == ["7", "3"]
