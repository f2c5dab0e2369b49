"""The calculations of the benchmarks of width and scale: fits, bounds, gaps, tables."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.models.findings import beside_the_source, parting, share_of_link
from bench.rig.web import Spec, host, polite_rate
from bench.rig.web_pages import Pages
from bench.rig.window import Patience
from bench.scale import cost_model, scaling
from bench.scale.cost_model import Costs, Part, Sample
from bench.scale.process_tables import efficiencies
from bench.scale.wide import by_second, closest

COSTS = Costs(
    {"worker": Part(0.01, 0.002, 0.0008), "broker": Part(0.005, 0.001, 0.00002)},
    wait=0.003,
    gather=0.025,
    reach=1.1,
)
CORES = 2.0


def test_a_line_fit_recovers_slope_and_intercept() -> None:
    found = cost_model.line([(n, 3 + 20 * n) for n in range(1, 6)])
    assert found.slope == pytest.approx(20)
    assert found.intercept == pytest.approx(3)
    assert found.r2 == pytest.approx(1)


def test_a_line_fit_of_a_bent_curve_has_a_low_r2() -> None:
    assert cost_model.line([(1, 10), (2, 20), (3, 20), (4, 20)]).r2 < 0.7


def test_a_line_fit_needs_two_different_values_of_x() -> None:
    with pytest.raises(ValueError, match="two different"):
        cost_model.line([(2, 1), (2, 3)])


def test_least_squares_give_no_negative_factor() -> None:
    rows = [[1, 100], [1, 200], [1, 300]]
    assert cost_model.least_squares(rows, [120, 220, 320]) == pytest.approx([20, 1])
    rest, slope = cost_model.least_squares(rows, [50, 150, 250])
    assert rest == 0
    assert 0.7 < slope < 0.8


def test_a_single_customer_of_the_queueing_model_never_waits() -> None:
    assert cost_model.throughput([0.01, 0.02], 0.07, 1) == pytest.approx((10, 1))


def test_many_customers_of_the_queueing_model_fill_its_slowest_station() -> None:
    rate, slower = cost_model.throughput([0.01, 0.002], 0.1, 500)
    assert rate == pytest.approx(100, rel=0.001)
    assert slower == pytest.approx((500 / 100 - 0.1) / 0.012, rel=0.001)


def test_the_queueing_model_gives_the_exact_throughput_of_two_equal_stations() -> None:
    # Balanced network without delay: X(n) = n / (D (n + K - 1)) for K stations.
    assert cost_model.throughput([0.01, 0.01], 0.0, 5)[0] == pytest.approx(5 / (0.01 * 6))


def test_the_predicted_rate_is_bounded_by_latency_then_by_a_core_then_by_the_machine() -> None:
    def rate(processes: int, sessions: int, latency: float) -> float:
        return COSTS.predict(processes, sessions, latency, CORES).pages_s

    assert rate(1, 10, 1.0) == pytest.approx(10, rel=0.02)
    assert rate(1, 2000, 0.1) == pytest.approx(COSTS.worker_bound(1), rel=0.01)
    assert rate(8, 4000, 0.1) == pytest.approx(COSTS.machine_bound(8, CORES), rel=0.02)


def test_a_page_costs_an_idle_worker_a_whole_batch_and_a_busy_worker_a_share_of_one() -> None:
    def page(sessions: int, latency: float) -> float:
        found = COSTS.predict(1, sessions, latency, CORES)
        return (found.busy["worker"] - COSTS.parts["worker"].rest) / found.pages_s

    assert page(1, 1.0) == pytest.approx(0.0008 + 0.002, rel=0.05)
    assert page(2000, 0.01) == pytest.approx(COSTS.parts["worker"].full, rel=0.001)


def measured(processes: int, sessions: int, latency: float, cores: float = CORES) -> Sample:
    found = COSTS.predict(processes, sessions, latency, cores)
    return Sample(processes, sessions, latency, found.pages_s, found.batches_s, found.busy, cores)


SMALL = [(16, 1.0), (64, 1.0), (16, 0.1), (64, 0.1), (16, 0.01), (64, 0.01)]


@pytest.mark.parametrize("cores", [2.0, 0.8])
def test_a_fit_recovers_the_cost_model_and_predicts_larger_runs(cores: float) -> None:
    """The model also holds when others take most of the machine: CPU a page and a batch stays the
    same."""
    found = cost_model.fit([measured(1, n, at, cores) for n, at in SMALL])
    for name, part in COSTS.parts.items():
        assert tuple(found.parts[name]) == pytest.approx(tuple(part), rel=0.02)
    assert found.wait == pytest.approx(COSTS.wait, abs=0.001)
    for processes, latency in ((1, 0.01), (2, 0.01), (2, 0.1), (2, 1.0)):
        large = measured(processes, 256, latency)
        guess = found.predict(processes, 256, latency, CORES)
        assert guess.pages_s == pytest.approx(large.pages_s, rel=0.1)
        assert guess.busy == pytest.approx(large.busy, rel=0.1)


def window(pages_s: float, worker: float, broker: float, foreign: float = 0.0) -> dict[str, Any]:
    busy = {"worker": worker, "broker": broker, "redis": 0.0, "server": 0.0}
    return {"pages_s": pages_s, "busy": busy, "foreign": foreign}


def test_the_efficiency_of_two_processes_is_relative_to_the_cpu_that_one_needs() -> None:
    alone = window(1000, 0.9, 0.1)  # 1 ms a page: two cores allow 2,000
    at_best, dear, waiting = efficiencies(
        [alone] * 3,
        [window(2000, 1.8, 0.2), window(1600, 1.8, 0.2), window(1600, 1.44, 0.16)],
        cores=2,
    )
    assert (at_best["share"], at_best["idle"]) == pytest.approx((1, 0))
    assert (dear["share"], dear["idle"]) == pytest.approx((0.8, 0))
    assert dear["together"] == pytest.approx(0.00125)
    assert (waiting["share"], waiting["idle"]) == pytest.approx((0.8, 0.2))


def test_cpu_time_saved_by_two_processes_does_not_offset_time_that_they_leave_idle() -> None:
    (found,) = efficiencies([window(1000, 0.9, 0.1)], [window(2100, 1.7, 0.2)], 2)
    assert found["together"] < found["alone"]
    assert found["idle"] == pytest.approx(0.05)
    assert found["share"] == pytest.approx(0.95)


def test_the_efficiency_of_two_processes_ignores_cores_that_other_programs_took() -> None:
    (found,) = efficiencies([window(1000, 0.9, 0.1)], [window(1000, 0.9, 0.1, foreign=1.0)], 2)
    assert (found["share"], found["idle"]) == pytest.approx((1, 0))


def test_a_disturbed_measurement_is_repeated_until_the_patience_is_used_up() -> None:
    class Said:
        def __init__(self, foreign: float) -> None:
            self.foreign = foreign

        def close(self) -> dict[str, Any]:
            return {"foreign": self.foreign}

    def measure(patience: float, *foreign: float) -> tuple[float, int]:
        windows = [Said(each) for each in foreign]
        left = list(windows)
        one = Patience(patience).measure(lambda: left.pop(0), 0.01)  # type: ignore[arg-type,return-value]
        return one["foreign"], len(windows) - len(left)

    assert measure(1.0, 0.0, 0.5) == (0.0, 1)
    assert measure(1.0, 0.5, 0.02, 0.0) == (0.02, 2)
    assert measure(0.02, 0.9, 0.3, 0.5, 0.0) == (0.3, 3)
    assert measure(0.0, 0.9, 0.0) == (0.9, 1)


def test_synthetic_pages_have_the_set_number_of_new_links_and_all_differ() -> None:
    spec = Spec(fresh=2)
    pages = Pages(spec, str)
    known = {"/p/0"}
    new = []
    for number in range(200):  # in the order in which a crawl meets them
        body = pages.body("a", f"/p/{number}")
        links = re.findall(rb'href="([^"]+)"', body)
        assert len(links) == 40
        assert 18_500 < len(body) < 21_500
        found = {link.decode() for link in links} - known
        new.append(len(found))
        known |= found
    assert set(new[1:]) == {2}
    assert known >= {f"/p/{number}" for number in range(200)}
    assert len({pages.body(name, "/p/1") for name in "ab"}) == 2


def test_the_behaviour_of_a_synthetic_host_follows_from_its_number() -> None:
    spec = Spec(hosts=1000, latency_ms=(50, 500), odd=0.01, names=True)
    first = [host(spec, n) for n in range(1000)]
    assert first == [host(spec, n) for n in range(1000)]
    assert {one.manner for one in first} == {"good", "slow", "mute", "refused", "missing"}
    good = [one for one in first if one.manner == "good"]
    assert 900 < len(good) < 990
    assert all(0.05 <= one.latency <= 0.5 for one in good)
    assert len({one.address for one in first}) == 1000


def test_the_polite_rate_of_equal_hosts_follows_from_latency_and_delay() -> None:
    spec = Spec(hosts=10, latency_ms=(250, 250))
    assert polite_rate(spec, 1.0) == pytest.approx(10 / 1.25)
    assert polite_rate(spec, 1.0, from_start=True) == pytest.approx(10)


def test_the_polite_rate_of_a_slow_host_includes_a_pause_of_twice_its_latency() -> None:
    spec = Spec(hosts=1, latency_ms=(2000, 2000))
    assert polite_rate(spec, 1.0) == pytest.approx(1 / 6)
    assert polite_rate(spec, 1.0, from_start=True) == pytest.approx(1 / 2)


ROWS = [
    (10.0, 10.5, "a", "/robots.txt", 200),
    (11.6, 12.0, "a", "/p/0", 200),
    (10.2, 10.3, "b", "/p/0", 200),
    (11.5, 13.9, "b", "/p/1", 200),
]


def test_the_closest_gap_is_measured_between_requests_to_the_same_host() -> None:
    assert closest(ROWS, from_start=False) == pytest.approx(1.1)
    assert closest(ROWS, from_start=True) == pytest.approx(1.3)


def test_pages_are_counted_in_the_second_in_which_they_end() -> None:
    assert by_second(ROWS) == [1, 0, 1, 1]
    assert by_second([]) == []


def test_the_used_share_of_the_link_is_computed_from_bytes_and_time() -> None:
    assert share_of_link([500_000, 1_000_000], 1.0, 8_000_000) == pytest.approx(0.5)


def overheads(behind: dict[int, float]) -> list[dict[str, object]]:
    """Rows of experiment 2 in which threads are this much behind greenlets."""
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
def test_the_curves_part_at_the_number_from_which_greenlets_stay_ahead(
    behind: dict[int, float], expected: int | None
) -> None:
    assert parting(overheads(behind), parse=True) == expected


@pytest.mark.parametrize(
    ("threads", "behind", "network", "overhead"),
    [
        (1000, {100: 0.0, 300: 0.0}, "+0.0 %: threads now fill", "nowhere, unlike in the study"),
        (900, {100: 0.0, 300: 0.02}, "+11.1 %: threads now do better", "from 300 on, lat"),
        (810, {100: 0.02, 300: 0.02}, "+23.5 %: as in the study", "from 100 on, as in the study"),
        (1100, {100: 0.0}, "-9.1 %: here threads bring more", "nowhere, unlike in the study"),
    ],
)
def test_our_findings_are_compared_in_words_with_those_of_the_study(
    threads: int, behind: dict[int, float], network: str, overhead: str
) -> None:
    sizes = {"greenlets": (60, 120), "threads": (55, 200)}
    memory = [
        {"model": model, "concurrency": count, "rss_mb": [1.0, size, 999.0]}
        for model, both in sizes.items()
        for count, size in zip((0, 1000), both, strict=True)
    ]
    alone = {"greenlets": [[500, 1000]], "threads": [[400, threads]]}
    text = beside_the_source(
        {"memory": memory, "overhead": {"rows": overheads(behind)}, "network": {"alone": alone}}
    )
    assert "60 KB with greenlets and 145 KB with threads" in text
    assert network in text
    assert overhead in text


def test_the_scaling_page_says_not_run_for_missing_results() -> None:
    page = scaling.draw({}, {}, {}, scaling.DOCUMENT.read_text())
    assert "`python -m bench.scale.processes`: not run" in page
    assert "| writer of the MySQL cluster | the benchmark's, one core | not run | not run |" in page
    assert "Pages a second against nodes that bring their own sessions: not run." in page
    assert "Share of what the CPU allows: not run." in page


def test_the_scaling_page_lists_the_part_that_saturates_first_at_the_top() -> None:
    scale = {
        "short": False,
        "when": "2026-01-02T00:00:00Z",
        "machine": {"cores": 2, "processor": "P"},
        "versions": {"python": "3.11"},
        "figures": {
            "cpu_ms_worker": 1.0,
            "cpu_ms_broker": 0.05,
            "cpu_ms_redis": 0.1,
            "cpu_us_new_link_redis": 2.5,
            "new_links": 2,
            "all_links": 42,
            "prediction_off": 0.071,
            "prediction_off_cpu": 0.052,
            "two_processes": 0.961,
            "two_processes_idle": 0.013,
            "two_processes_dearer": 1.03,
        },
    }
    store = {"figures": {"store x4": {"pages_a_second": 2500}}}
    rows = scaling.capacities(scale, store, {})
    assert [row.part for row in rows][:4] == [
        "writer of the MySQL cluster",
        "Redis, all links new",
        "Redis",
        "broker",
    ]
    assert rows[1].pages_s == pytest.approx(0.7 / 0.0002)
    page = scaling.draw(scale, store, {}, scaling.DOCUMENT.read_text())
    assert "| one core | 2,500 | 2.5 | 40 |" in page.replace("the benchmark's, ", "")
    assert "| pages a second of all workers | 100,000 |" in page
    assert "number of workers: writer of the MySQL cluster at 2.5; Redis, all links new at" in page
    assert "at most 7% in pages per second, 5% in CPU per page" in page
    assert "reach 0.961 of the rate that the CPU allows. 1.3% of the cores stays idle" in page
