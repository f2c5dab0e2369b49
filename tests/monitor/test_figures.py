"""Rates and plots: calm, and without a dent at their end."""

from __future__ import annotations

import pytest

from greencrawl.monitor import figures as module
from greencrawl.monitor.figures import Figures, Sample, joined, sampled
from greencrawl.monitor.shared import Shared
from greencrawl.schema.records import Counted
from greencrawl.schema.records import Sample as Point
from tests.monitor.rig import Desk

NOW_MS = 30_000_000 * 60_000
"""The start of a minute."""


def test_a_rate_is_averaged_over_half_a_minute_however_unevenly_pages_are_stored() -> None:
    samples: list[Sample] = []
    for step in range(20):
        stored = {"even": 100 * step, "bursts": 300 * (step // 3)}
        samples.append(sampled(samples, NOW_MS + step * 5000, stored))
    assert samples[0].rates == {}
    assert (samples[1].rates["even"], samples[1].seconds) == (20.0, 5.0)
    late = samples[8:]
    assert {one.seconds for one in late} == {30.0}
    assert {one.rates["even"] for one in late} == {20.0}
    assert {one.rates["bursts"] for one in late} == {20.0}


def test_a_crawl_that_begins_again_never_has_a_negative_rate() -> None:
    first = sampled([], NOW_MS, {"old": 50})
    second = sampled([first], NOW_MS + 5000, {"old": 60, "new": 0})
    assert second.rates == {"old": 2.0}
    third = sampled([first, second], NOW_MS + 10_000, {"old": 0, "new": 10})
    assert third.rates == {"old": 0.0, "new": 2.0}
    late = sampled([first, second, third], NOW_MS + 110_000, {"old": 100})
    assert (late.rates, late.seconds) == ({"old": 1.0}, 100.0)


@pytest.fixture
def figures(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Figures:
    """At a moment 40 seconds after a minute began."""
    monkeypatch.setattr(module, "epoch_ms", lambda: NOW_MS + 40_000)
    return Figures(desk.service, Shared())


def noted(desk: Desk, name: str, minutes: range, each: int) -> None:
    """What a coordinator has noted of a crawl, by minutes before now."""
    crawl, last = desk.crawl(name), NOW_MS // 60_000
    rows = [Counted(crawl=crawl.id, minute=last - n, pages=each * (60 - n)) for n in minutes]
    desk.store.put_samples(rows)


def test_a_minute_is_drawn_only_when_all_crawls_have_a_sample_of_it(
    desk: Desk, figures: Figures
) -> None:
    noted(desk, "blog", range(10, -1, -1), 60)
    noted(desk, "shop", range(10, 0, -1), 120)  # its sample of this minute is not there yet
    moments, values = figures.plot(figures.crawls())
    assert set(values) == {3.0}
    assert moments[-1] == NOW_MS // 1000 - 60


def test_a_seldom_counted_crawl_adds_to_each_minute_between_its_samples(
    desk: Desk, figures: Figures
) -> None:
    noted(desk, "blog", range(10, -1, -1), 60)
    noted(desk, "calm", range(10, -1, -5), 120)
    moments, values = figures.plot(figures.crawls())
    assert (len(moments), set(values)) == (9, {1.0, 3.0})
    assert values[:5] == [3.0] * 5
    noted(desk, "long", range(5000, 4, -4995), 12)  # nothing for days, and then a little
    assert min(figures._plot(desk.store.crawls(), "hour")[0]) >= NOW_MS // 1000 - 3600 + 40


def test_the_last_point_of_a_thinned_plot_spans_at_least_half_an_interval() -> None:
    hours = [Point(at_ms=n * 3_600_000, seconds=3600, pages=3600) for n in (1, 2, 3)]
    last = Point(at_ms=3 * 3_600_000 + 60_000, seconds=60, pages=600)
    found = joined([*hours, last], 1800)
    assert found[:2] == hours[:2]
    assert (found[2].at_ms, found[2].pages, found[2].seconds) == (last.at_ms, 4200, 3660)
    assert joined([*hours, last], 60) == [*hours, last]
    assert joined([last], 1800) == [last]


def test_the_brokers_own_samples_replace_minutes_only_while_somebody_looked(
    desk: Desk, figures: Figures
) -> None:
    noted(desk, "blog", range(30, -1, -1), 60)
    at, samples = NOW_MS - 20 * 60_000 + 7000, list[Sample]()
    for _ in range(30):  # two minutes and a half, some time ago
        samples.append(sampled(samples, at, {"blog": 5 * len(samples)}))
        at += 5000
    for step in (0, 1000, 3000, 8000, 13_000, 18_000):  # and again, a moment ago
        samples.append(
            sampled(samples, NOW_MS + 20_000 + step, {"blog": 10_000 + 3 * step // 1000})
        )
    figures._samples.extend(samples)
    found = dict(zip(*figures.plot(figures.crawls()), strict=True))
    minutes = {n: found.get(NOW_MS // 1000 - 60 * n) for n in range(29, 0, -1)}
    assert {n for n, rate in minutes.items() if rate is None} == {18, 19}
    assert {rate for rate in minutes.values() if rate is not None} == {1.0}
    own = [rate for at, rate in found.items() if at % 60]
    assert set(own) == {1.0, 3.0}
    assert max(found) == NOW_MS // 1000 + 38
    assert own.count(3.0) == 3, "what is over less than some seconds is left out"


def test_a_plot_without_stored_samples_begins_with_the_first_own_samples(
    desk: Desk, figures: Figures
) -> None:
    desk.crawl("blog")
    for step in (0, 1000, 3000):
        one = sampled(list(figures._samples), NOW_MS + 30_000 + step, {"blog": step // 100})
        figures._samples.append(one)
    assert figures.plot(figures.crawls())[1] == [10.0, 10.0]
    assert figures.rate("blog") == 10.0
