"""The contract of stores about versions, equal bodies, filters, cursors and months.

It is part of :class:`tests.support.store_contract.StoreContract`, in whose fixtures it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.schema.records import (
    Check,
    Commit,
    CrawlOptions,
    Directives,
    PageFilter,
    StoredPage,
    Validators,
    Version,
)
from greencrawl.store.base import Store
from tests.support.store_records import attempt, digest, final, links, page

Opener = Callable[[], Store]

NO_CURSORS = ("no cursor!", "1 ", " 1", "1;2", "٣", "1_0", "ä", "\0", "x" * 5000, "-", "..")
LONG = bytes(range(256)) * 300
ITEMS = '[{"n":1,"text":"茶"},{}]'.encode()
TEXT, MAIN, SPANS = "Menu Tea. Milk.", "Tea.\n\nMilk.", bytes([15, 16, 5, 23, 1, 0])
"""All text of a page, its main text, and where that stands, as schema/text/spans.py has it."""
MIXED = 200
"""Number of pages of many kinds."""


def month(year: int, number: int, day: int = 15) -> int:
    """Return the Unix milliseconds of a day at noon."""
    return int(datetime(year, number, day, 12, tzinfo=UTC).timestamp() * 1000)


def version(
    fetched_ms: int, body: bytes, *, changed: bool, first: bool = False, status: int = 200
) -> Version:
    return Version(
        fetched_ms=fetched_ms, status=status, changed=changed, digest=digest(body),
        body_bytes=len(body), first=first,
    )  # fmt: skip


def body(store: Store, crawl: int, fingerprint: int) -> bytes:
    stored = store.page(crawl, fingerprint)
    assert stored is not None
    return stored.body


def items(store: Store, crawl: int) -> list[bytes]:
    """Return the items of all pages, in order of storing; check that each detail has the same."""
    found = [one.items for _, one in store.pages(crawl, detail="items")]
    for detail in ("text", "body"):
        assert [one.items for _, one in store.pages(crawl, detail=detail)] == found
    return sorted(found, reverse=True, key=len)


def resumes(
    stream: Callable[..., Iterator[tuple[str, Any]]], every: int = 1
) -> list[tuple[str, Any]]:
    """Return the items of ``stream``; check that it can go on after each (or each ``every``-th)
    cursor."""
    found = list(stream())
    cursors = [cursor for cursor, _ in found]
    assert len(set(cursors)) == len(found), "a cursor stands for one place"
    for n in range(0, len(found), every):
        cursor = cursors[n]
        assert all(c.isascii() and (c.isalnum() or c in "-.") for c in cursor), cursor
        assert list(stream(after=cursor)) == found[n + 1 :]
    return found


class ContentContract:
    """See the module's text."""

    # -- how much of a page

    def test_a_page_is_read_as_a_row_with_its_text_or_with_its_body(
        self, store: Store, crawl: int
    ) -> None:
        whole = page(
            crawl, 1, body=LONG, text="some words", headers={"a": "b"}, fields={"n": 1},
            items=ITEMS, links=links("http://a/"), title="title", language="en", encoding="utf-8",
        )  # fmt: skip
        store.commit(Commit([whole]))
        text = page(crawl, 1, digest=whole.digest, text="some words", headers={"a": "b"},
                    fields={"n": 1}, items=ITEMS, links=links("http://a/"), title="title",
                    language="en", encoding="utf-8", body_bytes=len(LONG))  # fmt: skip
        row = page(crawl, 1, digest=whole.digest, title="title", language="en", encoding="utf-8",
                   body_bytes=len(LONG))  # fmt: skip
        assert store.page(crawl, 1) == store.page(crawl, 1, detail="body") == whole
        assert store.page(crawl, 1, detail="text") == text
        assert store.page(crawl, 1, detail="row") == row
        listed = replace(row, items=ITEMS)
        assert store.page(crawl, 1, detail="items") == listed
        assert [one for _, one in store.pages(crawl, detail="items")] == [listed]
        assert [one for _, one in store.pages(crawl, detail="body")] == [whole]
        assert [one for _, one in store.pages(crawl)] == [text]
        assert [one for _, one in store.pages(crawl, detail="row")] == [row]

    def test_a_page_whose_body_is_not_kept_has_the_digest_of_it(
        self, store: Store, crawl: int
    ) -> None:
        picture = page(crawl, 1, digest=digest(b"a picture"))
        store.commit(Commit([picture, page(crawl, 2, body=b"a picture"), picture]))
        store.commit(Commit([page(crawl, 3, body=b"a picture"), page(crawl, 3, 2000)]))
        assert store.page(crawl, 1) == picture
        assert body(store, crawl, 2) == b"a picture"
        assert body(store, crawl, 3) == b""
        assert store.history(crawl, 1)[0].body_bytes == 0

    # -- records that a hook found

    def test_records_of_a_page_are_those_of_its_stored_version(
        self, store: Store, crawl: int
    ) -> None:
        first, second = page(crawl, 1, items=ITEMS), page(crawl, 1, 2000, items=b'[{"n":9}]')
        for work in ([first], [first], [page(crawl, 2, items=ITEMS), first]):
            store.commit(Commit(work))
            assert items(store, crawl)[0] == ITEMS
        store.commit(Commit([second]))
        store.commit(Commit([first, replace(first, fetched_ms=1500)]))
        assert items(store, crawl) == [ITEMS, b'[{"n":9}]']
        store.commit(Commit([page(crawl, 1, 3000)]))
        assert items(store, crawl) == [ITEMS, b""]

    def test_records_go_with_their_crawl(self, store: Store, crawl: int) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        for one in (crawl, other):
            store.commit(Commit([page(one, 1, items=ITEMS)]))
        store.delete_crawl(crawl)
        assert (items(store, crawl), items(store, other)) == ([], [ITEMS])

    # -- pages that are asked for again

    def test_main_text_belongs_to_the_stored_version_of_a_page(
        self, store: Store, crawl: int
    ) -> None:
        def told() -> dict[int, str | None]:
            found = {one.fingerprint: one.main for _, one in store.pages(crawl, detail="text")}
            for number, main in found.items():
                one = store.page(crawl, number)
                assert one is not None
                assert one.main == main
            return found

        first = page(crawl, 1, text=TEXT, body=b"<p>Tea.", spans=SPANS)
        empty = page(crawl, 2, 2000, text="Menu", spans=b"\4")
        for work in ([first, empty], [page(crawl, 3, body=b"<p>Tea.", text=TEXT)], [first]):
            store.commit(Commit(work))
        assert told() == {1: MAIN, 2: "", 3: None}
        later = page(crawl, 3, 2000, text=TEXT, spans=SPANS)
        store.commit(Commit([page(crawl, 1, 2000, text=TEXT), page(crawl, 2, text=TEXT), later]))
        assert told() == {1: None, 2: "", 3: MAIN}
        store.commit(Commit([page(crawl, 3, 3000, text=TEXT, spans=b"\x0f\x10")]))
        assert told()[3] is None, "what is damaged tells nothing"
        marks = [mark for some in store.replay_marks(0) for mark in some]
        assert len(marks) == 3, "of which replay takes no notice"
        store.commit(Commit([page(crawl, 1, 4000, body=LONG, text=TEXT, spans=SPANS)]))
        store.commit(Commit([page(crawl, 4, body=LONG, text="Tee.", spans=bytes([4, 19, 0, 0]))]))
        assert (told()[1], told()[4]) == (MAIN, "Tee."), "a text apart, for an equal body"

    def test_validators_are_returned_for_whole_pages_only(self, store: Store, crawl: int) -> None:
        said = {"etag": '"a"', "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT", "server": "x"}
        other = store.put_crawl("other", CrawlOptions(), []).id
        store.commit(
            Commit(
                [
                    page(crawl, 1, headers=said), page(crawl, 2), page(other, 3, headers=said),
                    page(crawl, 4, headers=said, truncated=True, body=b"x"),
                    page(crawl, 5, headers=said, status=301), page(crawl, 6, headers=said),
                    page(crawl, 6, 2000, headers={"etag": '"b"'}),
                ]
            )
        )  # fmt: skip
        assert store.validators(crawl, [1, 2, 3, 4, 5, 6, 7]) == {
            1: Validators('"a"', "Wed, 21 Oct 2015 07:28:00 GMT"),
            2: Validators(),
            6: Validators('"b"'),
        }
        assert store.validators(crawl, [7]) == {}
        assert store.with_page(crawl, [7, 6, 5, 4, 3, 2, 1]) == {1, 2, 4, 5, 6}, "of any status"
        assert store.with_page(other, [1, 2]) == frozenset()

    def test_an_unchanged_page_stays_and_is_stamped_anew(self, store: Store, crawl: int) -> None:
        known = page(crawl, 1, body=b"one", links=links("http://a/"))
        first = store.commit(Commit([known, page(crawl, 2)])).clock
        store.tick()
        again = Check(crawl=crawl, fingerprint=1, at_ms=5000)
        tried = attempt(crawl, 1, 5000, code=304)
        for _ in range(2):
            now = store.commit(Commit(attempts=[tried], checks=[again]))
            assert now.clock > first
            assert store.stamps(crawl, [1, 2]) == {1: now.clock, 2: first}
        assert store.page(crawl, 1) == known
        assert len(store.history(crawl, 1)) == 1
        assert [one.code for one in store.attempts(crawl, 1)] == [304]
        assert store.counts(crawl)["pages"] == 2
        marks = [mark.url for some in store.replay_marks(now.clock) for mark in some]
        assert marks == [known.url]
        found = [link.url for part in store.replay_links(now.clock) for _, s in part for link in s]
        assert found == ["http://a/"]

    def test_a_gone_page_is_no_longer_gone_when_a_later_check_finds_it_unchanged(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit([page(crawl, 1), page(crawl, 2), page(crawl, 3)]))
        gone = [final(crawl, number, 2000, state="gone") for number in (1, 2)]
        store.commit(Commit(finals=gone))
        assert store.counts(crawl)["gone"] == 2
        store.commit(
            Commit(
                finals=[final(crawl, 3, 2500, state="gone")],
                checks=[
                    Check(crawl=crawl, fingerprint=1, at_ms=3000),
                    Check(crawl=crawl, fingerprint=2, at_ms=1500),
                    Check(crawl=crawl, fingerprint=3, at_ms=3000),
                ],
            )
        )
        assert [store.final(crawl, number) is None for number in (1, 2, 3)] == [True, False, True]
        assert store.counts(crawl)["gone"] == 1

    def test_a_check_of_an_unknown_page_changes_nothing(self, store: Store, crawl: int) -> None:
        unknown = Check(crawl=crawl, fingerprint=9, at_ms=1)
        deleted = Check(crawl=crawl + 7, fingerprint=1, at_ms=1)
        store.commit(Commit([page(crawl, 1)], checks=[unknown, deleted]))
        assert store.page(crawl, 9) is None
        assert store.stamps(crawl, [9]) == {}

    # -- what a page says of itself

    def test_a_page_is_stored_with_its_canonical_url_and_directives(
        self, store: Store, crawl: int
    ) -> None:
        said = Directives(
            robots=("noindex", "noai"), unavailable_after_ms=5, tdm="reserved",
            tdm_policy="http://p/", withheld="noindex",
        )  # fmt: skip
        own = page(crawl, 1, canonical="http://example.org/1", directives=Directives())
        other = page(crawl, 2, canonical="http://example.org/x", directives=said)
        bad = page(crawl, 4, canonical="http://a/\ud800")
        store.commit(Commit([own, other, page(crawl, 3), bad]))
        for detail in ("row", "text", "body"):
            found = store.page(crawl, 2, detail=detail)
            assert found is not None
            assert (found.canonical, found.directives) == (other.canonical, said)
            found = store.page(crawl, 3, detail=detail)
            assert found is not None
            assert (found.canonical, found.directives) == ("", None)
        assert [one.canonical for _, one in store.pages(crawl, detail="row")] == [
            own.canonical, other.canonical, "", "http://a/?",
        ]  # fmt: skip
        store.commit(Commit([page(crawl, 2, 2000), page(crawl, 1, 500, canonical="http://late/")]))
        now = store.page(crawl, 2), store.page(crawl, 1)
        assert [one and (one.canonical, one.directives) for one in now] == [
            ("", None), (own.canonical, Directives()),
        ]  # fmt: skip

    def test_a_stored_body_goes_when_its_page_forbids_to_keep_it(
        self, store: Store, crawl: int
    ) -> None:
        said = Directives(robots=("noindex",), withheld="noindex")
        store.commit(Commit([page(crawl, 1, body=b"words", text="words", title="T")]))
        before = store.counts(crawl)["bytes"]
        store.commit(Commit([page(crawl, 1, 2000, digest=digest(b"words"), directives=said)]))
        found = store.page(crawl, 1)
        assert found is not None
        assert (found.title, found.text, found.body) == ("", "", b"")
        assert (before, store.counts(crawl)["bytes"]) == (5, 0)
        assert [one.changed for one in store.history(crawl, 1)] == [False, True]

    # -- versions

    def test_a_page_that_was_fetched_once_has_one_version(self, store: Store, crawl: int) -> None:
        assert store.history(crawl, 1) == []
        store.commit(Commit([page(crawl, 1, 1000, body=b"one", status=404)]))
        assert store.history(crawl, 1) == [
            version(1000, b"one", changed=True, first=True, status=404)
        ]
        assert store.history(crawl, 2) == []

    def test_the_history_of_a_page_tells_which_fetches_found_another_body(
        self, store: Store, crawl: int
    ) -> None:
        for fetched_ms, text in ((1000, b"a"), (2000, b"a"), (3000, b"b"), (4000, b"a")):
            store.commit(Commit([page(crawl, 1, fetched_ms, body=text)]))
        expected = [
            version(4000, b"a", changed=True),
            version(3000, b"b", changed=True),
            version(2000, b"a", changed=False),
            version(1000, b"a", changed=True, first=True),
        ]
        assert store.history(crawl, 1) == expected
        assert store.history(crawl, 1, limit=2) == expected[:2]
        assert body(store, crawl, 1) == b"a"

    def test_a_late_page_becomes_a_version_and_replaces_no_newer_one(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit([page(crawl, 1, 3000, body=b"new", title="new")]))
        store.commit(Commit([page(crawl, 1, 1000, body=b"old old", status=206)]))
        stored = store.page(crawl, 1)
        assert stored is not None
        assert (stored.title, stored.body, stored.fetched_ms) == ("new", b"new", 3000)
        found = store.history(crawl, 1)
        assert [(v.fetched_ms, v.status, v.digest, v.body_bytes) for v in found] == [
            (3000, 200, digest(b"new"), 3),
            (1000, 206, digest(b"old old"), 7),
        ]  # fmt: skip
        store.commit(Commit([page(crawl, 1, 2000, body=b"between")]))
        assert [v.fetched_ms for v in store.history(crawl, 1)] == [3000, 2000, 1000]
        assert body(store, crawl, 1) == b"new"

    def test_all_versions_of_a_page_in_one_commit_are_kept(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, n, body=b"%d" % n) for n in (1000, 3000, 2000)]))
        assert store.history(crawl, 1) == [
            version(n, b"%d" % n, changed=True, first=n == 1000) for n in (3000, 2000, 1000)
        ]
        assert body(store, crawl, 1) == b"3000"

    def test_a_commit_that_is_repeated_changes_nothing(self, store: Store, crawl: int) -> None:
        first = Commit([page(crawl, n, 1000, body=b"one") for n in range(3)])
        second = Commit([page(crawl, n, 2000, body=b"two") for n in range(3)])
        for work in (first, first, second, first, second, second, first):
            store.commit(work)
        for n in range(3):
            assert store.history(crawl, n) == [
                version(2000, b"two", changed=True),
                version(1000, b"one", changed=True, first=True),
            ]
            assert body(store, crawl, n) == b"two"

    def test_versions_of_a_deleted_crawl_go_with_it(self, store: Store, crawl: int) -> None:
        kept = store.put_crawl("kept", CrawlOptions(), []).id
        for number in (crawl, kept):
            for fetched_ms in (1000, 2000):
                store.commit(Commit([page(number, 1, fetched_ms, body=b"%d" % fetched_ms)]))
        store.delete_crawl(crawl)
        assert store.history(crawl, 1) == []
        assert [v.fetched_ms for v in store.history(kept, 1)] == [2000, 1000]

    # -- equal bodies

    def test_pages_with_equal_bodies_keep_theirs_when_one_of_them_changes(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit([page(crawl, 1, body=LONG), page(crawl, 2, body=LONG)]))
        store.commit(Commit([page(crawl, 3, body=LONG)]))
        assert [body(store, crawl, n) for n in (1, 2, 3)] == [LONG] * 3
        assert {one.body for _, one in store.pages(crawl, detail="body")} == {LONG}
        for changed in (1, 2):
            store.commit(Commit([page(crawl, changed, 2000, body=b"other")]))
            assert body(store, crawl, changed) == b"other"
            assert body(store, crawl, 3) == LONG
        store.commit(Commit([page(crawl, 1, 3000, body=LONG)]))
        assert [body(store, crawl, n) for n in (1, 2, 3)] == [LONG, b"other", LONG]
        assert store.counts(crawl)["bytes"] == 2 * len(LONG) + 5

    def test_a_body_outlives_another_crawl_that_had_the_same(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        store.commit(Commit([page(crawl, 1, body=LONG), page(other, 1, body=LONG)]))
        store.delete_crawl(crawl)
        assert store.page(crawl, 1) is None
        assert body(store, other, 1) == LONG
        store.commit(Commit([page(other, 2, body=LONG)]))
        assert body(store, other, 2) == LONG

    def test_a_large_body_that_does_not_compress_comes_back(self, store: Store, crawl: int) -> None:
        state, noise = 1, bytearray()
        for _ in range(700_000):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            noise += state.to_bytes(8, "little")[4:]
        store.commit(Commit([page(crawl, n, body=bytes(noise)) for n in range(3)]))
        assert all(body(store, crawl, n) == noise for n in range(3))

    # -- filters and cursors

    @pytest.fixture
    def mixed(self, store: Store, crawl: int) -> Sequence[StoredPage]:
        hosts = ("a.org", "b.org:8080", "www.a.org", "c.org")
        made = [
            page(
                crawl, 1000 - n, fetched_ms=1000 * (n % 50),
                status=(200, 203, 301, 404, 500)[n % 5], body=b"%d" % (n % 9),
            )
            for n in range(MIXED)
        ]  # fmt: skip
        for n, one in enumerate(made):
            one.url = one.final_url = f"http://{hosts[n % 4]}/{n}"
        other = store.put_crawl("other", CrawlOptions(), []).id
        for start in range(0, MIXED, 100):
            some = made[start : start + 100]
            store.commit(Commit(some))
            store.commit(Commit([page(other, n) for n in range(start, start + 100)]))
        return made

    def test_pages_are_chosen_by_host_status_and_time(
        self, store: Store, crawl: int, mixed: Sequence[StoredPage]
    ) -> None:
        for wanted in (
            PageFilter(),
            PageFilter(host="a.org"),
            PageFilter(host="b.org:8080"),
            PageFilter(host="b.org"),
            PageFilter(status=(200, 299)),
            PageFilter(status=(404, 404)),
            PageFilter(since_ms=48_000),
            PageFilter(host="c.org", status=(300, 499), since_ms=20_000),
            PageFilter(host="none.org"),
        ):
            low, high = wanted.status
            expected = {
                one.url
                for one in mixed
                if wanted.host in ("", one.url.split("/")[2])
                and low <= one.status <= high
                and one.fetched_ms >= wanted.since_ms
            }
            found = resumes(
                lambda after="", wanted=wanted: store.pages(  # type: ignore[misc]
                    crawl, wanted, detail="row", after=after
                ),
                every=37,
            )
            assert {one.url for _, one in found} == expected, wanted
            assert len(found) == len(expected), wanted

    @pytest.mark.parametrize("window", [1, 7, 100, MIXED, 1000])
    def test_steps_of_a_list_read_bounded_rows_and_pass_over_no_match(
        self, store: Store, crawl: int, mixed: Sequence[StoredPage], window: int
    ) -> None:
        for wanted in (
            PageFilter(status=(404, 404), since_ms=48_000),
            PageFilter(since_ms=49_000),
            PageFilter(host="c.org", status=(300, 499)),
            PageFilter(host="none.org", status=(404, 404)),
            PageFilter(status=(418, 418)),
        ):
            low, high = wanted.status
            hosts = [one for one in mixed if wanted.host in ("", one.url.split("/")[2])]
            expected = [
                one.url
                for one in hosts
                if low <= one.status <= high and one.fetched_ms >= wanted.since_ms
            ]
            met: list[str] = []
            after, looked_at, calls = "", 0, 0
            while step := next(
                store.page_steps(crawl, wanted, detail="row", after=after, window=window), None
            ):
                met += [one.url for _, one in step.pages]
                assert 0 < step.looked_at <= window, wanted
                after, calls = step.cursor, calls + 1
                looked_at += step.looked_at
            assert sorted(met) == sorted(expected), wanted
            assert calls >= len(hosts) / window, wanted
            in_one = list(store.page_steps(crawl, wanted, detail="row", window=window))
            assert sum(one.looked_at for one in in_one) == len(hosts), wanted

    @pytest.mark.parametrize("window", [1, 7, 5000])
    def test_a_list_with_the_newest_first_has_the_opposite_order_and_resumes_anywhere(
        self, store: Store, crawl: int, mixed: Sequence[StoredPage], window: int
    ) -> None:
        for wanted in (
            PageFilter(),
            PageFilter(host="c.org"),
            PageFilter(since_ms=49_000),
            PageFilter(host="c.org", status=(300, 499)),
            PageFilter(host="none.org"),
        ):
            oldest = [one.url for _, one in store.pages(crawl, wanted, detail="row")]
            met: list[str] = []
            after, looked_at = "", 0
            while step := next(
                store.page_steps(
                    crawl, wanted, detail="row", after=after, window=window, newest=True
                ),
                None,
            ):
                met += [one.url for _, one in step.pages]
                looked_at += step.looked_at
                after = step.cursor
            assert met == oldest[::-1], wanted
            assert looked_at >= len(oldest), wanted
            steps = store.page_steps(crawl, wanted, detail="row", newest=True)
            cursors = [cursor for step in steps for cursor, _ in step.pages]
            for number, cursor in list(enumerate(cursors, 1))[::19]:
                rest = store.page_steps(crawl, wanted, detail="row", after=cursor, newest=True)
                assert [one.url for step in rest for _, one in step.pages] == met[number:], wanted

    @pytest.mark.parametrize("after", [0, 1])
    def test_a_list_reaches_the_last_of_many_rows_in_bounded_steps(
        self, store: Store, crawl: int, after: int
    ) -> None:
        for start in range(0, 1200, 400):
            store.commit(Commit([page(crawl, n) for n in range(start, start + 400)]))
            store.tick()
        last = page(crawl, 5000, status=404)
        store.commit(Commit([last, *(page(crawl, n) for n in range(6000, 6000 + after))]))
        steps = list(store.page_steps(crawl, PageFilter(status=(404, 404)), window=90))
        assert [step.looked_at for step in steps[:13]] == [90] * 13
        assert sum(step.looked_at for step in steps) == 1201 + after
        again = store.page_steps(
            crawl, PageFilter(status=(404, 404)), after=steps[12].cursor, window=90
        )
        assert [one.fingerprint for step in again for _, one in step.pages] == [5000]

    def test_a_list_passes_over_no_page_while_others_are_stored(
        self, store: Store, crawl: int, mixed: Sequence[StoredPage]
    ) -> None:
        stream = store.pages(crawl, detail="row")
        met = [next(stream)[1].url for _ in range(10)]
        new = page(crawl, 5000)
        again = page(crawl, mixed[0].fingerprint, 90_000)
        again.url = mixed[0].url
        store.commit(Commit([new, again]))
        met += [one.url for _, one in stream]
        assert {one.url for one in mixed} <= set(met)

    def test_final_states_are_listed_by_time_and_resume_at_any_cursor(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit(finals=[final(crawl, n, 100 * n) for n in range(1, 40)]))
        store.commit(Commit(finals=[final(crawl, -n, 5000, "gone") for n in range(1, 5)]))
        every = resumes(lambda after="": store.finals(crawl, after=after))
        assert {one.fingerprint for _, one in every} == {*range(1, 40), -1, -2, -3, -4}
        late = resumes(lambda after="": store.finals(crawl, 3000, after=after))
        assert {one.fingerprint for _, one in late} == {*range(30, 40), -1, -2, -3, -4}
        dead = resumes(lambda after="": iter(store.dead(crawl, after=after)))
        assert {one.fingerprint for _, one in dead} == set(range(1, 40))

    def test_an_invalid_cursor_is_refused(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1)], finals=[final(crawl, 2)]))
        for cursor in NO_CURSORS:
            with pytest.raises(ValueError, match="cursor"):
                list(store.pages(crawl, after=cursor))
            with pytest.raises(ValueError, match="cursor"):
                list(store.finals(crawl, after=cursor))
            with pytest.raises(ValueError, match="cursor"):
                store.dead(crawl, after=cursor)

    # -- months

    def test_only_whole_months_of_the_journal_are_dropped_and_sums_stay(
        self, store: Store, crawl: int
    ) -> None:
        times = [month(2031, n, day) for n in (1, 2, 3) for day in (1, 15, 28)]
        for at in times[::3]:
            store.prepare_months(at)
            store.prepare_months(at)
        store.commit(Commit([page(crawl, 1, times[0])], [attempt(crawl, 1, at) for at in times]))
        counts, slowest = store.counts(crawl), store.slowest_hosts(crawl)
        assert counts["attempts"] == 9
        assert sum(store.drop_months(month(2031, 1, 31))) == 0
        store.drop_months(month(2031, 3, 20))
        assert len(store.attempts(crawl, 1)) == 9, "nothing goes before the first step is asked for"
        assert sum(store.drop_months(month(2031, 3, 20))) == 2
        assert [one.at_ms for one in store.attempts(crawl, 1)] == times[:5:-1]
        assert sum(store.drop_months(month(2031, 3, 20))) == 0
        assert (store.counts(crawl), store.slowest_hosts(crawl)) == (counts, slowest)
        assert store.page(crawl, 1) is not None

    def test_a_commit_with_an_attempt_of_a_dropped_month_succeeds(
        self, store: Store, crawl: int
    ) -> None:
        store.prepare_months(month(2031, 1))
        tries = [attempt(crawl, 1, month(2031, 1)), attempt(crawl, 1, month(2031, 2))]
        store.commit(Commit(attempts=tries))
        assert sum(store.drop_months(month(2031, 2, 1))) == 1
        store.commit(Commit([page(crawl, 2)], [*tries, attempt(crawl, 2, 5)]))
        assert tries[1] in store.attempts(crawl, 1)
        assert set(store.attempts(crawl, 1)) <= set(tries)
        assert store.page(crawl, 2) is not None
        list(store.drop_months(month(2031, 2, 1)))
        assert tries[1] in store.attempts(crawl, 1)

    def test_attempts_of_an_unprepared_month_are_kept(self, store: Store, crawl: int) -> None:
        store.prepare_months(month(2031, 1))
        far = attempt(crawl, 1, month(2051, 7))
        store.commit(Commit(attempts=[far]))
        store.prepare_months(month(2051, 7))
        assert store.attempts(crawl, 1) == [far]
        list(store.drop_months(month(2051, 7, 20)))
        assert store.attempts(crawl, 1) == [far]

    # -- two processes

    def test_two_stores_that_commit_the_same_pages_at_once_lose_no_version(
        self, open_store: Opener
    ) -> None:
        stores = [open_store(), open_store()]
        crawl = stores[0].put_crawl("a", CrawlOptions(), []).id
        times = range(1000, 13_000, 1000)

        def fetch(store: Store, own: Sequence[int]) -> None:
            for fetched_ms in own:
                order = range(15) if store is stores[0] else range(14, -1, -1)
                text = b"body %d" % (fetched_ms // 3000)
                store.commit(
                    Commit(
                        [page(crawl, n, fetched_ms, body=text) for n in order],
                        [attempt(crawl, n, fetched_ms) for n in order],
                    )
                )

        shares = (times[::2], times[1::2], times[::3][::-1], times[1::3])
        jobs = [gevent.spawn(fetch, stores[n % 2], share) for n, share in enumerate(shares)]
        gevent.joinall(jobs, timeout=120)
        for job in jobs:
            job.get(timeout=1)
        for store in stores:
            for n in range(15):
                assert [v.fetched_ms for v in store.history(crawl, n)] == list(times)[::-1]
                assert body(store, crawl, n) == b"body 4"
            assert store.counts(crawl)["attempts"] == 15 * len(times)
