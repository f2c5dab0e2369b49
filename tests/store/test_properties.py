"""Any order and any repetition of commits leads to the same rows, and no link is lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greencrawl.schema.records import Admission, Attempt, Commit, CrawlOptions, Final, StoredPage
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.body_uses import check_uses
from tests.support.effort import examples
from tests.support.memory import memory_folder
from tests.support.store_records import attempt, digest, final, page

Record = StoredPage | Final | Attempt

numbers = st.integers(0, 3)
moments = st.integers(0, 5)


@st.composite
def records(draw: st.DrawFn) -> Record:
    number, moment = draw(numbers), draw(moments)
    kind = draw(st.sampled_from(("page", "final", "attempt")))
    if kind == "final":
        return final(1, number, moment, ("dead", "gone", "excluded", "parked")[moment % 4])
    if kind == "attempt":
        return attempt(1, number, moment, elapsed_ms=moment)
    found = draw(st.lists(st.integers(0, 8), max_size=4))
    return page(
        1, number, moment, title=f"at {moment}", text=_text(moment), body=b"x" * (moment // 2),
        links=[Admission(f"http://example.org/{n}", depth=1 + moment) for n in found],
    )  # fmt: skip


def _text(moment: int) -> str:
    """Return a text; pages with the same body may have different ones."""
    return "text" * (moment % 3)


commits = st.lists(st.lists(records(), max_size=6), max_size=6)


class Model:
    """Return what must be there after ``written``, in any order."""

    def __init__(self, written: Sequence[Record]) -> None:
        self.pages: dict[int, int] = {}
        self.fetches: dict[int, set[int]] = {}
        self.links: dict[int, dict[str, int]] = {}
        self.finals: dict[int, int] = {}
        self.attempts = {(r.fingerprint, r.at_ms) for r in written if isinstance(r, Attempt)}
        for record in written:
            if isinstance(record, StoredPage):
                self.fetches.setdefault(record.fingerprint, set()).add(record.fetched_ms)
                newest = max(record.fetched_ms, self.pages.get(record.fingerprint, 0))
                self.pages[record.fingerprint] = newest
                log = self.links.setdefault(record.fingerprint, {})
                for link in record.links:
                    log[link.url] = min(link.depth, log.get(link.url, link.depth))
        finals = [record for record in written if isinstance(record, Final)]
        for record in finals:
            at_ms, number = record.at_ms, record.fingerprint
            if record.state != "parked" and at_ms > self.pages.get(number, -1):
                self.finals[number] = max(at_ms, self.finals.get(number, 0))
        known = self.finals.keys() | self.pages.keys()
        for record in finals:  # the state parked counts least of all states
            if record.state == "parked" and record.fingerprint not in known:
                newest = max(record.at_ms, self.finals.get(record.fingerprint, 0))
                self.finals[record.fingerprint] = newest


def as_commit(items: Sequence[Record]) -> Commit:
    return Commit(
        [item for item in items if isinstance(item, StoredPage)],
        [item for item in items if isinstance(item, Attempt)],
        [item for item in items if isinstance(item, Final)],
    )


def check(store: SqliteStore, crawl: int, model: Model) -> None:
    stored = {row.fingerprint: row for _, row in store.pages(crawl, detail="body")}
    assert {number: row.fetched_ms for number, row in stored.items()} == model.pages
    texts = {row.fingerprint: row.text for _, row in store.pages(crawl, detail="text")}
    assert texts == {number: row.text for number, row in stored.items()}
    for number, row in stored.items():
        assert (row.title, row.text) == (f"at {row.fetched_ms}", _text(row.fetched_ms))
        assert row.body == b"x" * (row.fetched_ms // 2)
        assert {link.url: link.depth for link in row.links} == model.links[number]
        versions = [v.fetched_ms for v in store.history(crawl, number)]
        assert versions == sorted(model.fetches[number], reverse=True)
    check_uses(store, crawl)
    assert {row.fingerprint: row.at_ms for _, row in store.finals(crawl)} == model.finals
    counts = store.counts(crawl)
    assert counts["attempts"] == len(model.attempts)
    assert counts["bytes"] == sum(moment // 2 for moment in model.pages.values())
    states = ("dead", "gone", "excluded", "parked")
    assert sum(counts[state] for state in states) == len(model.finals)
    assert sum(one.count for one in store.parked_shapes(crawl)) == counts["parked"]
    total = sum(at_ms for _, at_ms in model.attempts)
    assert [round(mean * 1000 * n) for _, mean, n in store.slowest_hosts(crawl)] == (
        [total] if model.attempts else []
    )


@settings(
    max_examples=examples(60, 1000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(commits, st.randoms(use_true_random=False))
def test_commits_end_in_the_same_rows_in_any_order_and_repetition(
    written: list[list[Record]], random: object
) -> None:
    with memory_folder() as folder:
        store = SqliteStore(folder / "content.sqlite")
        crawl = store.put_crawl("news", CrawlOptions(), []).id
        assert crawl == 1
        shuffled = [*written, *written[: len(written) // 2]]
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        for items in shuffled:
            store.commit(as_commit(items))
        check(store, crawl, Model([record for items in written for record in items]))
        store.close()


text = st.text(st.characters(codec=None, categories=None), max_size=20)  # lone surrogates as well


@settings(max_examples=examples(60, 1000), deadline=None)
@given(st.lists(st.tuples(text, st.binary(max_size=300))))
def test_any_text_and_bytes_are_stored_and_valid_ones_come_back_unchanged(
    contents: list[tuple[str, bytes]],
) -> None:
    with memory_folder() as folder:
        store = SqliteStore(folder / "content.sqlite")
        crawl = store.put_crawl("news", CrawlOptions(), []).id
        store.commit(
            Commit(
                [
                    page(
                        crawl, n, title=words, text=words * 3, body=body,
                        headers={"h": words}, fields={words: [words]},
                    )
                    for n, (words, body) in enumerate(contents)
                ]
            )
        )  # fmt: skip
        for n, (words, body) in enumerate(contents):
            stored = store.page(crawl, n)
            assert stored is not None
            assert (stored.body, stored.digest) == (body, digest(body) if body else b"")
            shown = words.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            assert stored.title == stored.headers["h"] == shown
            assert stored.fields == {shown: [shown]}
            stored.text.encode()
        store.close()
