"""Hooks run again on stored pages: what is stored and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.records import (
    Commit,
    Crawl,
    CrawlOptions,
    Fetched,
    HookRun,
    Link,
    Page,
    Task,
)
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.worker import hooks
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.hook_rerun import BATCH_PAGES, HookRerun
from greencrawl.worker.hooks import Hooks
from greencrawl.worker.kernels.http import read
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.process.quarantine import DiedInQuarantine
from tests.support.store_records import links, page

BODY = b"<title>T</title><a href=/one>1</a><a href=/two>2</a>"


class Here:
    """It reads in this process; a URL in ``deadly`` hangs."""

    def __init__(self) -> None:
        self.read_: list[str] = []
        self.deadly: set[str] = set()

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        self.read_.append(task.url)
        if task.url in self.deadly:
            raise DiedInQuarantine("stalled", "read alone, it did not end within 1 s")  # type: ignore[arg-type]
        return read(context, task, fetched)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: SqliteStore) -> Crawl:
    return store.put_crawl("shop", CrawlOptions(hook="mine"), ["example.org"])


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def make(**functions: Any) -> None:
        monkeypatch.setattr(hooks, "load", lambda _: Hooks(**functions))

    return make


def fill(store: SqliteStore, crawl: Crawl, numbers: range, **more: Any) -> None:
    """Store pages on which ``on_page`` and ``links`` failed; the first link of each was
    followed."""
    known = links("http://example.org/one")
    more = {"body": BODY, "headers": {"content-type": "text/html"}, "links": known, **more}
    made = [page(crawl.id, number, **more) for number in numbers]
    runs = [
        HookRun(
            crawl=crawl.id, fingerprint=one.fingerprint, url=one.url, at_ms=one.fetched_ms,
            failures={"on_page": "KeyError: 'x'", "links": "KeyError: 'x'"},
        )
        for one in made
    ]  # fmt: skip
    store.commit(Commit(made, hooks=runs))


def again(store: SqliteStore, crawl: Crawl, reader: Here | None = None) -> HookRerun:
    return HookRerun(store, crawl, reader or Here(), lambda url: None)


def test_a_rerun_of_a_hook_stores_fields_with_pages_and_new_links_as_seeds(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    seen: list[tuple[Page, Fetched]] = []

    def on_page(page: Page, fetched: Fetched) -> dict[str, Any]:
        seen.append((page, fetched))
        return {"title": page.title}

    use(
        on_page=on_page,
        items=lambda page: [{"link": found} for found in page.css("a::text").getall()],
        links=lambda page, found: found[1:],
    )
    fill(store, crawl, range(1, 4), text="kept", status=203)
    store.set_state(crawl.id, "done", "finished")
    run = again(store, crawl)
    run.run(lambda count: True)
    assert (run.count.mended, run.count.failed, run.count.links) == (3, 0, 1)
    stored = store.page(crawl.id, 2)
    assert stored is not None
    assert (stored.fields, stored.text, stored.body, stored.status) == (
        {"title": "T"}, "kept", BODY, 203,
    )  # fmt: skip
    assert stored.items == b'[{"link":"1"},{"link":"2"}]'
    assert {link.url for link in stored.links} == {
        "http://example.org/one", "http://example.org/two",
    }  # fmt: skip
    (batch,) = store.pending_seeds()
    assert {(link.url, link.depth) for link in batch.urls} == {("http://example.org/two", 1)}
    assert store.crawl(crawl.id).state == "active"
    assert store.hook_counts(crawl.id) == []
    _, fetched = seen[0]
    assert (fetched.status, fetched.headers, fetched.fetched_ms) == (
        203, {"content-type": "text/html"}, 1000,
    )  # fmt: skip


def test_a_second_rerun_of_a_hook_changes_nothing(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    use(on_page=lambda page, fetched: {"n": 1})
    fill(store, crawl, range(1, 4))
    again(store, crawl).run(lambda count: True)
    before = [one for _, one in store.pages(crawl.id)]
    seeds = store.pending_seeds()
    run = again(store, crawl)
    run.run(lambda count: True)
    assert run.count.pages == 0
    assert [one for _, one in store.pages(crawl.id)] == before
    assert store.pending_seeds() == seeds


def test_a_rerun_that_was_stopped_early_goes_on_where_it_was(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    use(on_page=lambda page, fetched: {"n": 1}, links=lambda page, found: found[1:])
    fill(store, crawl, range(BATCH_PAGES + 10))
    first = Here()
    again(store, crawl, first).run(lambda count: count.pages < BATCH_PAGES + 5)
    assert len(first.read_) == BATCH_PAGES + 5
    second = Here()
    again(store, crawl, second).run(lambda count: True)
    assert len(second.read_) == 5
    assert not set(first.read_) & set(second.read_)
    assert store.hook_counts(crawl.id) == []


def test_a_page_that_fails_again_in_a_rerun_keeps_its_fields_and_has_the_new_message(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    def on_page(page: Page, fetched: Fetched) -> None:
        raise ValueError(page.url)

    use(on_page=on_page, links=lambda page, found: [Link("/three")])
    fill(store, crawl, range(1, 3))
    reader = Here()
    reader.deadly = {page(crawl.id, 2).url}
    run = again(store, crawl, reader)
    run.run(lambda count: True)
    assert (run.count.mended, run.count.failed) == (0, 2)
    said = {(one.function, one.message) for one in store.hook_counts(crawl.id)}
    assert said == {
        ("on_page", "ValueError: …"),
        ("on_page", "read alone, it did not end within 1 s"),
    }
    stored = store.page(crawl.id, 1)
    assert stored is not None
    assert stored.fields is None
    assert "http://example.org/three" in {link.url for link in stored.links}


def test_a_rerun_replaces_the_records_of_a_page_whose_items_function_failed(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    found: list[dict[str, int]] = [{"n": 1}, {"n": 2}]
    use(items=lambda page: found)
    made = page(crawl.id, 1, body=BODY, items=b'[{"n":0}]', fields={"kept": 1})
    run = HookRun(
        crawl=crawl.id, fingerprint=1, url=made.url, at_ms=1000, failures={"items": "E: x"}
    )
    store.commit(Commit([made], hooks=[run]))
    for _ in range(2):
        again(store, crawl).run(lambda count: True)
        stored = store.page(crawl.id, 1)
        assert stored is not None
        assert stored.items == b'[{"n":1},{"n":2}]'
    assert stored.fields is None, "it has no on_page any more"
    assert store.hook_counts(crawl.id) == []
    store.commit(Commit(hooks=[run], pages=[made]))
    found.append({"n": object()})  # type: ignore[dict-item]
    again(store, crawl).run(lambda count: True)
    stored = store.page(crawl.id, 1)
    assert stored is not None
    assert stored.items == made.items
    assert [(one.function, one.pages) for one in store.hook_counts(crawl.id)] == [("items", 1)]


def test_a_rerun_names_and_leaves_a_page_without_its_body(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    use(on_page=lambda page, fetched: {"n": 1})
    fill(store, crawl, range(1, 2), body=b"")
    fill(store, crawl, range(2, 3))
    named: list[str] = []
    run = HookRerun(store, crawl, Here(), named.append)
    run.run(lambda count: True)
    assert (run.count.mended, run.count.unread) == (1, 1)
    assert named == [page(crawl.id, 1).url]
    assert [one.pages for one in store.hook_counts(crawl.id)] == [1, 1]


def test_a_page_that_is_fetched_anew_during_a_rerun_keeps_the_newer_result(
    store: SqliteStore, crawl: Crawl, use: Callable[..., None]
) -> None:
    fill(store, crawl, range(1, 2))

    def on_page(page_: Page, fetched: Fetched) -> dict[str, Any]:
        newer = page(crawl.id, 1, 9000, body=BODY, fields={"new": 1})
        run = HookRun(
            crawl=crawl.id, fingerprint=1, url=newer.url, at_ms=9000, failures={"links": "E: y"}
        )
        store.commit(Commit([newer], hooks=[run]))
        return {"old": 1}

    use(on_page=on_page)
    again(store, crawl).run(lambda count: True)
    stored = store.page(crawl.id, 1)
    assert stored is not None
    assert stored.fields == {"new": 1}
    assert [(one.function, one.message) for one in store.hook_counts(crawl.id)] == [
        ("links", "E: y")
    ]
