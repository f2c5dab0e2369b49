"""The rows that a store drops by itself: none that a recovery needs, and enough of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.retention import DAY_SECONDS, FIRST_SECONDS, Limits, Retention
from greencrawl.schema.records import Admission, Commit, CrawlOptions, Final, StoredPage
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN, Store
from greencrawl.store.months import month_of, start_ms
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.sqlite.store import SqliteStore
from tests.broker.frontier.recovery.test_recovery import Rig, no_margin
from tests.support.mysql_database import rows_of, server, topology
from tests.support.queue_double import QueueDouble
from tests.support.store_records import attempt

__all__ = ["no_margin", "server", "topology"]  # fixtures

DAY_MS = 86_400_000
BEGIN_MS = start_ms(month_of(1_900_000_000_000))


@pytest.fixture(params=["sqlite", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A rig over an empty store of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'c.sqlite'}"
    asked: Topology = request.getfixturevalue("topology")
    server = request.getfixturevalue("server")
    return str(server.url.rpartition("/")[0] + f"/{asked.database}")


class Kept(Rig):
    """A frontier over a store of either kind."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        super().__init__(folder)

    def open_store(self) -> Store:
        return open_store(self.url)

    def final(self, name: str, state: Any) -> None:
        url = f"http://{name}"
        number = self.frontier.fingerprint(url)
        final = Final(
            crawl=self.crawl.id, fingerprint=number, url=url, state=state, kind="timeout", at_ms=1
        )
        self.store.commit(Commit(finals=[final]))


@pytest.fixture
def rig(tmp_path: Path, url: str) -> Iterator[Kept]:
    made = Kept(tmp_path, url)
    made.frontier.start()
    yield made
    made.stop()


def fill(rig: Kept) -> None:
    """URLs in every state, and batches, some of which are no longer needed."""
    rig.seed("h.example/")
    rig.seed("h.example/gone", "h.example/dead")
    rig.seed("h.example/fetched", "h.example/waiting")
    rig.store_page("h.example/", "h.example/x", "other.example/y")
    rig.store_page("h.example/fetched")
    rig.final("h.example/gone", "gone")
    rig.final("h.example/dead", "dead")
    rig.tick(2)
    batch = rig.store.requeue_dead(rig.crawl.id)
    assert batch is not None
    rig.store.seeds_admitted(batch.id)
    rig.seed("h.example/", "h.example/fetched", force=True)
    rig.seed("h.example/fetched", force=True)
    rig.tick(2)
    rig.store_page("h.example/fetched")


def drop(rig: Kept) -> None:
    service = Service(rig.frontier, rig.store, duties=rig.frontier.duties)
    retention = Retention(service, Limits(1, 1, 1))
    duty = service.duties.take("retention")
    assert duty is not None
    retention.sweep(duty, 2 * BEGIN_MS)


WAITING = [
    "h.example/", "h.example/dead", "h.example/waiting", "h.example/x", "other.example/y",
]  # fmt: skip


@pytest.mark.parametrize("dropped", [False, True])
def test_an_empty_redis_is_refilled_alike_with_and_without_dropped_rows(
    rig: Kept, dropped: bool
) -> None:
    fill(rig)
    before = [batch.id for batch in rig.store.seeds(rig.crawl.id)]
    counts = rig.store.counts(rig.crawl.id)
    if dropped:
        drop(rig)
        after = [batch.id for batch in rig.store.seeds(rig.crawl.id)]
        assert after == before[1:5], "whose URLs are not settled, or not since they were forced"
        assert rig.store.counts(rig.crawl.id) == counts
    rig.tick(3 * MARGIN)
    rig.server.client.flushall()
    totals = rig.refilled()
    assert rig.frontier.repairs()[0].everything
    assert (totals.admitted, totals.finished, totals.waiting) == (8, 3, 5)
    assert rig.waiting() == WAITING


@pytest.mark.parametrize("dropped", [False, True])
def test_an_older_redis_is_refilled_alike_with_and_without_dropped_rows(
    rig: Kept, dropped: bool
) -> None:
    rig.seed("h.example/before")
    rig.tick(MARGIN + 3)
    older = rig.saved()
    fill(rig)
    if dropped:
        drop(rig)
    rig.put_back(older)
    rig.refilled()
    # URLs that were forced in the window are queued again, although they were fetched since.
    found = {*WAITING, "h.example/before", "h.example/fetched"}
    assert set(rig.waiting()) == found


# -- growth

EVERY = 10
"""Days between two fetches."""
COUNTED = ("attempts", "versions", "seed_batches", "blocks", "pages", "finals")


def test_the_store_stops_growing_though_a_crawl_refetches_its_pages(
    request: pytest.FixtureRequest, url: str
) -> None:
    """Two pages every ten days, seeded by force, each time with a failure and a block."""
    store, queue, now = open_store(url), QueueDouble(), [0.0]
    service = Service(queue, store, clock=lambda: now[0])
    retention = Retention(service, Limits(journal_months=2, journal_days=30, version_days=60))
    crawl = store.put_crawl("news", CrawlOptions(), []).id

    def rows() -> int:
        sql = "SELECT " + " + ".join(f"(SELECT COUNT(*) FROM {name})" for name in COUNTED)
        if isinstance(store, SqliteStore):
            return int(store._questions.run(lambda db: db.execute(sql).fetchone())[0])
        return int(rows_of(request.getfixturevalue("topology"), sql)[0][0])

    sizes: list[int] = []
    for day in range(0, 300, EVERY):
        at_ms, urls = BEGIN_MS + day * DAY_MS, [f"http://a.example/{n}" for n in range(2)]
        batch = store.add_seeds(crawl, [Admission(url) for url in urls], force=True)
        store.seeds_admitted(batch)
        store.tick()
        numbers = [queue.fingerprint(url) for url in urls]
        pages = [
            StoredPage(crawl=crawl, fingerprint=n, url=url, status=200, fetched_ms=at_ms)
            for n, url in zip(numbers, urls, strict=True)
        ]
        tries = [attempt(crawl, n, at_ms) for n in numbers]
        tries.append(attempt(crawl, numbers[0], at_ms - 5, kind="timeout", code=0))
        store.commit(Commit(pages, tries))
        store.put_block(f"h{day}.example", at_ms + 60_000, "429")
        retention.look(at_ms)
        now[0] += DAY_SECONDS + FIRST_SECONDS
        sizes.append(rows())
    counts = store.counts(crawl)
    service.duties.stop()
    store.close()
    third = len(sizes) // 3  # 100 days; after that the oldest are gone
    assert (
        max(sizes[2 * third :])
        <= max(sizes[third : 2 * third])
        < 0.5 * sum(2 * 2 + 1 + 1 + 1 for _ in sizes)
    )
    assert counts["attempts"] == 3 * len(sizes)
    assert counts["pages"] == 2
