"""A broker's metrics for Prometheus, on a double of the frontier and a real store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from greencrawl.broker.api import metrics, vitals
from greencrawl.broker.api.metrics import Metrics
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, CrawlOptions, CrawlStats, HookCount
from tests.support.queue_double import Parts

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path)
    yield made
    made.service.stop()
    made.store.close()


def lines(shown: Metrics) -> list[str]:
    return shown.text().body.decode().splitlines()


def test_metrics_have_the_openmetrics_format_only_if_it_is_requested(parts: Parts) -> None:
    shown = Metrics(parts.service)
    plain, asked = shown.text("text/plain"), shown.text(OPENMETRICS)
    assert plain.media_type.startswith("text/plain; version=0.0.4")
    assert asked.media_type.startswith("application/openmetrics-text; version=1.0.0")
    assert asked.body.endswith(b"# EOF\n")
    found = list(text_string_to_metric_families(asked.body.decode()))
    assert len(found) > 20
    assert all(one.documentation for one in found)


def test_counters_of_crawls_are_left_out_while_a_node_is_away(parts: Parts) -> None:
    """A sum without that node would look like a counter that was reset and that jumps later."""
    parts.store.put_crawl("news", CrawlOptions(), [])
    shown = Metrics(parts.service)
    counter, gauge = 'greencrawl_crawl_stored_pages_total{crawl="news"} 0.0', "_waiting_urls{"
    assert counter in lines(shown)
    parts.queue.lost_node = "b"
    found = lines(shown)
    assert counter not in found
    assert any(gauge in line for line in found)
    parts.queue.lost_node = ""
    assert counter in lines(shown)


def test_counters_of_crawls_are_left_out_if_a_node_goes_away_during_a_scrape(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.store.put_crawl("news", CrawlOptions(), [])
    ask = parts.queue.stats_of

    def lose(crawls: Sequence[Crawl]) -> list[CrawlStats]:
        parts.queue.lost_node = "b"
        return ask(crawls)

    monkeypatch.setattr(parts.queue, "stats_of", lose)
    assert not any("stored_pages_total{" in line for line in lines(Metrics(parts.service)))


def test_messages_of_failed_hooks_are_no_labels_of_metrics(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.store.put_crawl("shop", CrawlOptions(hook="shop"), [])
    failed = [HookCount("on_page", f"KeyError: {n}", n) for n in range(1, 200)]
    failed.append(HookCount("links", "x", 2))
    monkeypatch.setattr(parts.store, "hook_counts", lambda _: failed)
    found = [line for line in lines(Metrics(parts.service)) if "hook_failed_pages{" in line]
    name = "greencrawl_crawl_hook_failed_pages"
    assert found == [
        f'{name}{{crawl="shop",function="on_page"}} {sum(range(200)):.1f}',
        f'{name}{{crawl="shop",function="links"}} 2.0',
    ]


def test_metrics_cover_a_bounded_number_of_crawls_and_active_ones_first(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_CRAWLS", 2)
    for name in ("a", "b", "c", "d"):
        crawl = parts.store.put_crawl(name, CrawlOptions(), [])
        parts.store.set_state(crawl.id, "active" if name == "a" else "paused")
    found = lines(Metrics(parts.service))
    told = [line for line in found if line.startswith("greencrawl_crawl_active{")]
    assert told == [
        'greencrawl_crawl_active{crawl="a"} 1.0',
        'greencrawl_crawl_active{crawl="d"} 0.0',
    ]
    assert 'greencrawl_crawls{state="paused"} 3.0' in found


def test_the_metrics_of_a_broker_show_its_duties_and_that_the_store_is_writable(
    parts: Parts,
) -> None:
    shown = Metrics(parts.service)
    assert "greencrawl_store_writable 0.0" in lines(shown)
    assert parts.service.duties.take("upkeep") is not None
    found = lines(shown)
    assert 'greencrawl_duty_held{duty="upkeep"} 1.0' in found
    assert 'greencrawl_duty_epoch{duty="upkeep"} 1.0' in found
    assert "greencrawl_store_writable 1.0" in found
    assert "greencrawl_store_renewal_seconds_count 1.0" in found
    parts.service.duties.lost("upkeep")
    assert not any("duty_held{" in line for line in lines(shown))


def test_the_store_counts_as_not_writable_if_no_duty_was_renewed_in_time(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.service.duties.take("upkeep")
    monkeypatch.setattr(vitals, "DUTY_SECONDS", 0.0)
    assert "greencrawl_store_writable 0.0" in lines(Metrics(parts.service))


def test_other_metrics_are_shown_while_the_store_is_away(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise Unavailable("away")

    for name in ("debts", "size", "lags", "crawls"):
        monkeypatch.setattr(parts.store, name, away)
    found = lines(Metrics(parts.service))
    assert "greencrawl_frontier_up 0.0" in found
    assert 'greencrawl_redis_up{node="redis://a"} 1.0' in found
    assert not any(line.startswith("greencrawl_store_size_bytes ") for line in found)


def test_the_stores_size_is_asked_for_once_a_minute(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, sizes = Metrics(parts.service), iter((1000, 2000))
    monkeypatch.setattr(parts.store, "size", lambda: next(sizes))
    for now, size in ((0.0, 1000), (59.0, 1000), (60.0, 2000)):
        parts.now = 100.0 + now
        assert f"greencrawl_store_size_bytes {size}.0" in lines(shown)


def test_metrics_list_replicas_of_the_store_and_mark_silent_ones_as_down(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.store, "lags", lambda: {"m3": 2.5, "m4": None})
    found = lines(Metrics(parts.service))
    assert 'greencrawl_store_replica_up{replica="m3"} 1.0' in found
    assert 'greencrawl_store_replica_lag_seconds{replica="m3"} 2.5' in found
    assert 'greencrawl_store_replica_up{replica="m4"} 0.0' in found
    assert not any('lag_seconds{replica="m4"}' in line for line in found)


def test_metrics_show_the_size_and_the_free_space_of_a_disk(parts: Parts, tmp_path: Path) -> None:
    found = lines(Metrics(parts.service, tmp_path))
    size, free = (
        next(float(line.split()[1]) for line in found if line.startswith(f"{name} "))
        for name in ("greencrawl_broker_data_size_bytes", "greencrawl_broker_data_free_bytes")
    )
    assert 0 < free <= size
