"""The process of the benchmark of greenlets and threads, with the worker's own parts inside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.models.model_rig import MODELS, Rig, page_of, results
from bench.rig.web import Spec
from tests.support.effort import by_night, cases

HOSTS = 5


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig"), Spec(hosts=HOSTS, latency_ms=(20, 20))) as started:
        yield started


@pytest.mark.parametrize("model", MODELS)
def test_pages_are_fetched_while_the_memory_is_measured(rig: Rig, model: str) -> None:
    (found,) = results([rig.begin(model, "memory", concurrency=HOSTS, seconds=0.5)])
    assert found["pages"] >= 3 * HOSTS
    assert 20 < found["private_mb"] <= found["pss_mb"] <= found["rss_mb"] < 150


@pytest.mark.parametrize("model", MODELS)
def test_no_page_is_fetched_without_a_host(rig: Rig, model: str) -> None:
    (found,) = results([rig.begin(model, "memory", concurrency=0, seconds=0.1)])
    assert found["pages"] == 0


@pytest.mark.parametrize("parse", cases([True], [False]))
def test_each_measurement_of_sleeping_lasts_at_least_its_set_time(rig: Rig, parse: bool) -> None:
    page = rig.folder / "page.html"
    page.write_bytes(page_of(rig.web))
    task = {"seconds": 0.2, "period": 0.8, "parse": parse, "page": str(page)}
    begun = [rig.begin(model, "sleep", concurrency=[1, HOSTS], **task) for model in MODELS]
    began = time.monotonic()
    both = results(begun, apart=0.4)
    assert time.monotonic() - began >= 0.4 + 0.8 + 0.2
    for found in both:
        assert [point["concurrency"] for point in found["points"]] == [1, HOSTS]
        assert all(point["seconds"] >= 0.2 and point["cpu"] > 0 for point in found["points"])


@by_night
def test_greenlets_and_threads_at_once_count_the_bytes_that_each_received(rig: Rig) -> None:
    before = rig.web.counts()["bytes"]
    task: dict[str, Any] = {"concurrency": HOSTS, "periods": 4, "seconds": 0.2}
    both = results([rig.begin(model, "link", **task) for model in MODELS], wait=1.0)
    sums = [found["bytes"] for found in both]
    assert all(len(one) == 4 and one == sorted(one) and one[0] > 0 for one in sums)
    assert sum(one[-1] for one in sums) <= rig.web.counts()["bytes"] - before


@by_night
def test_the_benchmark_fails_if_one_of_its_processes_fails(rig: Rig) -> None:
    with pytest.raises(RuntimeError, match="did not come up"):
        results([rig.begin("neither", "memory", concurrency=1, seconds=0.1)])
    with pytest.raises(RuntimeError, match="failed"):
        results([rig.begin("greenlets", "memory", concurrency=1, seconds="no number")])
