"""What the benchmarks of width and scale compute: fits, bounds, gaps, tables. No times."""

from __future__ import annotations

import pytest

from bench import cost_model, scaling
from bench.cost_model import Costs, Part, Sample
from bench.greenlets_vs_threads import beside_the_source, parting, share_of_link
from bench.web import Spec, host, polite_rate
from bench.wide import by_second, closest

COSTS = Costs({"worker": Part(0.02, 0.0008), "broker": Part(0.01, 0.0002)}, 0.004, 2)


def test_line_is_found_again() -> None:
    found = cost_model.line([(n, 3 + 20 * n) for n in range(1, 6)])
    assert found.slope == pytest.approx(20)
    assert found.intercept == pytest.approx(3)
    assert found.r2 == pytest.approx(1)


def test_line_of_a_bend_says_so() -> None:
    assert cost_model.line([(1, 10), (2, 20), (3, 20), (4, 20)]).r2 < 0.7


def test_line_needs_two_places() -> None:
    with pytest.raises(ValueError, match="two different"):
        cost_model.line([(2, 1), (2, 3)])


def test_part_costs_nothing_less_than_nothing_at_rest() -> None:
    part = cost_model.fit_part([(100, 0.05), (200, 0.15)])
    assert part.fixed == 0
    assert 0.0005 < part.per_page < 0.00075


def test_one_customer_never_queues() -> None:
    assert cost_model.throughput([0.01, 0.02], 0.07, 1) == pytest.approx(10)


def test_many_customers_fill_the_slowest_station() -> None:
    assert cost_model.throughput([0.01, 0.002], 0.1, 500) == pytest.approx(100, rel=0.001)


def test_throughput_of_two_equal_stations_is_exact() -> None:
    # Balanced network without delay: X(n) = n / (D (n + K - 1)) for K stations.
    assert cost_model.throughput([0.01, 0.01], 0.0, 5) == pytest.approx(5 / (0.01 * 6))


def test_model_is_bounded_by_latency_then_by_a_core_then_by_the_machine() -> None:
    assert COSTS.predict(1, 10, 1.0) == pytest.approx(10, rel=0.02)
    assert COSTS.predict(1, 2000, 0.1) == pytest.approx(COSTS.worker_bound(1), rel=0.01)
    assert COSTS.predict(8, 4000, 0.1) == pytest.approx(COSTS.machine_bound(8), rel=0.02)


def test_fit_recovers_a_model_and_foretells_a_larger_run() -> None:
    def measured(processes: int, sessions: int, latency: float) -> Sample:
        rate = COSTS.predict(processes, sessions, latency)
        busy = {
            name: part.fixed * (processes if name == "worker" else 1) + part.per_page * rate
            for name, part in COSTS.parts.items()
        }
        return Sample(processes, sessions, latency, rate, busy)

    small = [measured(1, n, at) for n, at in ((8, 0.01), (16, 0.1), (64, 0.1), (64, 1.0))]
    found = cost_model.fit(small, 2)
    assert found.wait == pytest.approx(COSTS.wait, rel=0.01)
    assert found.parts["worker"].per_page == pytest.approx(0.0008, rel=0.01)
    large = measured(2, 300, 0.1)
    assert found.predict(2, 300, 0.1) == pytest.approx(large.pages_s, rel=0.01)


def test_hosts_are_what_their_number_says() -> None:
    spec = Spec(hosts=1000, latency_ms=(50, 500), odd=0.01, names=True)
    first = [host(spec, n) for n in range(1000)]
    assert first == [host(spec, n) for n in range(1000)]
    assert {one.manner for one in first} == {"good", "slow", "mute", "refused", "missing"}
    good = [one for one in first if one.manner == "good"]
    assert 900 < len(good) < 990
    assert all(0.05 <= one.latency <= 0.5 for one in good)
    assert len({one.address for one in first}) == 1000


def test_polite_rate_of_equal_hosts() -> None:
    spec = Spec(hosts=10, latency_ms=(250, 250))
    assert polite_rate(spec, 1.0) == pytest.approx(10 / 1.25)
    assert polite_rate(spec, 1.0, from_start=True) == pytest.approx(10)


def test_slow_host_is_asked_after_twice_its_latency() -> None:
    spec = Spec(hosts=1, latency_ms=(2000, 2000))
    assert polite_rate(spec, 1.0) == pytest.approx(1 / 6)
    assert polite_rate(spec, 1.0, from_start=True) == pytest.approx(1 / 2)


ROWS = [
    (10.0, 10.5, "a", "/robots.txt", 200),
    (11.6, 12.0, "a", "/p/0", 200),
    (10.2, 10.3, "b", "/p/0", 200),
    (11.5, 13.9, "b", "/p/1", 200),
]


def test_closest_requests_are_those_to_one_host() -> None:
    assert closest(ROWS, from_start=False) == pytest.approx(1.1)
    assert closest(ROWS, from_start=True) == pytest.approx(1.3)


def test_pages_are_counted_by_second_of_their_end() -> None:
    assert by_second(ROWS) == [1, 0, 1, 1]
    assert by_second([]) == []


def test_share_of_link() -> None:
    assert share_of_link([500_000, 1_000_000], 1.0, 8_000_000) == pytest.approx(0.5)


def overheads(behind: dict[int, float]) -> list[dict[str, object]]:
    """Rows of experiment 2 where threads are so much behind greenlets."""
    return [
        {"model": model, "parse": parse, "concurrency": count, "ratio": [0.1, 0.99 - lost, 1.0]}
        for parse in (False, True)
        for count, less in behind.items()
        for model, lost in (("greenlets", 0.0), ("threads", less))
    ]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ({100: 0.0, 200: 0.02, 300: 0.05}, 200),
        ({100: 0.03, 200: 0.0, 300: 0.05}, 300),
        ({100: 0.02, 200: 0.02}, 100),
        ({100: 0.02, 200: 0.005}, None),
    ],
)
def test_curves_part_where_greenlets_stay_ahead(
    behind: dict[int, float], expected: int | None
) -> None:
    assert parting(overheads(behind), parse=True) == expected


@pytest.mark.parametrize(
    ("threads", "behind", "network", "overhead"),
    [
        (1000, {100: 0.0, 300: 0.0}, "+0.0 %: the threads of today fill", "nowhere: later"),
        (900, {100: 0.0, 300: 0.02}, "+11.1 %: the threads of today do better", "from 300 on: lat"),
        (810, {100: 0.02, 300: 0.02}, "+23.5 %: as the source saw", "from 100 on: as it saw"),
        (1100, {100: 0.0}, "-9.1 %: the threads of today fill", "nowhere: later"),
    ],
)
def test_the_sources_findings_are_compared_in_words(
    threads: int, behind: dict[int, float], network: str, overhead: str
) -> None:
    sizes = {"greenlets": (60, 120), "threads": (55, 200)}
    memory = [
        {"model": model, "concurrency": count, "rss_mb": [1.0, size, 999.0]}
        for model, both in sizes.items()
        for count, size in zip((0, 1024), both, strict=True)
    ]
    alone = {"greenlets": [[500, 1000]], "threads": [[400, threads]]}
    text = beside_the_source(
        {"memory": memory, "overhead": {"rows": overheads(behind)}, "network": {"alone": alone}}
    )
    assert "60 KB with greenlets and 145 KB with threads" in text
    assert network in text
    assert overhead in text


def test_scaling_without_results_says_not_run() -> None:
    page = scaling.draw({}, {}, {}, {})
    assert "`python -m bench.scale`: not run" in page
    assert "| writer of the MySQL cluster | the benchmark's, one core | not run | not run |" in page
    assert "scale-line.svg" not in page


def test_scaling_names_first_what_saturates_first() -> None:
    scale = {
        "short": False,
        "when": "2026-01-02T00:00:00Z",
        "machine": {"cores": 2, "processor": "P"},
        "versions": {"python": "3.11"},
        "figures": {"cpu_ms_worker": 1.0, "cpu_ms_broker": 0.05, "cpu_ms_redis": 0.1},
    }
    store = {"figures": {"store x4": {"pages_a_second": 2500}}}
    rows = scaling.capacities(scale, store, {})
    assert [row.part for row in rows][:3] == ["writer of the MySQL cluster", "Redis", "broker"]
    page = scaling.draw(scale, store, {}, {})
    assert "| one core | 2,500 | 2.5 | 40 |" in page.replace("the benchmark's, ", "")
    assert "| pages a second of all workers | 100,000 |" in page
