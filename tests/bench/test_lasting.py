"""The calculations of benchmarks of long runs: rates around an outage, memory, verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import document
from bench.faults import away_figures
from bench.faults.away_figures import Row, Times
from bench.rig import resident
from bench.rig.web import Spec, Web
from bench.rig.web_pages import Pages
from bench.store import crawls, growth

TIMES = Times(began=0, away=20, back=40, paid=50, ended=60)


def pages(name: str, first: int, last: int, a_second: int) -> list[Row]:
    """Return ``a_second`` answers a second, evenly."""
    rows = range(first * a_second, last * a_second)
    return [(n / a_second, n / a_second, name, f"/p/{n}", 200) for n in rows]


def test_the_rate_of_reachable_hosts_is_compared_with_their_rate_before_the_outage() -> None:
    rows = pages("stays", 0, 20, 10) + pages("stays", 20, 40, 8) + pages("goes", 0, 20, 5)
    rows += pages("goes", 50, 60, 4)
    rows += [(0.1, 0.1, "stays", "/robots.txt", 200)] * 100
    found = away_figures.figures(rows, {"goes"}, TIMES)
    assert (found["before"], found["away"], found["ratio"]) == (10, 8, 0.8)
    assert found["ratio_all"] == pytest.approx(8 / 15)
    assert (found["gone_before"], found["gone_after"]) == (5, 4)


def test_a_time_step_without_pages_shows_as_the_worst_rate() -> None:
    rows = pages("stays", 0, 20, 10) + pages("stays", 25, 40, 12)
    found = away_figures.figures(rows, {"goes"}, TIMES)
    assert found["worst"] == 0
    assert found["ratio"] == pytest.approx(0.9)
    steps = away_figures.by_step(rows, {"goes"}, 0, 60)
    assert steps["stays"] == [10, 10, 10, 10, 0, 12, 12, 12, 0, 0, 0, 0]
    assert steps["goes"] == [0] * 12


def test_cpu_time_per_page_is_computed_before_and_during_the_outage() -> None:
    one = {"times": TIMES._asdict(), "cpu_seconds": [2.0, 1.0], "before_all": 50, "away_all": 20}
    assert away_figures.cpu_ms(one) == (2.0, 2.5)


def test_memory_growth_is_measured_from_the_first_to_the_last_tenth_of_a_period() -> None:
    samples = [(float(at), {"worker": 100 + at / 10}) for at in range(200)]
    first, last = resident.ends(samples, "worker", 100, 200) or (0, 0)
    assert first == pytest.approx(110.5)
    assert last == pytest.approx(119.45)
    assert resident.ends(samples, "broker", 100, 200) is None


def test_memory_growth_per_crawl_is_computed_for_each_half_of_the_crawls() -> None:
    found = [{"worker": 10.0 * min(n, 40)} for n in range(1, 101)]
    found[-1]["worker"] = 900.0  # a short peak
    assert crawls.growth(found, "worker") == (pytest.approx((400 - 55) / 40), 0)


def test_the_growth_of_a_table_is_compared_with_the_year_before() -> None:
    size = growth.Size
    months = [{"a": size(min(n, 12), 10), "b": size(1, 10 * n)} for n in range(1, 37)]
    assert growth.growth(months) == {"rows": 1, "bytes": 370 / 250}


def test_links_of_the_synthetic_site_lead_to_the_given_hosts(tmp_path: Path) -> None:
    web = Web(tmp_path, Spec(hosts=50, fresh=2, foreign=1.0, abroad=(3, 7)))
    body = Pages(web.spec, str).body("a", "/p/1")
    assert set(re.findall(rb'href="(\d+)/p/', body)) == {b"3", b"7"}
    assert b'href="/p/' not in body
    assert web.seeds() == [web.url(3), web.url(7)]


@pytest.mark.parametrize(("figures", "status"), [({"lost": 0}, 0), ({"lost": 1}, 1), ({}, 0)])
def test_a_run_fails_if_a_figure_misses_its_required_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, Any], status: int
) -> None:
    record = {"name": "away", "short": True, "figures": figures}
    (tmp_path / "away.json").write_text(json.dumps(record))
    assert document.missed("away", tmp_path) == status
    assert ("MISSED: URLs lost" in capsys.readouterr().out) == bool(status)
