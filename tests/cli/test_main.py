"""The command's error messages, and the output of commands from the store alone."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from greencrawl.cli import connecting
from greencrawl.cli.admin import migrate as migrating
from greencrawl.cli.commands import crawl as crawling
from greencrawl.cli.commands.operate import removed_text
from greencrawl.cli.local.data_folder import held
from greencrawl.cli.main import greencrawl, main
from greencrawl.schema.errors import Refused
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import (
    Attempt,
    Commit,
    CrawlOptions,
    Final,
    FrontierIdentity,
    Purge,
    StoredPage,
)
from greencrawl.store import open_store
from greencrawl.store.migrations import load
from greencrawl.store.sqlite.migrations import SqliteUpgrade
from tests.support.checkout import ROOT
from tests.support.old_store import create, later_version

SECRET = 7


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A data folder with one crawl: a page, a dead letter, an excluded URL."""
    folder = tmp_path / "data"
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    store.create_frontier(
        FrontierIdentity(
            id="f", secret=SECRET, partitions=1, suffixes=SUFFIXES, canonicaliser=CANONICALISER,
            layout=1, nodes=("n",), placement=(0,),
        )
    )  # fmt: skip
    options = CrawlOptions(seeds=("https://example.org/",), exclude=("/secret",))
    crawl = store.put_crawl("example", options, ["example.org"])

    def key(path: str) -> tuple[int, str]:
        url = f"https://example.org/{path}"
        return fingerprint(url, SECRET), url

    number, url = key("")
    page = StoredPage(
        crawl=crawl.id, fingerprint=number, url=url, status=200, title="Home", text="x"
    )
    number, url = key("moved")
    moved = StoredPage(
        crawl=crawl.id, fingerprint=number, url=url, status=301, final_url="https://example.net/"
    )
    number, url = key("late")
    late = Attempt(
        crawl=crawl.id, fingerprint=number, url=url, code=500, kind="server_error", errors=1, wait=9
    )
    number, url = key("dead")
    dead = Final(
        crawl=crawl.id,
        fingerprint=number,
        url=url,
        state="dead",
        kind="timeout",
        detail="slow\x1b[2J",
    )
    attempt = Attempt(
        crawl=crawl.id, fingerprint=number, url=url, code=0, kind="timeout", errors=5, wait=8.0
    )
    store.commit(Commit(pages=[page, moved], attempts=[attempt, late], finals=[dead]))
    store.close()
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_every_command_and_option_has_a_help_text() -> None:
    context = click.Context(greencrawl)
    commands = [greencrawl.get_command(context, name) for name in greencrawl.list_commands(context)]
    for command in commands:
        assert command
        commands += command.commands.values() if isinstance(command, click.Group) else ()
        assert command.help
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert all(option.help for option in options)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("crwl", " Did you mean crawl?"), ("stats", " Did you mean status"), ("z", "")],
)
def test_a_mistyped_command_is_answered_with_those_of_similar_names(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    code, _, err = run(capsys, typed, "https://example.org/")
    assert (code, f"No such command '{typed}'.{meant}" in err) == (2, True)


def test_bad_settings_are_wrong_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENCRAWL_BIND", "nowhere")
    monkeypatch.setenv("GREENCRAWL_NONSENSE", "1")
    code, _, err = run(capsys, "status")
    assert code == 2
    assert "GREENCRAWL_BIND" in err
    assert "GREENCRAWL_NONSENSE" in err
    assert err.count("\n") == 1


def test_a_refused_token_is_answered_with_the_name_of_its_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused(401, {"title": "Unauthorized", "detail": "send a token"})

    monkeypatch.setattr("greencrawl.cli.main.greencrawl.main", refuse)
    assert main(["status"]) == 1
    assert "set GREENCRAWL_ADMIN_TOKEN" in capsys.readouterr().err


def test_unknown_command_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "crawll")
    assert code == 2
    assert "crawll" in err


@pytest.mark.parametrize(
    "command", [("status",), ("export",), ("dead",), ("explain", "example.org")]
)
def test_a_command_says_that_nothing_was_crawled_yet_and_creates_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, _, err = run(capsys, *command, "--data", "none")
    assert code == 1
    assert "nothing has been crawled" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", [("seed", "example", "example.org"), ("status", "--watch")])
def test_command_that_needs_a_broker_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    code, _, err = run(capsys, *command, "--data", "none")
    assert code == 1
    assert "greencrawl up" in err


def test_hook_that_does_not_exist_is_found_before_anything_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "crawl", "example.org", "--hook", "no.such.module")
    assert code == 2
    assert "hook" in err
    assert not (tmp_path / "data").exists()


def test_demo_takes_no_url(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "crawl", "--demo", "example.org")
    assert code == 2
    assert "--demo" in err


def test_status_without_a_broker_names_the_slowest_hosts_that_the_store_knows(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    assert "slowest hosts: none yet" in run(capsys, "status", "--data", str(filled))[1]
    store = open_store(f"sqlite:///{filled / 'content.sqlite'}")
    crawls = store.crawls()[0], store.put_crawl("other", CrawlOptions(), [])
    times = (("fast.example", 0.5), ("slow.example", 2.0)), (("fast.example", 1.0),)
    for crawl, hosts in zip(crawls, times, strict=True):
        for number, (host, seconds) in enumerate(hosts):
            answer = Attempt(
                crawl=crawl.id,
                fingerprint=number,
                url=f"https://{host}/",
                code=200,
                kind="",
                errors=0,
                wait=None,
                elapsed_ms=round(seconds * 1000),
            )
            store.commit(Commit(attempts=[answer]))
    store.close()
    _, out, _ = run(capsys, "status", "--data", str(filled))
    assert "slowest hosts: slow.example 2.00 s, fast.example 1.00 s\n" in out
    _, out, _ = run(capsys, "status", "example", "--json", "--data", str(filled))
    assert json.loads(out)["slowest"] == [
        {"host": "slow.example", "latency": 2.0},
        {"host": "fast.example", "latency": 0.5},
    ]


def test_a_command_that_finds_nothing_names_the_folder_of_the_demo_if_there_was_one(
    capsys: pytest.CaptureFixture[str], filled: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "outer"
    folder.mkdir()
    commands = ("status",), ("pages",), ("export",), ("store", "status")
    for command in commands:
        _, _, err = run(capsys, *command, "--data", str(folder))
        assert f"nothing has been crawled into {folder} yet; see --data" in err
    filled.rename(folder / "demo")
    for command in commands:
        _, _, err = run(capsys, *command, "--data", str(folder))
        demo = f" (`crawl --demo` has crawled into {folder / 'demo'})"
        assert f"nothing has been crawled into {folder} yet{demo}; see --data" in err


def test_status_without_a_broker_counts_stored_pages(
    capsys: pytest.CaptureFixture[str], filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, "status", "--data", str(filled))
    assert code == 0
    assert "example" in out
    assert "no broker is running" in err
    assert "timeout 1" in out, "as the summary counts them"
    assert "run the same command again, or start" in out
    states = [line.split()[1] for line in out.splitlines() if line.startswith("example ")]
    assert states == ["stopped"], "as the summary calls it"
    with held(filled, "crawl", "http://127.0.0.1:1"):
        _, out, _ = run(capsys, "status", "--data", str(filled))
    assert ("stopped" in out, "same command again" in out) == (False, False), "it may go on"
    monkeypatch.setenv("GREENCRAWL_STORE", f"sqlite:///{filled / 'content.sqlite'}")
    _, out, _ = run(capsys, "status", "--data", str(filled / "other"))
    assert ("active" in out, "same command again" in out) == (True, False), "served elsewhere"
    monkeypatch.delenv("GREENCRAWL_STORE")
    code, out, _ = run(capsys, "status", "--json", "--data", str(filled))
    (one,) = json.loads(out)["crawls"]
    assert code == 0
    unknown = "waiting", "leased", "later", "admitted", "finished", "fetched", "requeued"
    assert [one[name] for name in unknown] == [None] * 7
    assert one["stored"] > 0


def test_status_names_the_broker_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENCRAWL_BROKER", "http://127.0.0.1:1")
    for command in (("status",), ("explain", "https://example.org/")):
        _, _, err = run(capsys, *command, "--data", str(filled))
        assert "no broker answers at http://127.0.0.1:1: " in err


def test_explain_without_a_broker_does_not_call_a_waiting_seed_excluded(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    with contextlib.closing(open_store(f"sqlite:///{filled / 'content.sqlite'}")) as store:
        seed = "https://example.org/seed"
        store.put_crawl("shallow", CrawlOptions(seeds=(seed,), depth=0), ["example.org"])
    found = (("seed", "Not fetched; only"), ("other", "rules keep links to it out (depth 1 > 0)"))
    for path, said in found:
        command = "explain", f"https://example.org/{path}", "--crawl", "shallow"
        _, out, _ = run(capsys, *command, "--data", str(filled))
        assert said in out


def test_a_deletion_shows_its_total_only_if_it_is_known_and_not_exceeded() -> None:
    for removed, total, said in (
        (0, 0, "0 removed"),
        (500, 824, "500 of about 824 removed"),
        (905, 824, "905 removed"),
    ):
        one = Purge(id=1, crawl="x", instance=1, removed=removed, total=total)
        assert removed_text(one) == said


def test_an_unknown_crawl_is_answered_with_the_names_of_the_crawls(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    for command in ("status", "dead", "export"):
        code, _, err = run(capsys, command, "other", "--data", str(filled))
        assert code == 1
        assert "there are: example" in err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.org/", "example: fetched. Stored at"),
        ("https://example.org/moved", "to https://example.net/, which the crawl's rules keep out"),
        ("https://example.org/late", "example: later. Tried and not settled"),
        ("https://example.org/dead", "example: dead. Settled at"),
        ("https://example.org/secret/x", "exclude"),
        ("https://example.net/", "scope host"),
        ("https://example.org/new", "only a running broker knows"),
        ("https://example.org/%64ead", "(slow [2J). It was found as https://example.org/dead."),
    ],
)
def test_explain_without_broker_gives_one_reason(
    capsys: pytest.CaptureFixture[str], filled: Path, url: str, said: str
) -> None:
    code, out, _ = run(capsys, "explain", url, "--data", str(filled))
    assert code == 0
    assert said in out.splitlines()[0]


@pytest.mark.parametrize("limit", ["max-pages", "max-bytes", "host-pages", "shape-pages"])
def test_fresh_is_refused_with_a_limit_before_anything_starts(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for a new crawl: otherwise the same command would be refused the next time."""
    assert main(["crawl", "example.org", "--fresh", f"--{limit}", "5"]) == 2
    said = capsys.readouterr().err
    name = limit.replace("-", "_")
    assert f"--fresh: crawl example.org has {name}, which counts what is fetched again" in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://[::1", "URL: not a URL to crawl (cannot be parsed): 'http://[::1'"),
        ("ftp://example.org/", "URL: not a URL to crawl (neither http nor https)"),
        ("htps://example.org/", "did you mean https://example.org/?"),
        ("example", "URL: 'example' is no URL; if it is a host, give https://example/"),
        ("", "URL: an empty text is no URL"),
    ],
)
def test_explain_refuses_what_is_no_url(
    capsys: pytest.CaptureFixture[str], filled: Path, url: str, said: str
) -> None:
    code, out, err = run(capsys, "explain", url, "--data", str(filled))
    assert (code, out) == (2, "")
    assert said in err


def test_explain_lists_the_tries_and_no_control_characters(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    _, out, _ = run(capsys, "explain", "example.org/dead", "--data", str(filled))
    assert "timeout, errors 5, tried again after 8 s" in out
    assert "\x1b" not in out


def test_dead_lists_and_requeues_without_broker(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    code, out, _ = run(capsys, "dead", "--data", str(filled))
    assert code == 0
    assert out.count("\n") == 1
    assert "\ttimeout\t-\thttps://example.org/dead\t" in out
    assert "\x1b" not in out
    assert run(capsys, "dead", "--requeue", "--data", str(filled))[1] == "1 queued again\n"
    assert run(capsys, "dead", "--requeue", "--data", str(filled))[1] == "0 queued again\n"
    store = open_store(f"sqlite:///{filled / 'content.sqlite'}")
    pending = store.pending_seeds()
    store.close()
    assert [seed.url for batch in pending for seed in batch.urls] == ["https://example.org/dead"]


def test_empty_results_are_said_to_be_empty(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    for arguments, said in (
        (["pages", "--host", "other.example"], "no page matches"),
        (["traps"], "no URL is parked"),
    ):
        code, out, err = run(capsys, *arguments, "--data", str(filled))
        assert (code, out, err) == (0, "", f"{said}\n")
    assert run(capsys, "pages", "--data", str(filled))[2] == ""
    run(capsys, "dead", "--requeue", "--data", str(filled))
    code, out, err = run(capsys, "dead", "--data", str(filled))
    assert (code, out, err) == (0, "", "no URL was given up\n")


@pytest.mark.parametrize(
    ("name", "begins"),
    [("x.csv", b"url,"), ("x.warc.gz", b"\x1f\x8b"), ("x.jsonl", b"{"), ("csv", b"{")],
)
def test_export_takes_the_format_from_the_ending_of_the_file(
    capsys: pytest.CaptureFixture[str], filled: Path, tmp_path: Path, name: str, begins: bytes
) -> None:
    code, _, err = run(capsys, "export", "--data", str(filled), "-o", str(tmp_path / name))
    assert code == 0, err
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_data_folder_that_may_not_be_entered_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(path: Path) -> bool:  # root may enter every folder
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    code, _, err = run(capsys, "pages", "--data", str(tmp_path))
    assert (code, err) == (1, f"greencrawl: cannot read {tmp_path}: Permission denied\n")


def test_the_message_about_a_name_of_a_data_folder_that_is_too_long_is_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = run(capsys, "pages", "--data", "/" + "x" * 5000)
    assert code == 1
    assert err == f"greencrawl: cannot read /{'x' * 199}: File name too long\n"


def test_export_writes_pages_first_and_then_urls_without_a_page(
    capsys: pytest.CaptureFixture[str], filled: Path, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    code, _, err = run(capsys, "export", "--data", str(filled), "-o", str(file))
    assert code == 0
    assert "2 pages, 1 URL without a page" in err
    assert "0.0 MB" not in err
    first, moved, last = file.read_text().splitlines()
    assert '"title":"Home"' in first
    assert '"status":301' in moved
    assert '"state":"dead"' in last
    assert list(tmp_path.glob("*.part")) == []


def test_export_to_an_impossible_place_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    code, _, err = run(capsys, "export", "--data", str(filled), "-o", "absent/out.jsonl")
    assert code == 1
    assert "cannot write absent/out.jsonl" in err
    assert "there is no folder absent" in err


def test_a_summary_file_that_cannot_be_written_is_refused_before_the_crawl(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "crawl", "example.org", "--summary", "absent/summary.json")
    assert code == 2
    assert "--summary: there is no folder absent" in err
    assert not (tmp_path / "data").exists()


def test_explain_says_what_a_url_without_a_scheme_is_taken_for(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    with contextlib.closing(open_store(f"sqlite:///{filled / 'content.sqlite'}")) as store:
        url = "http://example.org/plain"
        crawl = store.crawl("example").id
        number = fingerprint(url, SECRET)
        store.commit(Commit([StoredPage(crawl=crawl, fingerprint=number, url=url, status=200)]))
    for typed, taken, said in (
        ("example.org/moved", "https://example.org/moved", "fetched"),
        ("example.org/plain", "http://example.org/plain", "fetched"),
        ("example.org/other", "https://example.org/other", "unseen"),
    ):
        _, out, err = run(capsys, "explain", typed, "--data", str(filled))
        assert f"without a scheme, taken for {taken}\n" in err
        assert f"example: {said}." in out
    assert (
        "taken for" not in run(capsys, "explain", "http://example.org/", "--data", str(filled))[2]
    )


def test_explain_lists_the_versions_of_a_page_that_was_fetched_again(
    capsys: pytest.CaptureFixture[str], filled: Path
) -> None:
    url = "https://example.org/"
    _, out, _ = run(capsys, "explain", url, "--data", str(filled))
    assert "version" not in out
    store = open_store(f"sqlite:///{filled / 'content.sqlite'}")
    page = StoredPage(crawl=1, fingerprint=fingerprint(url, SECRET), url=url, status=200)
    for moment, body in ((86_400_000, b"new"), (2 * 86_400_000, b"new")):
        store.commit(Commit([replace(page, fetched_ms=moment, body=body)]))
    store.close()
    _, out, _ = run(capsys, "explain", url, "--data", str(filled))
    digest = hashlib.sha256(b"new").hexdigest()[:12]
    assert out.splitlines()[1:] == [
        f"  1970-01-03 00:00:00 UTC  version {digest}, unchanged, status 200, 3 bytes",
        f"  1970-01-02 00:00:00 UTC  version {digest}, changed, status 200, 3 bytes",
        "  1970-01-01 00:00:00 UTC  version -, first, status 200, 0 bytes",
    ]


def test_migrate_applies_what_is_due_and_leaves_the_second_part_for_migrate_post(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migrations are those of the next version, and have a second part."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "content.sqlite"
    create(path)
    newer = later_version(tmp_path / "newer")
    monkeypatch.setattr(migrating, "open_upgrade", lambda _: SqliteUpgrade(path, newer))
    code, out, _ = run(capsys, "migrate", "--dry-run", "--data", str(folder))
    assert code == 0
    due = [one for one in load(newer) if not one.base]
    now = [one for one in due if not one.post]
    assert [str(one) for one in due if one.post] == ["9002_post_reasons"]
    assert out.splitlines()[: len(due)] == [
        f"{one}: {'waits' if one.post else 'would be applied'}" for one in due
    ]
    code, out, _ = run(capsys, "migrate", "--data", str(folder))
    lines = out.splitlines()
    for line, one in zip(lines, now, strict=False):
        assert re.fullmatch(rf"{one} … \d+\.\d s", line)
    assert "1 left for when no process of an older version runs" in lines[len(now)]
    assert "migrate --post" in out
    code, out, _ = run(capsys, "migrate", "--dry-run", "--post", "--data", str(folder))
    assert out == "9002_post_reasons: would be applied\n"
    code, out, _ = run(capsys, "migrate", "--post", "--data", str(folder))
    assert re.match(r"9002_post_reasons … \d+\.\d s\n.*is up to date now\n", out)
    code, out, _ = run(capsys, "migrate", "--data", str(folder))
    assert (code, out.endswith("content.sqlite is up to date\n")) == (0, True)


def test_migrate_makes_a_store_where_there_is_none_and_refuses_a_newer_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    _, out, _ = run(capsys, "migrate", "--dry-run", "--data", str(folder))
    assert out.splitlines()[0] == "0008_base: would be applied"
    assert "waits" not in out
    assert not (folder / "content.sqlite").exists()
    _, out, _ = run(capsys, "migrate", "--data", str(folder))
    assert out.endswith("is up to date now\n")
    raw = sqlite3.connect(folder / "content.sqlite", isolation_level=None)
    raw.execute("INSERT INTO migrations VALUES (9002, 'post_future', 'x', 0)")
    raw.close()
    code, _, err = run(capsys, "migrate", "--data", str(folder))
    assert code == 2
    assert "newer version of Greencrawl (migration 9002_post_future" in err


def test_the_demo_keeps_its_pages_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENCRAWL_STORE", "mysql://u:p@store.example/pages")
    settings = copy_context().run(lambda: crawling._demo_settings(connecting.load(str(tmp_path))))
    own = f"sqlite:///{tmp_path / 'demo' / 'content.sqlite'}"
    assert settings.store_url == own
    assert crawling._environment(settings, "http://127.0.0.1:1")["GREENCRAWL_STORE"] == own


def test_store_status_of_a_file_shows_its_rows(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "store", "status", "--data", str(filled))
    assert code == 0
    assert str(filled / "content.sqlite") in out
    counts = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:]}
    assert counts["pages"] == "2"
    assert counts["finals"] == "1"


def test_store_status_without_a_store_creates_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "store", "status", "--data", str(tmp_path / "none"))
    assert code == 1
    assert "nothing has been crawled" in err
    assert not (tmp_path / "none").exists()


def test_store_commands_for_a_ring_are_refused_without_a_ring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (["form"], ["takeover"], ["rejoin", "127.0.0.1:3306"]):
        code, _, err = run(capsys, "store", *command)
        assert code == 2
        assert "names no ring of two masters" in err


def test_takeover_gives_up_rows_of_the_writer_only_after_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, _ = run(capsys, "store", "takeover", "--lose")
    assert code == 130
    assert "Go on?" in out


def test_store_status_of_a_file_that_is_no_store_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "other.sqlite")) as database:
        database.execute("CREATE TABLE theirs (a)")
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "junk.sqlite").write_bytes(b"junk " * 1000)
    for name, said in (("other", "no store of"), ("empty", "no store of"), ("junk", "damaged")):
        monkeypatch.setenv("GREENCRAWL_STORE", f"sqlite:///{tmp_path / name}.sqlite")
        code, _, err = run(capsys, "store", "status")
        assert code == 1
        assert said in err


def test_store_status_accepts_special_characters_in_the_name_of_the_folder(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = filled.rename(filled.with_name("a?b#c%20"))
    assert run(capsys, "store", "status", "--data", str(odd))[0] == 0


def test_store_status_of_a_file_is_not_available_as_json(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "store", "status", "--json", "--data", str(filled))
    assert (code, out) == (2, "")
    assert "ring" in err


@pytest.mark.parametrize(
    "command", [["export"], ["pages"], ["page", "https://example.org/"], ["migrate"]]
)
def test_a_full_disk_under_the_output_is_one_clear_error(filled: Path, command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "greencrawl.cli", *command, "--data", str(filled)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment(),
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "greencrawl: cannot write the output: No space left on device\n"


def test_an_export_into_a_named_pipe_leaves_the_pipe_in_place(filled: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "greencrawl", "export", "-o", pipe, "--data", str(filled)],
                check=False, env=environment(), timeout=60,
            )  # fmt: skip
            assert reader.communicate(timeout=10)[0].count("\n") == 3
        finally:
            reader.kill()
    assert ended.returncode == 0
    assert pipe.is_fifo()
    assert sorted(tmp_path.glob("pipe*")) == [pipe]


def test_an_export_to_a_dash_writes_to_standard_output(
    filled: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", "-o", "-", "--data", str(filled)]) == 0
    assert main(["page", "https://example.org/", "--text", "-o", "-", "--data", str(filled)]) == 0
    assert not list(tmp_path.glob("-*"))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def test_store_status_says_why_a_server_counts_as_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GREENCRAWL_STORE", "mysql://u:s3cret@127.0.0.1:1,127.0.0.1:2/db")
    code, out, err = run(capsys, "store", "status")
    assert code == 1
    assert "! 127.0.0.1:2: " in out
    assert "Connection refused" in out
    assert "s3cret" not in out + err
