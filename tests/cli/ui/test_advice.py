"""Commands that messages advise: they name the data folder if it is not the default one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.cli import connecting
from greencrawl.cli.admin import migrate as migrating
from greencrawl.cli.commands import crawl
from greencrawl.cli.local.stopping import Stop
from greencrawl.cli.main import main
from greencrawl.cli.ui import advice
from greencrawl.cli.ui import follow as following
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Commit, CrawlOptions, FrontierIdentity, HookRun, StoredPage
from greencrawl.store import open_store
from greencrawl.store.sqlite.migrations import SqliteUpgrade
from tests.cli.ui.test_follow import WANTED, broker
from tests.support.old_store import create, later_version

URL = "https://example.org/"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty current folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    yield
    advice.use(None)


def fill(folder: Path) -> None:
    """Store one crawl, with a page on which the hook failed."""
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    store.create_frontier(
        FrontierIdentity(
            id="f", secret=7, partitions=1, suffixes=SUFFIXES, canonicaliser=CANONICALISER,
            layout=1, nodes=("n",), placement=(0,),
        )
    )  # fmt: skip
    crawl = store.put_crawl("test", CrawlOptions(seeds=(URL,)), ["example.org"]).id
    number = fingerprint(URL, 7)
    page = StoredPage(crawl=crawl, fingerprint=number, url=URL, status=200)
    failed = HookRun(crawl=crawl, fingerprint=number, url=URL, at_ms=1, failures={"on_page": "E"})
    store.commit(Commit([page], hooks=[failed]))
    store.close()


COMMANDS = [
    ("status", "`greencrawl hooks test{}`"),
    (f"explain {URL}unknown", "(`greencrawl up{}`)"),
    (f"page {URL}unknown", f"`greencrawl explain {URL}unknown{{}}` says why"),
    ("pause test", "`greencrawl up{}`"),
]


@pytest.mark.parametrize(("typed", "advised"), COMMANDS)
@pytest.mark.parametrize("folder", ["data", "else where"])
def test_an_advised_command_names_the_data_folder_of_the_present_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, advised: str, folder: str
) -> None:
    fill(tmp_path / folder)
    main([*typed.split(), "--data", folder])
    said = " ".join("".join(capsys.readouterr()).split())
    assert advised.format("" if folder == "data" else " --data 'else where'") in said


def test_advice_to_migrate_names_the_data_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "content.sqlite"
    create(path)
    main(["pages", "--data", "d"])
    assert "run `greencrawl migrate --data d`" in capsys.readouterr().err
    newer = later_version(tmp_path / "newer")
    monkeypatch.setattr(migrating, "open_upgrade", lambda _: SqliteUpgrade(path, newer))
    main(["migrate", "--data", "d"])
    assert "`greencrawl migrate --post --data d`" in capsys.readouterr().out


def test_advice_beside_a_running_crawl_names_its_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crawl._demo_settings(connecting.load("d"))
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.001)
    wait = {"state": "active", "waiting": 3}
    made = broker(wait, wait, wait, {"state": "done"})
    following.follow(made, WANTED, Stop(), None, fresh=False)
    assert "`greencrawl explain URL --data d/demo` says when" in capsys.readouterr().err


def test_a_crawl_tells_of_others_in_its_data_folder_that_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "d")
    assert len(crawl._known(crawl.Job(WANTED, connecting.load("d")))) == 2
    told = "crawl test goes on, too; `greencrawl stop test --data d` ends it\n"
    assert capsys.readouterr().err == told


def test_advice_does_not_name_the_data_folder_of_an_earlier_command() -> None:
    main(["status", "--data", "d"])
    assert advice.complete("`greencrawl up`") == "`greencrawl up`"


def test_advice_adds_the_data_folder_only_to_commands_that_use_one() -> None:
    connecting.load("d")
    for text in (
        "`greencrawl crawl --help`", "`greencrawl store form`", "`pip install x`",
        "`greencrawl status --data e`", "greencrawl ends",
    ):  # fmt: skip
        assert advice.complete(text) == text
    both = "run `greencrawl login shop`, or `greencrawl up`"
    assert advice.complete(both) == (
        "run `greencrawl login shop --data d`, or `greencrawl up --data d`"
    )


def test_advice_names_the_launcher_as_it_was_called_unless_the_command_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert advice.complete("`greencrawl up`") == "`greencrawl up`"
    monkeypatch.setenv("_GREENCRAWL_CALLED", "./greencrawl")
    assert advice.complete("`greencrawl up`, `pip x`") == "`./greencrawl up`, `pip x`"
    assert advice.to_export("c", Path("data").absolute()).startswith("./greencrawl export c ")
    monkeypatch.setenv("_GREENCRAWL_CALLED", "/my code/greencrawl")
    assert advice.complete("`greencrawl up`") == "`'/my code/greencrawl' up`"
    monkeypatch.setattr(sys, "executable", f"{Path.cwd()}/.venv/bin/python")
    assert advice.complete("`python -m greencrawl.logger`") == (
        "`.venv/bin/python -m greencrawl.logger`"
    )
    (tmp_path / "greencrawl").touch(mode=0o755)
    assert advice.complete("`greencrawl up`") == "`greencrawl up`"
