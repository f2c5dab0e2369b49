"""``greencrawl hooks``, from the store alone and by a running broker."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Commit, CrawlOptions, FrontierIdentity, HookRun, StoredPage
from greencrawl.store import open_store
from tests.support.broker_process import BrokerProcess
from tests.support.system import wait_until

HOOK = """
import time
def on_page(page, fetched):
    if page.url.endswith("hang"):
        time.sleep(60)
    return {"title": page.title}
def links(page, links):
    return links[1:]
"""


def fill(folder: Path) -> None:
    """Pages on which a hook failed in different ways."""
    with_store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    identity = FrontierIdentity(
        id="f", secret=7, partitions=64, suffixes=SUFFIXES, canonicaliser=CANONICALISER,
        layout=1, nodes=("n",), placement=(0,),
    )  # fmt: skip
    secret = (with_store.frontier() or with_store.create_frontier(identity)).secret
    crawl = with_store.put_crawl("shop", CrawlOptions(hook="own"), ["example.org"]).id
    work = Commit()
    for name in ("a", "b", "c", "d", "hang", "gone"):
        url = f"https://example.org/{name}"
        number = fingerprint(url, secret)
        body = b"" if name == "gone" else b"<title>T</title><a href=/1>1</a><a href=/2>2</a>"
        work.pages.append(
            StoredPage(
                crawl=crawl, fingerprint=number, url=url, final_url=url, status=200, body=body,
                headers={"content-type": "text/html"}, fetched_ms=1_772_323_200_000,
            )
        )  # fmt: skip
        failures = {"on_page": "KeyError: 'price'"}
        if name == "a":
            failures = {"links": "TypeError: \x1b[2J", "request": "E: x"}
        work.hooks.append(
            HookRun(
                crawl=crawl, fingerprint=number, url=url, at_ms=1_772_323_200_000,
                failures=failures,
            )
        )  # fmt: skip
    with_store.commit(work)
    with_store.close()


@pytest.fixture(params=["store", "broker"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A data folder with a crawl, read directly or through a broker; and the folder of its hook."""
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS", "ADMIN_TOKEN"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    folder = tmp_path / "data"
    monkeypatch.setenv("GREENCRAWL_DATA", str(folder))
    monkeypatch.setenv("GREENCRAWL_STALL_SECONDS", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(HOOK)
    if request.param == "store":
        fill(folder)
        yield request.param
    else:
        broker = BrokerProcess(folder).start()
        try:
            fill(folder)
            monkeypatch.setenv("GREENCRAWL_BROKER", broker.url)
            yield request.param
        finally:
            broker.stop()
    sys.modules.pop("own", None)


def test_failures_of_a_hook_are_listed_by_message_and_the_hook_is_run_again(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hooks", "shop"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["on_page", "5", "pages", "KeyError:", "'price'"]
    assert len(shown) == 1 + 3 + 2 * 2
    assert "\x1b" not in "".join(shown)
    assert main(["hooks", "--urls"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {(line[1], line[3]) for line in lines} == {
        *(("on_page", f"https://example.org/{name}") for name in ("b", "c", "d", "hang", "gone")),
        ("links", "https://example.org/a"),
        ("request", "https://example.org/a"),
    }
    assert main(["status", "--json"]) == 0
    (stats,) = json.loads(capsys.readouterr().out)["crawls"]
    assert stats["hooks"][0] == {"function": "on_page", "message": "KeyError: 'price'", "pages": 5}

    if source == "broker":
        with urllib.request.urlopen(f"{os.environ['GREENCRAWL_BROKER']}/metrics") as answer:
            shown = answer.read().decode().splitlines()
        labels = 'crawl="shop",function="on_page"'
        assert f"greencrawl_crawl_hook_failed_pages{{{labels}}} 5.0" in shown

    assert main(["hooks", "shop", "--again"]) == 1
    out = capsys.readouterr()
    assert "4 pages mended, 1 failed again" in out.out
    assert "no body: https://example.org/gone" in out.err
    assert "1 page failed in request" in out.out
    assert out.out.splitlines()[-1].startswith("running workers keep") == (source == "broker")
    assert main(["hooks", "shop", "--urls"]) == 0
    left = {tuple(line.split("\t")[1:]) for line in capsys.readouterr().out.splitlines()}
    assert left == {
        ("on_page", "KeyError: 'price'", "https://example.org/gone"),
        ("on_page", "read alone, it did not end within 1 s", "https://example.org/hang"),
        ("request", "E: x", "https://example.org/a"),
    }
    assert main(["page", "https://example.org/b"]) == 0
    assert 'fields        {"title":"T"}' in capsys.readouterr().out

    def queued() -> bool:
        main(["explain", "https://example.org/2"])
        return "waiting" in capsys.readouterr().out

    if source == "broker":
        wait_until(queued, 20, "the new link is queued", every=0.2)


def test_a_hook_that_cannot_be_imported_is_reported_at_once(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text("import nothing_of_that_name\n")
    assert main(["hooks", "shop", "--again"]) == 2
    assert "cannot import 'own'" in capsys.readouterr().err
