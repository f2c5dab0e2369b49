"""Exports that are killed, interrupted, or stopped by a full disk, and are called again."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from itertools import product
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store import open_store
from greencrawl.store.base import Store
from greencrawl.store.errors import BodyAway
from greencrawl.store.export import resumable
from greencrawl.store.export.formats import FORMATS, Csv, Format, Jsonl, Warc
from greencrawl.store.export.resumable import OptionsDiffer, Position, Resumable, Wanted
from tests.support.archive import Archive, check
from tests.support.checkout import ROOT
from tests.support.effort import cases
from tests.support.store_records import final, page
from tests.support.system import wait_until

PAGES = 300

EXPORT = """
import os, sys
from pathlib import Path
from gevent import monkey; monkey.patch_all()
from greencrawl.schema import crash_points
from greencrawl.cli.main import main
from greencrawl.store.export import resumable
resumable._WRITE_BYTES = 3000
resumable.CHECKPOINT_SECONDS = float(os.environ.get("EVERY", "0"))
crash_points.arm(os.environ.get("FAULT", ""))
sys.exit(main(["export", *sys.argv[1:]]))
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "STORE", "BODIES"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    folder = tmp_path / "data"
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    numbers = range(PAGES)
    store.commit(
        Commit(
            [page(crawl, n, body=b"body %d " % (n % 40) * 30, text=f"文 {n}") for n in numbers],
            finals=[final(crawl, n) for n in range(1000, 1030)],
        )
    )
    store.close()
    return folder


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{data / 'content.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of a few records."""
    monkeypatch.setattr(resumable, "_WRITE_BYTES", 3000)


def killed_export(
    data: Path, *arguments: object, fault: str, every: float = 0.0
) -> subprocess.CompletedProcess[str]:
    """Export in a process of its own, which dies at ``fault``."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    return subprocess.run(
        [sys.executable, "-c", EXPORT, "--data", str(data), *map(str, arguments)],
        env=environment | {"PYTHONPATH": str(ROOT / "src"), "FAULT": fault, "EVERY": str(every)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def export(data: Path, *arguments: object) -> tuple[int, str]:
    """Export in this process; return (exit code, standard error)."""
    said = io.StringIO()
    with redirect_stderr(said):
        code = main(["export", "--data", str(data), *map(str, arguments)])
    return code, said.getvalue()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


FAULTS = ["export.written:5", "export.checkpoint:5", "export.before_rename"]


DIAGONAL = [(kind, FAULTS[n % len(FAULTS)]) for n, kind in enumerate(FORMATS)]
OTHERS = [pair for pair in product(FORMATS, FAULTS) if pair not in DIAGONAL]


@pytest.mark.parametrize(("kind", "fault"), cases(DIAGONAL, OTHERS))
def test_a_killed_export_goes_on_and_ends_in_the_same_file_as_an_unbroken_one(
    data: Path, tmp_path: Path, kind: str, fault: str
) -> None:
    whole, out = tmp_path / f"whole.{kind}", tmp_path / f"out.{kind}"
    assert main(["export", "--data", str(data), "--format", kind, "-o", str(whole)]) == 0
    killed = killed_export(data, "--format", kind, "-o", out, fault=fault)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    assert out.with_name(f"out.{kind}.part.state").exists()
    with out.with_name(f"out.{kind}.part").open("ab") as part:
        part.write(b"half a record" * 10_000)  # the state knows nothing of it
    code, said = export(data, "--format", kind, "-o", out)
    assert code == 0
    assert "continuing after" in said
    assert files(tmp_path) == {whole.name, out.name}
    if kind == "warc":
        assert check([out]) == ""
        answers, expected = Archive([out]).answers, Archive([whole]).answers
        assert {url: read.body for url, read in answers.items()} == {
            url: read.body for url, read in expected.items()
        }
        assert len(answers) == PAGES
    else:
        assert out.read_bytes() == whole.read_bytes()


def test_ctrl_c_stops_an_export_at_once_and_the_same_command_goes_on(
    data: Path, tmp_path: Path
) -> None:
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    waits = EXPORT.replace(
        "crash_points.arm",
        "import itertools, sys; from greencrawl.store.export import formats\n"
        "fast, numbers = formats.Csv.page, itertools.count(1)\n"
        "def page(self, page):\n"
        f"    if next(numbers) == {PAGES - 20}: sys.stdin.read()\n"
        "    return fast(self, page)\n"
        "formats.Csv.page = page\n"
        "crash_points.arm",
    )  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    process = subprocess.Popen(
        [sys.executable, "-c", waits, "--format", "csv", "-o", str(out), "--data", str(data)],
        env=environment | {"PYTHONPATH": str(ROOT / "src")},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    part = out.with_name("out.csv.part")
    wait_until(lambda: part.exists() and part.stat().st_size > 6000, 30, "some rows are written")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on" in said
    assert not out.exists()
    _, said = export(data, "--format", "csv", "-o", out)
    assert "continuing after" in said
    export(data, "--format", "csv", "-o", whole)
    assert out.read_bytes() == whole.read_bytes()


def test_an_export_goes_on_with_other_options_only_if_it_is_restarted(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    killed_export(data, "-o", out, fault="export.checkpoint:5")
    code, said = export(data, "-o", out, "--bodies", "--host", "example.org")
    assert code == 1
    assert "begun with another bodies, host" in said
    assert "--restart" in said
    code, said = export(data, "-o", out, "--bodies", "--restart")
    assert code == 0
    assert "continuing" not in said
    assert out.read_text().count('"body"') == PAGES
    assert files(tmp_path) == {"out.jsonl"}


def test_a_restarted_export_that_dies_early_is_not_mixed_with_the_one_before(
    data: Path, tmp_path: Path
) -> None:
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    killed_export(data, "-o", out, fault="export.checkpoint:3")
    killed = killed_export(
        data, "-o", out, "--bodies", "--restart", fault="export.written:9", every=99.0
    )
    assert killed.returncode == -signal.SIGKILL
    assert export(data, "-o", out)[0] == 0
    export(data, "-o", whole)
    assert out.read_bytes() == whole.read_bytes()


class Spoilt(Jsonl):
    """Fails at a page, as at an interrupt."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self._left = at
        self._error = error

    def page(self, page: object) -> bytes:
        self._left -= 1
        if not self._left:
            raise self._error
        return super().page(page)  # type: ignore[arg-type]


def quiet(_: Position) -> None:
    pass


def run(store: Store, out: Path, format_: Format, since: int = 0) -> tuple[bool, Position]:
    with Resumable(out, {"format": "x"}, since) as made:
        wanted = Wanted(crawl=store.crawl("news"))
        return made.resumed, made.run(store, wanted, format_, quiet)


def test_an_interrupted_export_ends_after_a_whole_record(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(store, out, Spoilt(100, KeyboardInterrupt()))
    run(store, tmp_path / "whole", Jsonl())
    assert run(store, out, Jsonl())[0]
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_resumed_export_keeps_the_moment_that_a_relative_time_meant(
    store: Store, tmp_path: Path
) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Resumable(tmp_path / "out", {"since": "3d"}, 1000) as first,
    ):
        first.run(store, Wanted(crawl=store.crawl("news")), Spoilt(9, KeyboardInterrupt()), quiet)
    with Resumable(tmp_path / "out", {"since": "3d"}, 2000) as second:
        assert second.since_ms == 1000


def test_one_process_at_a_time_writes_a_file(store: Store, tmp_path: Path) -> None:
    with (
        Resumable(tmp_path / "out", {}, 0),
        pytest.raises(GreencrawlError, match="another process"),
    ):
        Resumable(tmp_path / "out", {}, 0)


def test_an_export_names_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(GreencrawlError, match=r"^cannot write .*out\.part: there is no folder"):
        Resumable(tmp_path / "missing" / "out", {}, 0)


def test_an_export_does_not_go_on_without_its_part_or_from_a_damaged_state(
    store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(store, out, Spoilt(100, KeyboardInterrupt()))
    (tmp_path / "out.part").unlink()
    assert not run(store, out, Jsonl())[0]
    (tmp_path / "out.part.state").write_text("{")
    with pytest.raises(GreencrawlError, match="restart"):
        run(store, out, Jsonl())
    other = '{"options": {"format": "y"}, "since_ms": 0, "position": {}}'
    (tmp_path / "out.part.state").write_text(other)
    with pytest.raises(OptionsDiffer):
        run(store, out, Jsonl())


def test_an_export_reports_a_full_disk_and_the_same_command_goes_on(
    store: Store, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(GreencrawlError, match="File too large; the same command"):
            run(store, tmp_path / "out", Jsonl())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "out.part").stat().st_size > 10_000
    assert run(store, tmp_path / "out", Jsonl())[0]
    run(store, tmp_path / "whole", Jsonl())
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("format_", [Jsonl(bodies=True), Csv(bodies=True)])
def test_a_body_that_is_away_is_left_out_and_counted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format
) -> None:
    """As if a WARC file were missing: the other pages and their bodies are exported."""
    streamed, asked = store.pages, store.page

    def pages(*arguments: object, **more: object) -> Iterator[object]:
        for cursor, one in streamed(*arguments, **more):  # type: ignore[arg-type]
            if one.fingerprint in (7, 8, 250) and more["detail"] == "body":
                raise BodyAway("x.warc.gz", "there is no such file")
            yield cursor, one

    def single(crawl: int, fingerprint: int) -> object:
        if fingerprint in (7, 8, 250):
            raise BodyAway("x.warc.gz", "there is no such file")
        return asked(crawl, fingerprint)

    monkeypatch.setattr(store, "pages", pages)
    monkeypatch.setattr(store, "page", single)
    _, position = run(store, tmp_path / "out", format_)
    assert (position.pages, position.no_body) == (PAGES, 3)


def test_the_command_says_how_many_pages_it_exported_and_refuses_wrong_options(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.warc.gz"
    assert main(["export", "--crawl", "news", "--format", "warc", "--data", str(data), "-o",
                 str(out)]) == 0  # fmt: skip
    assert f"{PAGES} pages: " in capsys.readouterr().err
    assert check([out]) == ""
    assert main(["export", "news", "--crawl", "other", "--data", str(data)]) == 2
    assert main(["export", "--since", "soon", "--data", str(data)]) == 2
    assert "how long ago" in capsys.readouterr().err
    assert main(["export", "--host", "a/b", "--data", str(data)]) == 2
    assert "is no host" in capsys.readouterr().err
    assert Warc.finals is False
