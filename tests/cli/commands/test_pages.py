"""``greencrawl pages`` and ``greencrawl page``, from the store alone and by a running broker."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from gevent.os import tp_read
from rich.cells import cell_len

from greencrawl.cli.main import main
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Commit, CrawlOptions, FrontierIdentity, StoredPage
from greencrawl.store import open_store
from tests.support.broker_process import BrokerProcess
from tests.support.checkout import ROOT

SECRET = 7
DAY = 1_772_323_200_000
"""2026-03-01."""


def stored(crawl: int, secret: int, path: str, **more: object) -> StoredPage:
    url = f"https://example.org/{path}"
    number = fingerprint(url, secret)
    return StoredPage(crawl=crawl, fingerprint=number, url=url, **more)  # type: ignore[arg-type]


def fill(folder: Path) -> None:
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    identity = FrontierIdentity(
        id="f", secret=SECRET, partitions=64, suffixes=SUFFIXES, canonicaliser=CANONICALISER,
        layout=1, nodes=("n",), placement=(0,),
    )  # fmt: skip
    secret = (store.frontier() or store.create_frontier(identity)).secret
    crawl = store.put_crawl("example", CrawlOptions(), ["example.org"]).id
    store.commit(
        Commit(
            [
                stored(crawl, secret, "", status=200, title="乌龙茶与绿茶的区别和冲泡方法", 
                       body=b"<p>1", fetched_ms=DAY, text="绿茶 and widgets\x1b[2J"),
                stored(crawl, secret, "moved", status=301, final_url="https://example.org/",
                       fetched_ms=DAY + 1000),
                stored(crawl, secret, "plain\ttab", status=200, title="Plain\x1b[31m title",
                       body=b"\x00\xff" * 600, fetched_ms=DAY + 2000),
                stored(crawl, secret, "missing", status=404, title="Not here", body=b"no",
                       fetched_ms=DAY + 3000),
            ]
        )
    )  # fmt: skip
    store.close()


@pytest.fixture(scope="module", params=["store", "broker"])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, str]]]:
    """A data folder with a crawl, read directly or through a broker, with the settings for that.
    Tests only read it."""
    folder = tmp_path_factory.mktemp("source") / "data"
    if request.param == "store":
        fill(folder)
        yield folder, {}
        return
    tokens = {"admin_token": "admin-secret", "worker_token": "worker-secret"}
    broker = BrokerProcess(folder, **tokens).start()
    try:
        fill(folder)
        yield folder, {"BROKER": broker.url, "ADMIN_TOKEN": "admin-secret"}
    finally:
        broker.stop()


class Command:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys
        self.error = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        returned = main([*arguments, "--data", str(self._folder)])
        out, self.error = self._capsys.readouterr()
        assert returned == code, out + self.error
        return out


@pytest.fixture
def command(
    source: tuple[Path, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    folder, given = source
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS", "ADMIN_TOKEN"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(f"GREENCRAWL_{name}", value)
    return Command(folder, capsys)


def test_pages_are_listed_one_a_line_without_a_terminal(command: Command) -> None:
    lines = [line.split("\t") for line in command("pages").splitlines()]
    assert [line[:3] for line in lines] == [
        ["2026-03-01T00:00:00.000Z", "200", "4"],
        ["2026-03-01T00:00:01.000Z", "301", "0"],
        ["2026-03-01T00:00:02.000Z", "200", "1200"],
        ["2026-03-01T00:00:03.000Z", "404", "2"],
    ]
    assert lines[0][4:] == ["https://example.org/", "乌龙茶与绿茶的区别和冲泡方法"]
    assert lines[1][5] == "-> https://example.org/"
    assert lines[2][5] == "Plain [31m title", "no control character reaches the terminal"


def test_pages_are_filtered_and_a_limited_list_goes_on_after_its_cursor(command: Command) -> None:
    def paths(*arguments: str) -> list[str]:
        return [
            json.loads(line)["url"][20:]
            for line in command("pages", "--json", *arguments).splitlines()
        ]

    assert paths("--status", "3xx") == ["moved"]
    assert paths("--since", "2026-03-01T00:00:02") == ["plain\ttab", "missing"]
    assert paths("--grep", "widgets|Plain") == ["", "plain\ttab"]
    assert paths("--host", "example.net") == []
    assert paths("--host", "https://EXAMPLE.org/") == ["", "moved", "plain\ttab", "missing"]
    assert paths("example", "--limit", "3") == ["", "moved", "plain\ttab"]
    after = command.error.rpartition("--after ")[2].strip()
    assert paths("--after", after) == ["missing"]
    assert command.error == ""


def test_advice_about_a_cluster_that_is_away_is_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GREENCRAWL_BROKER", raising=False)
    for masters in ("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"):
        monkeypatch.setenv("GREENCRAWL_STORE", f"mysql://u:p@{masters}/greencrawl")
        assert main(["pages", "--data", str(tmp_path)]) != 0
        assert capsys.readouterr().err.count("greencrawl store status") == 1


def test_a_slow_list_shows_its_progress_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    monkeypatch.setattr("greencrawl.broker.service.pages.LOOKED_AT", 1)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["pages", "--status", "404", "--data", str(tmp_path)]) == 0
        terminal.flush()
        told = os.read(ours, 4096).decode()
    os.close(ours)
    assert capsys.readouterr().out.count("https://example.org/missing") == 1
    assert "looked at 1 page …" in told
    assert "looked at 3 pages …" in told
    assert told.endswith("\r\x1b[K"), "the line is gone when the page is listed"


def test_a_list_that_ends_at_its_limit_says_that_there_may_be_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    monkeypatch.setattr("greencrawl.broker.service.pages.LOOKED_AT", 1)
    command = ["pages", "--status", "404", "--data", str(tmp_path)]
    assert main([*command, "--limit", "1"]) == 0
    out, error = capsys.readouterr()
    after = error.rpartition(" ")[2].strip()
    assert "/missing" in out
    assert error == f"there may be more: add --after {after}\n"
    assert main([*command, "--after", after]) == 0
    assert capsys.readouterr() == ("", "no page matches\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--grep", "(?=x)"), 2, "--grep"),
        (("--status", "2x"), 2, "--status"),
        (("--since", "soon"), 2, "--since"),
        (("--host", "a b"), 2, "--host"),
        (("--host", "example.org/b"), 2, "--host: 'example.org/b' is more than a host"),
        (("--host", "example.org?b"), 2, "--host: 'example.org?b' is more than a host"),
        (("--after", "x"), 1, "after"),
        (("other",), 1, "no crawl is named 'other'"),
    ],
)
def test_wrong_use_of_the_pages_command_is_explained(
    command: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert command("pages", *arguments, code=code) == ""
    assert said in command.error


def test_one_page_is_shown_by_url_and_by_id(command: Command) -> None:
    shown = command("page", "example.org/")
    assert "crawl         example" in shown
    assert "title         乌龙茶与绿茶的区别和冲泡方法" in shown
    assert "body          4 bytes" in shown
    assert "1, the latest first" in shown
    number = shown.split("id            ")[1].split()[0]
    assert command("page", number) == shown
    assert command("page", number, "--full") == "绿茶 and widgets\x1b[2J\n"


def test_a_body_is_written_to_a_file_unchanged(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "body.bin"
    command(
        "page",
        "https://example.org/plain\ttab".replace("\t", "%09"),
        "--body",
        "-o",
        str(file),
        code=1,
    )
    number = json.loads(command("pages", "--json", "--grep", "Plain"))["id"]
    command("page", number, "--body", "-o", str(file))
    assert file.read_bytes() == b"\x00\xff" * 600
    assert "1,200 bytes" in command.error


def test_a_page_that_is_not_stored_is_reported_as_such(command: Command) -> None:
    command("page", "https://example.org/never", code=1)
    assert "is not stored" in command.error
    command("page", "1-0000000000000001", code=1)
    assert "no page has the id" in command.error
    assert command.error.count("\n") == 1


def test_columns_are_aligned_in_a_terminal_also_with_chinese_titles(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    shown = _in_terminal(tmp_path / "data", "pages", columns=100)
    lines = [line for line in shown.splitlines() if line.startswith("2026-")]
    assert len(lines) == 4
    for line in lines:
        assert cell_len(line) <= 100
        assert "\x1b" not in line
    titles = [cell_len(line[: line.index(word)]) for line, word in zip(
        lines, ["乌", "→", "Plain ", "Not here"], strict=True)]  # fmt: skip
    assert len(set(titles)) == 1, "titles begin in one column"
    assert lines[0].split()[2:5] == ["200", "4", "B"]
    assert "…" in _in_terminal(tmp_path / "data", "pages", columns=80)


def test_a_body_is_not_written_to_a_terminal(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    assert "name a file" in _in_terminal(tmp_path / "data", "page", "example.org/", "--body")
    assert "\x1b" not in _in_terminal(tmp_path / "data", "page", "example.org/", "--text")


def test_text_is_shown_in_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    page = ["page", "example.org/", "--full"]
    assert "绿茶 and" in _in_terminal(tmp_path / "data", *page, encoding="gb18030")
    assert "?? and" in _in_terminal(tmp_path / "data", *page, encoding="latin-1")


def _in_terminal(folder: Path, *arguments: str, columns: int = 100, encoding: str = "utf-8") -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {
        name: value for name, value in os.environ.items()
        if not name.startswith("GREENCRAWL_") and name not in ("COLUMNS", "LINES")
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "greencrawl.cli", *arguments, "--data", str(folder)],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={**kept, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:  # a plain read would block the hub, which still has to close the other end
        try:
            some = tp_read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        shown += some
    os.close(ours)
    process.wait(30)
    return shown.decode(encoding)
