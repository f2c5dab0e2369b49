"""``greencrawl traps``, from the store alone and by a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Commit, CrawlOptions, Final, FrontierIdentity, StoredPage
from greencrawl.store import open_store
from tests.support.broker_process import BrokerProcess
from tests.support.system import wait_until

DAYS, TAGS = "https://example.org/cal/{n}?day={n}&m={n}", "https://example.org/tag/{w}"


def fill(folder: Path) -> None:
    """A page; three parked days; and a parked tag with a reason that cannot be trusted."""
    store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
    identity = FrontierIdentity(
        id="f", secret=7, partitions=64, suffixes=SUFFIXES, canonicaliser=CANONICALISER,
        layout=1, nodes=("n",), placement=(0,),
    )  # fmt: skip
    secret = (store.frontier() or store.create_frontier(identity)).secret
    crawl = store.put_crawl("shop", CrawlOptions(delay=0), ["example.org"]).id

    def parked(path: str, shape: str, detail: str) -> Final:
        url = f"https://example.org/{path}"
        return Final(
            crawl=crawl, fingerprint=fingerprint(url, secret), url=url, state="parked",
            kind="trap", detail=detail, shape=shape, depth=2, at_ms=1_772_323_200_000,
        )  # fmt: skip

    home = "https://example.org/"
    page = StoredPage(
        crawl=crawl, fingerprint=fingerprint(home, secret), url=home, status=200, body=b"x"
    )
    days = [parked(f"cal/{n}?day=1&m=2", DAYS, "nothing new in 20 fetches") for n in range(3)]
    store.commit(Commit([page], finals=[*days, parked("tag/x", TAGS, "odd \x1b[2J")]))
    store.set_state(crawl, "done", "finished")
    store.close()


@pytest.fixture(params=["store", "broker"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    for name in ("DATA", "BIND", "BROKER", "STORE", "REDIS", "ADMIN_TOKEN"):
        monkeypatch.delenv(f"GREENCRAWL_{name}", raising=False)
    folder = tmp_path / "data"
    monkeypatch.setenv("GREENCRAWL_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    if request.param == "store":
        fill(folder)
        yield request.param
        return
    broker = BrokerProcess(folder).start()
    try:
        fill(folder)
        monkeypatch.setenv("GREENCRAWL_BROKER", broker.url)
        yield request.param
    finally:
        broker.stop()


def test_shapes_are_listed_explained_and_released(
    source: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def said(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    lines = [line.split("\t") for line in said("traps").splitlines()]
    assert [(line[0], line[3], line[4]) for line in lines] == [
        ("3", DAYS, "nothing new in 20 fetches"), ("1", TAGS, lines[1][4]),
    ]  # fmt: skip
    assert lines[1][5] == "https://example.org/tag/x"
    assert "\x1b" not in lines[1][4]
    told = said("explain", "https://example.org/tag/x")
    assert "shop: parked. " in told
    assert f"of the shape {TAGS}; `greencrawl traps shop --release '{TAGS}'" in told

    assert said("traps", "shop", "--release", TAGS).startswith("1 queued; nothing of this shape")
    assert said("traps", "--release", TAGS).startswith("0 queued")
    assert main(["traps"]) == 0
    shown = capsys.readouterr()
    assert [line.split("\t")[3] for line in shown.out.splitlines()] == [DAYS]
    assert "released: 1" in shown.err
    assert f"--release '{DAYS}'" in shown.err, "quoted for the shell"
    (stats,) = json.loads(said("status", "--json"))["crawls"]
    assert stats["state"] == "active", "it was done"

    assert said("traps", "shop", "--all").startswith("3 queued; nothing is parked any more")
    assert said("traps") == ""
    store = open_store(f"sqlite:///{tmp_path / 'data' / 'content.sqlite'}")
    crawl = store.crawl("shop")
    assert crawl.released == ("*",)
    queued = {item.url for batch in store.seeds(crawl.id) for item in batch.urls}
    store.close()
    assert len(queued) == 4

    def waits() -> bool:
        return "shop: waiting" in said("explain", "https://example.org/cal/1?day=1&m=2")

    if source == "broker":
        wait_until(waits, 20, "the URL waits again", every=0.2)


def test_traps_releases_either_one_shape_or_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for wrong in (["--all", "--release", TAGS], ["--release", ""]):
        assert main(["traps", "--data", str(tmp_path), *wrong]) == 2
        assert "releases one shape" in capsys.readouterr().err
