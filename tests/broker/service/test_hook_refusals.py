"""Crawls whose hook cannot be imported: what a worker refuses, and how a broker reports it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from greencrawl.broker.service.hook_refusals import LIFE_SECONDS, Refusals
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    CrawlStats,
    HookRefusal,
    KernelRule,
    LeaseRequest,
    Refusal,
)
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.worker.crawls import TRY_AGAIN_SECONDS, Crawls, Refused


class Hands:
    """A clock that the test sets by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Crawls by number."""

    def __init__(self, hook: str) -> None:
        options = CrawlOptions(hook=hook)
        self.crawl_: Crawl | None = Crawl(
            id=1, name="shop", state="active", options=options, revision=1
        )
        self.away = False
        self.asked = 0

    def crawl(self, name_or_id: str | int) -> Crawl:
        self.asked += 1
        if self.away:
            raise Unavailable("the store is away")
        if self.crawl_ is None:
            raise UnknownCrawl("1")
        return self.crawl_


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, from which a user's module is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


# -- the worker


def test_a_hook_module_that_was_added_after_a_refusal_is_found(folder: Path) -> None:
    source, hands = Source("own_module"), Hands()
    crawls = Crawls(source, hands)
    assert crawls.refusals() == ()
    with pytest.raises(Refused, match="cannot import 'own_module'"):
        crawls.get(1, 1)
    (refusal,) = crawls.refusals()
    assert (refusal.crawl, refusal.hook) == (1, "own_module")
    (folder / "own_module.py").write_text("def on_page(page, fetched): ...\n")
    asked = source.asked
    with pytest.raises(Refused):  # it is not tried for each session
        crawls.get(1, 1)
    assert source.asked == asked
    hands.now += TRY_AGAIN_SECONDS
    assert crawls.refusals() == ()
    assert crawls.get(1, 1).hooks.on_page is not None


def test_a_crawl_is_tried_again_at_once_after_its_hook_was_changed(folder: Path) -> None:
    source = Source("own_module")
    crawls = Crawls(source, Hands())
    with pytest.raises(Refused):
        crawls.get(1, 1)
    assert source.crawl_ is not None
    source.crawl_ = replace(source.crawl_, options=CrawlOptions(), revision=2)
    assert crawls.get(1, 2).crawl.revision == 2
    assert crawls.refusals() == ()


def test_a_kernel_that_cannot_be_imported_is_refused_as_a_hook_is(folder: Path) -> None:
    source, hands = Source("own_module"), Hands()
    (folder / "own_module.py").write_text("def on_page(page, fetched): ...\n")
    assert source.crawl_ is not None
    kernels = (KernelRule(match="*", kernel="own_kernel:Kernel"),)
    options = replace(source.crawl_.options, kernels=kernels)
    source.crawl_ = replace(source.crawl_, options=options)
    crawls = Crawls(source, hands)
    with pytest.raises(Refused, match="cannot import 'own_kernel'"):
        crawls.get(1, 1)
    (refusal,) = crawls.refusals()
    assert refusal.hook == "own_module, own_kernel:Kernel"
    source.crawl_ = replace(source.crawl_, options=replace(options, hook=""), revision=2)
    with pytest.raises(Refused, match="cannot import 'own_kernel'"):
        crawls.get(1, 2)
    lines = ["from tests.support.own_kernels import Plain", "class Kernel(Plain): ..."]
    (folder / "own_kernel.py").write_text("\n".join(lines))
    hands.now += TRY_AGAIN_SECONDS
    assert crawls.refusals() == ()
    assert "lines" in crawls.get(1, 2).kernels.by_name


def test_a_kernel_that_is_not_permitted_is_not_imported(folder: Path) -> None:
    source = Source("")
    assert source.crawl_ is not None
    kernels = (KernelRule(match="*", kernel="own_kernel:Kernel"),)
    source.crawl_ = replace(source.crawl_, options=CrawlOptions(kernels=kernels))
    (folder / "own_kernel.py").write_text("raise AssertionError('it was imported')")
    permits = Permits(("other",), confined=True)
    with pytest.raises(Refused, match="GREENCRAWL_HOOKS"):
        Crawls(source, Hands(), permits).get(1, 1)


def test_a_crawl_that_was_deleted_is_refused_no_more(folder: Path) -> None:
    source, hands = Source("own_module"), Hands()
    crawls = Crawls(source, hands)
    with pytest.raises(Refused):
        crawls.get(1, 1)
    source.away = True
    hands.now += TRY_AGAIN_SECONDS
    assert len(crawls.refusals()) == 1
    source.away, source.crawl_ = False, None
    hands.now += TRY_AGAIN_SECONDS
    assert crawls.refusals() == ()


# -- the broker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> Crawl:
    return store.put_crawl("shop", CrawlOptions(hook="own"), [])


def request(worker: str, *refuses: Refusal) -> LeaseRequest:
    host = "one" if refuses else ""
    return LeaseRequest(worker=worker, incarnation=1, sequence=1, refuses=refuses, host=host)


def test_every_broker_shows_the_refusal_of_a_worker_until_the_worker_takes_the_crawl(
    store: SqliteStore, crawl: Crawl
) -> None:
    hands = Hands()
    here, there = Refusals(store, hands), Refusals(store, hands)
    here.note(request("w-0", Refusal(crawl.id, "own", "no module")))
    told = (HookRefusal("w-0", "one", "own", "no module"),)
    assert here.of(crawl) == there.of(crawl) == told
    assert here.of(replace(crawl, options=CrawlOptions(hook="other"))) == ()
    kernels = (KernelRule(match="*", kernel="a:B"),)
    assert here.of(replace(crawl, options=CrawlOptions(hook="own", kernels=kernels))) == ()
    here.note(request("w-0"))
    assert here.of(crawl) == there.of(crawl) == ()


def test_a_crawl_is_stuck_while_all_known_workers_refuse_it(
    store: SqliteStore, crawl: Crawl
) -> None:
    hands = Hands()
    here = Refusals(store, hands)
    stats = CrawlStats(crawl="shop", state="active", waiting=1)

    def stuck(**more: Any) -> bool:
        return here.stuck(crawl, replace(stats, **more), here.of(crawl))

    assert not stuck()
    here.note(request("w-1"))
    here.note(request("w-0", Refusal(crawl.id, "own", "no module")))
    assert not stuck()
    hands.now += LIFE_SECONDS + 1
    here.note(request("w-0", Refusal(crawl.id, "own", "no module")))
    assert stuck()
    assert not stuck(leased=1)


def test_a_refusal_is_written_when_it_changes_and_once_a_minute(
    store: SqliteStore, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    hands = Hands()
    here = Refusals(store, hands)
    put = store.put_refusals

    def noted(worker: str, host: str, refusals: Any, until_ms: int) -> None:
        written.append(len(refusals))
        if len(written) == 1:
            raise Unavailable("the store is away")
        put(worker, host, refusals, until_ms)

    monkeypatch.setattr(store, "put_refusals", noted)
    mine = Refusal(crawl.id, "own", "no module")
    for _ in range(3):
        here.note(request("w-0", mine))
        here.note(request("w-1"))
    assert written == [1, 1]
    hands.now += LIFE_SECONDS / 2
    here.note(request("w-0", mine))
    here.note(request("w-0"))
    here.note(request("w-0"))
    assert written == [1, 1, 1, 0]
