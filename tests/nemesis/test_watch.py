"""The watch distinguishes an end that is too early from one that is about to be revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.records import Admission, CrawlOptions
from greencrawl.store import open_store
from tests.nemesis import site, watch
from tests.nemesis.api import Call
from tests.nemesis.reading import CrawlRow, Snapshot, waiting
from tests.nemesis.site import Graph
from tests.nemesis.watch import Watch
from tests.nemesis.world import World
from tests.support.redis_server import RedisServer

GRAPH = Graph(1, 0, 2, 3)
SEEDS = GRAPH.seeds(1, 8000)


class Store:
    """A world with only a store, which has one crawl, and a ledger."""

    def __init__(self, state: str) -> None:
        pages = dict.fromkeys(site.reachable(SEEDS), 200)
        self.found = Snapshot(CrawlRow(1, "c", state, "finished", False), pages)
        self.ledger = [Call("create", "c", 0, 0.1, 201, urls=SEEDS)]

    def sql(self) -> Store:
        return self

    @property
    def api(self) -> Store:
        return self

    def calls(self) -> list[Call]:
        return self.ledger

    def snapshot(self, crawl: int) -> Snapshot:
        return self.found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(watch, "monotonic", lambda: at[0])
    return at


def kinds(store: Store, clock: list[float], *looks: set[str], limit: int = 0) -> list[str]:
    """Return findings after looks ten seconds apart, at each of which these URLs were missing."""
    seen = Watch(cast(World, store), lambda _: None)
    seen.limits["c"] = limit
    for missing in looks:
        kept: dict[str, Any] = {url: 200 for url in site.reachable(SEEDS) if url not in missing}
        store.found.pages = kept
        seen.look_for_early_end(store.found.crawl)
        clock[0] += 10
    return [finding.kind for finding in seen.findings]


def test_the_end_of_a_crawl_is_early_if_the_same_urls_are_missing_twice(clock: list[float]) -> None:
    first, second = sorted(site.reachable(SEEDS))[-2:]
    assert kinds(Store("done"), clock, {first, second}, {second}) == ["early"]
    assert kinds(Store("done"), clock, {first}, {second}) == []
    assert kinds(Store("done"), clock, {first}, set(), {first}) == []
    assert kinds(Store("active"), clock, {first}, {first}) == []


def test_the_end_of_a_crawl_with_a_page_limit_is_early_if_pages_are_missing(
    clock: list[float],
) -> None:
    def found(limit: int, reason: str) -> list[str]:
        store = Store("done")
        store.found.crawl.reason = reason
        return kinds(store, clock, missing, missing, limit=limit)

    missing = set(sorted(site.reachable(SEEDS))[-2:])
    stored = len(site.reachable(SEEDS)) - len(missing)
    for reason in ("finished", "max_pages"):
        assert found(stored + 1, reason) == ["early"]
        assert found(stored, reason) == []


def test_a_crawl_that_is_being_deleted_has_no_early_end(clock: list[float]) -> None:
    store = Store("done")
    store.ledger.append(Call("delete", "c", 1))
    missing = set(sorted(site.reachable(SEEDS))[-1:])
    assert kinds(store, clock, missing, missing) == []


def test_the_log_of_the_site_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1.5\t2.5\t127.20.0.2\t/x\t200\t4000\n2.0\t")
    assert [hit.ended for hit in watch.read_log(log)] == [2.5]


def test_waiting_urls_are_read_from_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    found = [f"http://127.0.0.{n}:8080/g1x2x3x4/p/{n}" for n in range(3)]
    crawls = []
    for name in ("one", "other"):
        crawl = store.put_crawl(name, CrawlOptions(scope="any"), ())
        frontier.put_crawl(crawl)
        frontier.admit(crawl.id, [Admission(url, 1) for url in found])
        crawls.append(crawl.id)
    assert waiting(redis_server.client, {crawls[0]}) == {crawls[0]: set(found)}
    frontier.stop()
    store.close()
