"""Changes in a crawl and in a page, by the commands, with a broker and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.clock import epoch_ms
from greencrawl.store.export.objects import iso8601
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

TEXT = "The old bridge over the river was closed for repairs in the year {year}, said the town."


class Town:
    """``/`` links to two pages; their texts may change, and one may go."""

    def __init__(self) -> None:
        self.year = 1990
        self.links = ["/bridge", "/same", "/going"]
        self.gone: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        if request.target == "/robots.txt" or request.target in self.gone:
            return Answer(404)
        if request.target == "/bridge":
            text = "".join(f"<p>{TEXT.format(year=year)}</p>" for year in (1970, 1980, self.year))
            body = f"<title>Bridge</title><body><article><h1>Bridge</h1>{text}</article>"
            return Answer(body=body.encode(), headers={"Content-Type": "text/html"})
        return Answer(body=html(request.target, self.links if request.target == "/" else []))


def said(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main(list(command)) in (0, 1), capsys.readouterr().err
    return capsys.readouterr().out


@pytest.fixture
def _own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_own")
def test_commands_show_changes_versions_and_a_diff_with_and_without_a_broker(
    tmp_path: Path,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site, data = Town(), str(tmp_path / "data")
    with SiteServer(site) as server, System(tmp_path, [redis_server.url]).start() as system:
        urls = {path: server.url(path) for path in ("/", *site.links, "/new")}
        system.crawl([urls["/"]], delay=0, keep_versions=1)
        system.wait_done(30)
        first = max(one["fetched_ms"] for one in stored(system))
        site.year, site.gone = 1991, {"/going"}
        site.links = ["/bridge", "/same", "/new"]
        wait_until(lambda: epoch_ms() > first + 1, 10, "time has passed")
        system.call("POST", "/v1/crawls/test/rounds")
        system.wait_done(30)
        since = iso8601(first + 1) or ""
        monkeypatch.setenv("GREENCRAWL_BROKER", f"http://127.0.0.1:{system.port}")
        at_broker = look(capsys, data, since, urls["/bridge"])
        stats = system.call("GET", f"/v1/crawls/test/changes?since={since}&limit=1")
        assert (len(stats["items"]), bool(stats["next"])) == (1, True)
    monkeypatch.delenv("GREENCRAWL_BROKER")
    alone = look(capsys, data, since, urls["/bridge"])
    assert alone == at_broker
    changes, versions, diff = alone
    assert changes == {
        urls["/"]: "changed", urls["/bridge"]: "changed", urls["/new"]: "new",
        urls["/going"]: "gone",
    }  # fmt: skip
    assert [line.split()[-2] for line in versions] == ["changed", "first"]
    changed = [line for line in diff if line[0] in "+-"][2:]
    assert changed == ["-" + TEXT.format(year=1990), "+" + TEXT.format(year=1991)]


def look(
    capsys: pytest.CaptureFixture[str], data: str, since: str, url: str
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return (URL → change, lines of its versions, lines of its diff)."""
    found = said(capsys, "changes", "test", "--since", since, "--json", "--data", data)
    items = [json.loads(line) for line in found.splitlines()]
    versions = said(capsys, "versions", url, "--data", data).splitlines()
    return (
        {one["url"]: one["change"] for one in items},
        versions,
        said(capsys, "diff", url, "--data", data).splitlines(),
    )


def stored(system: System) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.call("GET", "/v1/pages?crawl=test")["items"]
    return found
