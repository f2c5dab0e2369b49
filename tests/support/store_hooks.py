"""The contract of stores about pages whose hook failed; part of the contract of a store."""

from __future__ import annotations

from typing import Any

from greencrawl.schema.records import (
    Commit,
    CrawlOptions,
    HookCount,
    HookFailure,
    HookRefusal,
    HookRun,
    Refusal,
)
from greencrawl.store.base import Store
from greencrawl.store.tables.hooks import MESSAGES, OTHER
from tests.support.store_records import attempt, page

BROKEN = "KeyError: 'price'"


def run(crawl: int, fingerprint: int, at_ms: int = 1000, **failures: str) -> HookRun:
    url = f"http://example.org/{fingerprint}"
    return HookRun(crawl=crawl, fingerprint=fingerprint, url=url, at_ms=at_ms, failures=failures)


def stored(crawl: int, fingerprint: int, at_ms: int = 1000, **failures: str) -> Commit:
    """Return a page's commit with the result of its hook."""
    made = page(crawl, fingerprint, at_ms)
    return Commit([made], hooks=[run(crawl, fingerprint, at_ms, **failures)])


def counts(store: Store, crawl: int) -> list[tuple[str, str, int]]:
    return [(one.function, one.message, one.pages) for one in store.hook_counts(crawl)]


class HookContract:
    """See the module's text."""

    def test_a_failure_of_a_hook_is_counted_once_however_often_its_page_is_written(
        self, store: Store, crawl: int
    ) -> None:
        for _ in range(2):
            store.commit(stored(crawl, 1, on_page=BROKEN))
        store.commit(stored(crawl, 2, on_page=BROKEN, links="TypeError: no"))
        assert store.hook_counts(crawl) == [
            HookCount("on_page", BROKEN, 2), HookCount("links", "TypeError: no", 1),
        ]  # fmt: skip
        (_, first), (_, second) = store.hook_failures(crawl, "on_page", BROKEN)
        url = page(crawl, 1).url
        assert first == HookFailure(url=url, function="on_page", message=BROKEN, at_ms=1000)
        assert second.url == page(crawl, 2).url

    def test_a_failure_of_a_hook_goes_when_the_hook_has_run_on_its_page_without_error(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(stored(crawl, 1, on_page=BROKEN, request="ValueError: x"))
        store.commit(stored(crawl, 2, on_page=BROKEN))
        store.commit(stored(crawl, 1, 2000))
        assert counts(store, crawl) == [("on_page", BROKEN, 1)]
        store.commit(stored(crawl, 2, 2000))
        assert counts(store, crawl) == store.hook_failures(crawl, "on_page", BROKEN) == []

    def test_failures_of_hooks_since_a_moment_are_new_or_repeated_ones(
        self, store: Store, crawl: int
    ) -> None:
        assert store.hook_failed_since(crawl, 0) == (0, 0)
        for number in (1, 2):
            store.commit(stored(crawl, number, 1000, on_page=BROKEN, links=BROKEN))
        assert store.hook_failed_since(crawl, 0) == (2, 1000)
        assert store.hook_failed_since(crawl, 1000) == (0, 1000)
        store.commit(stored(crawl, 1, 2000, on_page=BROKEN))
        assert store.hook_failed_since(crawl, 1000) == (1, 2000)
        store.commit(stored(crawl, 1, 3000))
        assert store.hook_failed_since(crawl, 0) == (1, 1000)

    def test_a_run_of_some_functions_leaves_failures_of_the_others(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(stored(crawl, 1, on_page=BROKEN, request="ValueError: x"))
        again = HookRun(
            crawl=crawl, fingerprint=1, url=page(crawl, 1).url, at_ms=1000,
            functions=("on_page", "links"),
        )  # fmt: skip
        store.commit(Commit([page(crawl, 1)], hooks=[again]))
        assert counts(store, crawl) == [("request", "ValueError: x", 1)]

    def test_a_late_page_changes_no_failures_of_the_stored_version(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(stored(crawl, 1, 2000))
        store.commit(stored(crawl, 1, 1000, on_page=BROKEN))
        assert counts(store, crawl) == []
        store.commit(stored(crawl, 2, 2000, on_page=BROKEN))
        store.commit(stored(crawl, 2, 1000))
        assert counts(store, crawl) == [("on_page", BROKEN, 1)]

    def test_a_failure_of_a_hook_without_a_page_is_kept_until_there_is_one(
        self, store: Store, crawl: int
    ) -> None:
        tried = attempt(crawl, 1, 1000, code=0, kind="timeout")
        store.commit(Commit(attempts=[tried], hooks=[run(crawl, 1, 1000, request="E: x")]))
        assert counts(store, crawl) == [("request", "E: x", 1)]
        store.commit(stored(crawl, 1, 2000))
        store.commit(Commit(attempts=[tried], hooks=[run(crawl, 1, 1000, request="E: x")]))
        assert counts(store, crawl) == []

    def test_hook_messages_beyond_some_hundreds_are_counted_as_other(
        self, store: Store, crawl: int
    ) -> None:
        for start in range(0, MESSAGES + 50, 50):
            work = Commit()
            for number in range(start, start + 50):
                made = stored(crawl, number, on_page=f"E: {number}")
                work.pages += made.pages
                work.hooks += made.hooks
            store.commit(work)
        found = counts(store, crawl)
        assert len(found) == MESSAGES + 1
        assert found[0] == ("on_page", OTHER, 50)
        assert len(store.hook_failures(crawl, "on_page", OTHER)) == 50

    def test_failures_of_hooks_are_listed_in_parts_and_each_page_once(
        self, store: Store, crawl: int
    ) -> None:
        numbers = [-(2**63), -5, 3, 2**63 - 1]
        for number in numbers:
            store.commit(stored(crawl, number, on_page=BROKEN, links="E: x", request="E: y"))
        seen: list[str] = []
        after = ""
        while some := store.hook_failures(crawl, "on_page", BROKEN, after=after, limit=3):
            seen += [failure.url for _, failure in some]
            after = some[-1][0]
        assert seen == [page(crawl, number).url for number in numbers]
        assert store.hook_pages(crawl, ("on_page", "links")) == numbers
        assert store.hook_pages(crawl, ("links",), after=-5, limit=1) == [3]
        assert store.hook_pages(crawl, ("links",), after=2**63 - 1) == []

    def test_failures_of_hooks_go_with_their_crawl(self, store: Store, crawl: int) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        store.commit(stored(crawl, 1, on_page=BROKEN))
        store.commit(stored(other, 1, on_page=BROKEN))
        store.delete_crawl(crawl)
        store.commit(stored(crawl, 2, on_page=BROKEN))
        assert store.hook_counts(crawl) == store.hook_failures(crawl, "on_page", BROKEN) == []
        assert counts(store, other) == [("on_page", BROKEN, 1)]

    def test_a_hook_message_of_any_text_is_stored_readable_and_shortened(
        self, store: Store, crawl: int
    ) -> None:
        odd: dict[str, Any] = {"on_page": "E: \ud800 € " + "x" * 900, "links": ""}
        store.commit(stored(crawl, 1, **odd))
        (first, second) = sorted(counts(store, crawl))
        assert first == ("links", "", 1)
        assert second[1].startswith("E: � € xxx")
        assert len(second[1]) == 200
        assert len(store.hook_failures(crawl, "on_page", odd["on_page"])) == 1

    # -- workers that cannot import a hook

    def test_refusals_of_a_worker_count_until_it_reports_others_or_reports_no_more(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        mine = [Refusal(crawl, "shop.own", "E: x"), Refusal(other, "b", "y"), Refusal(99, "c", "z")]
        store.put_refusals("w-1", "räume", mine, 2000)
        store.put_refusals("w-0", "one", mine[:1], 3000)
        first = HookRefusal("w-0", "one", "shop.own", "E: x")
        second = HookRefusal("w-1", "räume", "shop.own", "E: x")
        third = HookRefusal("w-1", "räume", "b", "y")
        assert store.refusals(1999) == [(crawl, first), (crawl, second), (other, third)]
        assert store.refusals(2000) == [(crawl, first)]
        store.put_refusals("w-1", "räume", mine[1:2], 4000)
        assert store.refusals(1999) == [(crawl, first), (other, third)]
        store.delete_crawl(other)
        store.put_refusals("w-0", "one", [], 4000)
        assert store.refusals(0) == []
