"""What a real system tells Prometheus while it crawls."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.checkout import ROOT
from tests.support.effort import by_night
from tests.support.ports import free_port
from tests.support.prometheus import (
    Prometheus,
    alerts,
    board_queries,
    names,
    needs_promtool,
    promtool,
)
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

PAGES = 30
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ROW = re.compile(
    r"^\| `((?:greencrawl|process)_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.MULTILINE
)


def site(request: Request) -> Answer:
    if request.target == "/":
        return Answer(body=html("menu", [f"/{n}" for n in range(PAGES)] + ["/gone"]))
    if request.target in ("/robots.txt", "/gone"):
        return Answer(404)
    return Answer(body=html(request.target, []), wait=2.5 if request.target == "/slow" else 0.0)


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[System]:
    """Start a system and crawl a site."""
    folder, port = tmp_path_factory.mktemp("metrics"), free_port()
    with (
        shared_system(folder, metrics_bind=f"127.0.0.1:{port}") as system,
        SiteServer(site) as server,
    ):
        ports.update({"greencrawl-broker": system.port, "greencrawl-worker": port})
        system.crawl([server.url("/")], delay=0)
        system.wait_done(30)
        yield system


def scrape(port: int, accept: str = "") -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept} if accept else {}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def value(text: str, sample: str) -> float:
    (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return float(found)


def test_the_metrics_of_a_worker_equal_what_it_did(system: System, ports: dict[str, int]) -> None:
    text, one = scrape(ports["greencrawl-worker"]), '{process="0"}'
    name = "greencrawl_worker_"
    assert value(text, f"{name}pages_total{one}") == PAGES + 1 == system.stats()["stored"]
    # Two more: robots.txt, and the page that is gone.
    assert value(text, f"{name}requests_total{one}") == PAGES + 3
    assert value(text, f'{name}failures_total{{kind="gone"}}') == 1
    assert value(text, f'{name}tasks_total{{outcome="done"}}') == PAGES + 2
    assert value(text, f"{name}received_bytes_total{one}") >= system.stats()["bytes"] > 0
    assert value(text, f"{name}response_seconds_count") == PAGES + 3
    assert value(text, f"{name}commit_seconds_count") > 0
    assert value(text, f"{name}connections_total{one}") > 0
    assert value(text, f"{name}dns_lookups_total{one}") > 0
    assert value(text, f"{name}greenlets_allowed{one}") == 300
    assert value(text, f"{name}resident_memory_bytes{one}") > 20e6
    assert value(text, f"{name}processes") == 1


def test_metrics_of_sessions_and_greenlets_rise_and_fall_with_the_work(
    system: System, ports: dict[str, int]
) -> None:
    one = '{process="0"}'

    def held() -> list[float]:
        text = scrape(ports["greencrawl-worker"])
        names = ("sessions_held", "greenlets_busy", "in_hand_bytes", "writer_queue_results")
        return [value(text, f"greencrawl_worker_{name}{one}") for name in names]

    with SiteServer(site) as server:
        system.crawl([server.url("/slow")], name="slow", delay=0)
        wait_until(lambda: held()[:2] == [1, 1], 10, "it fetches", every=0.1)
        system.wait_done(30, name="slow")
        wait_until(lambda: held() == [0, 0, 0, 0], 10, "it is through", every=0.1)


def test_the_metrics_of_a_broker_agree_with_its_api(system: System, ports: dict[str, int]) -> None:
    text, crawl = scrape(ports["greencrawl-broker"]), '{crawl="test"}'
    assert value(text, f"greencrawl_crawl_stored_pages_total{crawl}") == PAGES + 1
    assert value(text, f"greencrawl_crawl_waiting_urls{crawl}") == 0
    assert value(text, 'greencrawl_crawls{state="done"}') >= 1
    (node,) = re.findall(r'^greencrawl_redis_up(\{node="[^"]+"\}) 1.0$', text, re.MULTILINE)
    assert value(text, f"greencrawl_redis_memory_used_bytes{node}") > 100_000
    assert value(text, f"greencrawl_redis_epoch{node}") >= 1
    assert value(text, f"greencrawl_redis_owed{node}") == 0
    assert value(text, "greencrawl_store_writable") == 1
    assert value(text, "greencrawl_store_size_bytes") > 10_000
    assert value(text, 'greencrawl_duty_held{duty="upkeep"}') == 1


@needs_promtool
@pytest.mark.parametrize("job", ["greencrawl-broker", "greencrawl-worker"])
def test_promtool_accepts_the_served_metrics(
    system: System, ports: dict[str, int], job: str
) -> None:
    assert promtool("check", "metrics", text=scrape(ports[job])) == ""


def families(ports: dict[str, int]) -> dict[str, tuple[str, str, set[str]]]:
    """Return name in queries → (kind, meaning, labels that were seen)."""
    found = {}
    for port in ports.values():
        for family in text_string_to_metric_families(scrape(port, OPENMETRICS)):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[name] = (family.type, family.documentation, labels)
    return found


def test_the_docs_list_exactly_the_served_metrics(system: System, ports: dict[str, int]) -> None:
    said = {
        name: (kind, meaning, set(re.findall(r"\w+", labels)))
        for name, kind, labels, meaning in ROW.findall(
            (ROOT / "docs" / "metrics.md").read_text("utf-8")
        )
    }
    served = families(ports)
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in sorted(labels))} | {meaning} |"
        for name, (kind, meaning, labels) in served.items()
    ]
    assert said.keys() == served.keys(), "\n".join(rows)
    for name, (kind, meaning, labels) in served.items():
        assert said[name][:2] == (kind, meaning)
        assert labels in (set(), said[name][2]), name


def test_labels_of_metrics_have_few_values(system: System, ports: dict[str, int]) -> None:
    text = "".join(scrape(port) for port in ports.values())
    samples = [line.partition("{")[0] for line in text.splitlines() if line[0] != "#"]
    assert max(samples.count(name) for name in set(samples) if not name.endswith("_bucket")) < 60


def test_the_dashboard_and_the_alerts_use_only_served_metrics(
    system: System, ports: dict[str, int]
) -> None:
    served = {
        f"{name}{end}"
        for name, (kind, *_) in families(ports).items()
        for end in {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(
            kind, ("",)
        )
    }
    asked = [expression for _, expression in board_queries()]
    asked += [rule["expr"] for rule in alerts().values()]
    missing = {name for expression in asked for name in names(expression)} - served
    assert missing == set()


@needs_promtool
@by_night
def test_every_query_of_the_dashboard_has_data_and_no_alert_fires(
    system: System, ports: dict[str, int], tmp_path: Path
) -> None:
    """By day the test compares only the names of the metrics."""
    with Prometheus(tmp_path / "prometheus", ports) as prometheus, SiteServer(site) as server:
        for n in range(4):
            system.crawl([server.url("/")], name=f"c{n}", delay=0)
            system.wait_done(30, name=f"c{n}")
            time.sleep(2.5)  # one or two scrapes
        empty = [
            (title, expression)
            for title, expression in board_queries()
            if not prometheus.evaluate(expression)
        ]
        assert empty == []
        (pages,) = prometheus.evaluate("sum(rate(greencrawl_worker_pages_total[10s]))")
        assert float(pages["value"][1]) > 1
        (group,) = prometheus.ask("rules")["groups"]
        assert {rule["name"]: rule["health"] for rule in group["rules"]} == dict.fromkeys(
            alerts(), "ok"
        )
        assert [rule["name"] for rule in group["rules"] if rule["state"] != "inactive"] == []
