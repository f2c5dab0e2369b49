"""Sums are counted in the background, one crawl after another, and seldom."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent.event import Event

from greencrawl.monitor.background import counting as module
from greencrawl.monitor.background.counting import LEAST_SECONDS, SHARE, Counting
from greencrawl.schema.errors import Unavailable
from tests.monitor.rig import Desk

SUMS = ("pages", "bytes", "hosts", "dead", "gone", "excluded", "parked")


class Slow:
    """Counts when the test allows it, and notes how many crawls are counted at once."""

    def __init__(self) -> None:
        self.go = Event()
        self.asked: list[int] = []
        self.at_once = self.most_at_once = 0

    def __call__(self, crawl: int) -> dict[str, int]:
        self.asked.append(crawl)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.go.wait()
        self.at_once -= 1
        return dict.fromkeys(SUMS, crawl)


@pytest.fixture
def made() -> Iterator[Callable[[Counting], Counting]]:
    """Ends the counters that a test makes."""
    all_: list[Counting] = []
    yield lambda one: (all_.append(one), one)[1]
    for one in all_:
        one.stop()


def test_a_page_waits_only_briefly_while_crawls_are_counted_one_after_another(
    made: Callable[[Counting], Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.01)
    slow = Slow()
    counting = made(Counting(slow))
    looking = [gevent.spawn(counting.of, [1, 2, 3]) for _ in range(5)]
    gevent.joinall(looking, timeout=5)
    assert [one.value for one in looking] == [{}] * 5
    assert slow.asked == [1]
    slow.go.set()
    monkeypatch.setattr(module, "FIRST_SECONDS", 5.0)
    assert counting.of([1, 2, 3]) == {n: dict.fromkeys(SUMS, n) for n in (1, 2, 3)}
    assert (slow.asked, slow.most_at_once) == ([1, 2, 3], 1)


def test_a_crawl_that_takes_long_to_count_is_counted_less_often(
    made: Callable[[Counting], Counting],
) -> None:
    now, took, asked = [0.0], [0.1], list[float]()

    def count(crawl: int) -> dict[str, int]:
        asked.append(now[0])
        now[0] += took[0]
        return {"pages": len(asked)}

    counting = made(Counting(count, lambda: now[0]))
    assert counting.of([1]) == {1: {"pages": 1}}
    now[0] += LEAST_SECONDS - 1
    assert counting.of([1]) == {1: {"pages": 1}}
    now[0], took[0] = now[0] + 1, 30.0
    assert counting.of([1]) == {1: {"pages": 1}}, "what was counted last, while it is counted"
    gevent.sleep(0)
    now[0] += SHARE * 30 - 1
    assert counting.of([1]) == {1: {"pages": 2}}
    gevent.sleep(0)
    assert len(asked) == 2


def test_a_crawl_that_cannot_be_counted_differs_from_one_not_counted_yet(
    made: Callable[[Counting], Counting],
) -> None:
    def count(crawl: int) -> dict[str, int]:
        raise Unavailable("the store is away")

    assert made(Counting(count)).of([7]) == {7: None}


def test_a_crawl_whose_count_raises_an_error_delays_no_other_crawl(
    made: Callable[[Counting], Counting], capsys: pytest.CaptureFixture[str]
) -> None:
    def count(crawl: int) -> dict[str, int]:
        return {"pages": 6 // (crawl - 7)}

    assert made(Counting(count)).of([7, 8]) == {7: None, 8: {"pages": 6}}
    assert "crawl_not_counted" in capsys.readouterr().err


def test_the_store_page_lists_some_crawls_and_counts_only_those(
    admin: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.monitor.views.system.store.SHOWN", 3)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.01)
    ids = {name: admin.crawl(name).id for name in ("a", "b", "c", "d", "e")}
    slow = Slow()
    admin.monitor.app()._figures.counting = Counting(slow)
    html = admin.get("/monitor/store").text
    assert html.count(">counting<") == 3
    slow.go.set()
    monkeypatch.setattr(module, "FIRST_SECONDS", 5.0)
    html = admin.get("/monitor/store?later=1").text
    assert ">counting<" not in html
    assert slow.asked == [ids[name] for name in ("e", "d", "c")]
    assert f'href="?before={ids["c"]}"' in html
    rest = admin.get(f"/monitor/store?before={ids['c']}").text
    assert 'data-key="b"' in rest
    assert 'data-key="c"' not in rest
    assert "?before" not in rest
