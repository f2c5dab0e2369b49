"""A parked URL that is requested or disappears is found; a release and a fault excuse it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

from greencrawl.schema.records import Admission, Attempt, Commit, CrawlOptions, Final
from greencrawl.store import open_store
from tests.nemesis import parking, refetches, site
from tests.nemesis.api import Call
from tests.nemesis.checker import Hit
from tests.nemesis.parking import Parkings
from tests.nemesis.reading import CrawlRow, Parked, Snapshot, Sql
from tests.nemesis.refetches import Harm, Leases
from tests.nemesis.watch import Watch
from tests.nemesis.world import World

GRAPH = site.mapped(3)
DAY = GRAPH.url(0, "day/4", 8000)
HOST, TARGET = site.address(GRAPH.host(0)), f"/{GRAPH.tag}/day/4"
EPOCH = 1000.0
RELEASE = Call("release", "c", 1, 2, 200)


def parked(url: str = DAY, why: str = "brings nothing", at: float = EPOCH + 10) -> Snapshot:
    found = Snapshot(CrawlRow(1, "c", "done", "finished", False))
    found.finals[url] = ("parked", "trap")
    found.parked[url] = Parked(at, "http://h/day/{n}", why)
    return found


def seen(*snapshots: Snapshot) -> Parkings:
    found = Parkings()
    for one in snapshots:
        found.note("c", one.parked)
    return found


def told(snapshot: Snapshot, *calls: Call) -> list[str]:
    findings = parking.judge(snapshot, seen(parked()), calls)
    assert all(one.kind == "parked" for one in findings)
    return [one.text.partition(" URLs ")[2].partition(":")[0] for one in findings]


def test_a_parked_url_must_have_a_row_and_a_reason() -> None:
    assert told(parked()) == []
    assert told(parked(why="")) == ["are parked without shape or reason"]
    gone = Snapshot(parked().crawl)
    assert told(gone) == ["were parked and have no row"]
    gone.pages[DAY] = 200
    assert told(gone) == []
    assert parking.judge(gone, Parkings(), []) == []


def test_a_released_url_may_wait_if_its_crawl_is_at_its_page_limit() -> None:
    full = Snapshot(parked().crawl, pages={"http://h/": 200})
    known = seen(parked())
    assert parking.judge(full, known, [RELEASE], limit=1) == []
    for calls, limit in (([RELEASE], 2), ([RELEASE], 0), ([], 1)):
        (found,) = parking.judge(full, known, calls, limit)
        assert "were parked and have no row" in found.text


def test_a_parked_url_that_is_no_page_of_a_crawl_with_traps_is_found() -> None:
    what = "are parked, and are no page of a crawl with traps"
    for path in ("home", "image/0.0.png", "css/0.css", "x/index.xml", "x/old.xml"):
        found = parked(GRAPH.url(0, path, 8000))
        assert told(found) == ["were parked and have no row", what]
    assert what in told(parked("http://127.0.0.1:80/day/4"))


def test_a_url_that_stays_parked_after_all_were_released_is_found() -> None:
    assert told(parked(), RELEASE) == ["are parked after all was released"]
    assert told(parked(), replace(RELEASE, status=0)) == []
    assert told(parked(), replace(RELEASE, crawl="d")) == []


def test_a_request_for_a_parked_url_needs_a_fault_or_a_release() -> None:
    def found(at: float, *harms: Harm, released: int = 0) -> list[str]:
        asked = Hit(at, at + 0.1, HOST, TARGET, 200, 1)
        known = seen(parked())
        allowed = known.released([RELEASE] * released)
        judged, _ = refetches.judge([asked], Leases(), harms, allowed, known.hits(EPOCH))
        return [one.kind for one in judged]

    assert found(30) == ["refetched"]
    assert found(30, Harm(9, 15)) == []
    assert found(30, Harm(15, 20)) == ["refetched"]  # it was settled by then
    assert found(30, released=1) == []
    assert found(5) == ["refetched"]  # it was requested, and parked nevertheless


def test_each_moment_at_which_a_url_was_parked_counts() -> None:
    both = seen(parked(), parked(at=EPOCH + 40), parked())
    assert sorted(hit.arrived for hit in both.hits(EPOCH)) == [10, 40]
    judged, _ = refetches.judge([], Leases(), [], {}, both.hits(EPOCH))
    assert [one.kind for one in judged] == ["refetched"]


def parked_row(crawl: int) -> Final:
    """Return the final state of a parked URL, as a store gets it."""
    return Final(
        crawl=crawl, fingerprint=1, url=DAY, state="parked", kind="trap", detail="why",
        shape="http://h/day/{n}", at_ms=12500,
    )  # fmt: skip


def test_parked_urls_are_read_from_sql(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    store = open_store(url)
    crawl = store.put_crawl("c", CrawlOptions(), []).id
    final = parked_row(crawl)
    dead = replace_final(final)
    store.commit(Commit(finals=[final, dead]))
    expected = {DAY: Parked(12.5, "http://h/day/{n}", "why")}
    assert Sql(url).parked(crawl) == expected
    snapshot = Sql(url).snapshot(crawl)
    assert snapshot is not None
    assert snapshot.parked == expected
    assert snapshot.finals == {DAY: ("parked", "trap"), dead.url: ("dead", "timeout")}
    store.close()


def test_forced_seeds_are_read_from_sql(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    store = open_store(url)
    crawl = store.put_crawl("c", CrawlOptions(), []).id
    both = [Admission("http://h/a"), Admission("http://h/b")]
    first = store.add_seeds(crawl, both, force=True)
    second = store.add_seeds(crawl, both[1:], force=True)
    store.add_seeds(crawl, [Admission("http://h/c")])
    assert Sql(url).forced() == {first: ["http://h/a", "http://h/b"], second: ["http://h/b"]}
    store.close()


def test_a_released_url_that_no_look_saw_parked_may_be_requested_once_more_after_a_fault(
    tmp_path: Path,
) -> None:
    """It is fetched, a node forgets the release and queues it again, and the batch is dropped."""

    class Place:
        parts: ClassVar[dict[str, object]] = {}

        def sql(self) -> Sql:
            return Sql(url)

        def master(self, node: str) -> None:
            raise OSError(f"{node} is away")

    def asked(*times: float) -> list[Hit]:
        return [Hit(at, at + 0.1, HOST, TARGET, 200, 1) for at in times]

    def found(log: list[Hit], watch: Watch, *harms: Harm) -> list[str]:
        times = watch.times_forced()
        allowed = {HOST + TARGET: times[DAY]} if times else {}
        return [one.kind for one in refetches.judge(log, Leases(), harms, allowed)[0]]

    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    store = open_store(url)
    crawl = store.put_crawl("c", CrawlOptions(), []).id
    store.commit(Commit(finals=[parked_row(crawl)]))
    batch = store.release_parked(crawl)
    assert batch is not None
    store.seeds_admitted(batch.id)
    watch = Watch(cast(World, Place()), lambda _: None)
    watch.look()
    assert store.drop_seeds([(batch.id, batch.stamp)]) == 1
    late = Watch(cast(World, Place()), lambda _: None)
    assert late.times_forced() == {}
    older = Harm(20, 30, ("A",), since=5, stroke="older")
    assert found(asked(10, 40), late, older) == ["refetched"]
    assert found(asked(10, 40), watch, older) == []
    assert found(asked(10, 40, 50, 60), watch, older) == ["refetched"]
    store.close()


def test_urls_that_were_fetched_above_a_limit_are_read_from_sql(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    store = open_store(url)
    limited = store.put_crawl("c", CrawlOptions(max_pages=1), []).id
    other = store.put_crawl("d", CrawlOptions(), []).id
    tried = [
        Attempt(
            crawl=crawl, fingerprint=number, url=f"http://h/{crawl}/{number}", code=200, kind=kind,
            errors=0, at_ms=1,
        )
        for crawl in (limited, other)
        for number, kind in ((1, "ok"), (2, "ok"), (3, "timeout"))
    ]  # fmt: skip
    store.commit(Commit(attempts=tried, finals=[final_of(limited, 1)]))
    assert Sql(url).surplus() == {f"http://h/{limited}/2"}
    store.close()


def final_of(crawl: int, number: int) -> Final:
    """Return the final state of a dead letter."""
    return Final(
        crawl=crawl, fingerprint=number, url=f"http://h/{crawl}/{number}", state="dead",
        kind="timeout", at_ms=1,
    )  # fmt: skip


def replace_final(final: Final) -> Final:
    """Return a stand-in for a final state: another URL, which is a dead letter."""
    return Final(
        crawl=final.crawl, fingerprint=2, url=f"{DAY}1", state="dead", kind="timeout", at_ms=1
    )
