"""A worker follows orders at once while it crawls, and loses and repeats nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.cli.main import main
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until
from tests.support.web import Web, WebSpec

NODE = "node"
HOSTS = 30
WEB = WebSpec(hosts=HOSTS, pages=20 * HOSTS, fan_out=HOSTS, cross_links=0, answer_seconds=0.1)
SMALL = WebSpec(hosts=HOSTS, pages=5 * HOSTS, fan_out=HOSTS, cross_links=0)
"""Without a limit the worker would fetch it in a second."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("orders")
    with shared_system(folder, processes=2, worker_id=NODE, greenlets="20") as system:
        wait_until(lambda: len(members(system)) == 2, 20, "both processes are members")
        yield system


def order(system: System, *unset: str, **options: Any) -> None:
    system.call(
        "PATCH", "/v1/orders", {"member": NODE, "options": options, "unset": unset, "by": "ann"}
    )


def members(system: System, node: str = NODE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.call("GET", f"/v1/members?node={node}")["members"]
    return found


def facts(system: System, name: str) -> list[Any]:
    """Return a fact of each live process of the node."""
    return [
        one["facts"].get(name, 0)
        for one in members(system)
        if one["status"] == "here" and one["facts"]["options"]
    ]


def kept(system: System, option: str, value: object, source: str = "order") -> bool:
    """Return whether all processes of the node have this value of an option."""
    wanted = {"value": value, "source": source}
    found = [one.get(option) for one in facts(system, "options")]
    return bool(found) and all(one == wanted for one in found)


def test_an_order_is_followed_by_all_processes_and_shown_with_its_source(system: System) -> None:
    assert kept(system, "greenlets", 20, "environment")
    assert kept(system, "requests_per_second", 0.0, "default")
    order(system, greenlets=7, log_level="warning")
    wait_until(lambda: kept(system, "greenlets", 7), 20, "it is kept")
    order(system, "greenlets", "log_level")
    wait_until(lambda: kept(system, "greenlets", 20, "environment"), 5, "it is taken back")
    log = system.call("GET", f"/v1/orders/log?member={NODE}")["items"]
    assert [(one["by_whom"], one["changed"]) for one in log] == [
        ("ann", {"greenlets": None, "log_level": None}),
        ("ann", {"greenlets": 7, "log_level": "warning"}),
    ]


def test_commands_list_nodes_give_them_orders_drain_them_and_change_crawls(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GREENCRAWL_BROKER", f"http://127.0.0.1:{system.port}")

    def said(*words: str, code: int = 0) -> str:
        assert main(words) == code
        read = capsys.readouterr()
        return read.out + read.err

    listed = [line.split("\t") for line in said("nodes").splitlines()]
    assert [line[1:4] for line in listed] == [
        ["broker", "here", "1 process"], ["worker", "here", "2 processes"],
    ]  # fmt: skip
    assert "greenlets=11" in said("order", NODE, "greenlets=11", "paused=no")
    wait_until(lambda: kept(system, "greenlets", 11), 20, "it is kept")
    told = said("nodes", NODE)
    for line in ("greenlets = 11 (order)", "paused = no (order)", "processes = 2 (environment)"):
        assert f"  {line}" in told
    assert "paused=no" in told.splitlines()[-1] or "greenlets=11" in told, "who ordered it"
    said("order", "all", "log_level=warning")
    said("order", "all", "log_level=")
    history = [line for line in said("nodes", NODE).splitlines() if " for all: " in line]
    assert [line.rpartition(": ")[2] for line in history] == ["log_level=", "log_level=warning"]
    assert "no node elsewhere" in said("order", "elsewhere", "drain=yes", code=1)
    assert "drained" in said("drain", NODE)
    assert "not known to be gone" in said("nodes", NODE, "--forget", code=1)
    assert "needs a NODE" in said("nodes", "--forget", code=2)
    ghost = {"id": "ghost-0", "node": "ghost", "kind": "worker", "incarnation": 1}
    for leaving in (False, True):
        system.call("POST", "/v1/members", {**ghost, "leaving": leaving})
    assert "ghost: forgotten" in said("nodes", "ghost", "--forget")
    assert "no node ghost" in said("nodes", "ghost", code=1)
    said("order", NODE, "drain=", "greenlets=", "paused=")
    wait_until(lambda: kept(system, "drain", False, "default"), 5, "it is taken back")
    system.crawl([], name="changed", delay=5)
    assert "delay = 0.5" in said("set", "changed", "delay=0.5", "exclude=/private/")
    found = system.call("GET", "/v1/crawls/changed")["options"]
    assert (found["delay"], found["exclude"], found["sitemaps"]) == (0.5, ["/private/"], "off")


def test_changing_greenlets_and_processes_loses_no_lease_and_fetches_no_url_twice(
    system: System, tmp_path: Path
) -> None:
    with Web(WEB, tmp_path / "web.log") as web:
        system.crawl(web.seeds(), name="load", scope="any", delay=0.05, depth=99)
        wait_until(lambda: web.requests() > 2 * HOSTS, 20, "it is under way")
        order(system, greenlets=3)
        wait_until(lambda: max(facts(system, "sessions")) <= 3, 5, "no more are under way")
        order(system, greenlets=20, processes=4)
        wait_until(lambda: len(system.children()) == 4, 5, "there are four processes")
        wait_until(lambda: len(facts(system, "sessions")) == 4, 20, "and all are members")
        order(system, processes=1)
        wait_until(lambda: len(system.children()) == 1, 10, "there is one process")
        order(system, "greenlets", "processes")
        system.wait_done(40, "load")  # a lost task would wait for the end of its lease
        assert set(pages(web).values()) == {1}
        assert pages(web).keys() == web.expected()
        assert oracle.impolite(web.hits(), 0.05) == []
        assert system.stats("load")["retries"] == 0


def test_a_drained_node_hands_back_all_tasks_and_sends_no_request_until_it_continues(
    system: System, tmp_path: Path
) -> None:
    with Web(SMALL, tmp_path / "web.log") as web:
        system.crawl(web.seeds(), name="drained", scope="any", delay=0.5, depth=99)
        wait_until(lambda: web.requests() > 2 * HOSTS, 20, "it is under way")
        order(system, drain=True)
        wait_until(lambda: kept(system, "drain", True), 20, "it is kept")
        wait_until(lambda: not any(facts(system, "held")), 5, "nothing is held")
        assert system.stats("drained")["leased"] == 0
        before = web.requests()
        # Longer than the delay: a session that had not stopped would send a request.
        time.sleep(0.7)
        assert web.requests() == before
        system.call("PATCH", "/v1/crawls/drained", {"options": {"delay": 0.0, "slots": 2}})
        order(system, "drain")
        system.wait_done(40, "drained")
        assert set(pages(web).values()) == {1}
        assert pages(web).keys() == web.expected()


def test_requests_per_second_limits_all_processes_together(system: System, tmp_path: Path) -> None:
    with Web(SMALL, tmp_path / "web.log") as web:
        order(system, requests_per_second=20)
        wait_until(lambda: kept(system, "requests_per_second", 20), 20, "it is kept")
        system.crawl(web.seeds(), name="slow", scope="any", delay=0, depth=99)
        wait_until(lambda: web.requests() > HOSTS, 20, "hosts are known")
        time.sleep(3)
        arrived = sorted(hit.arrived for hit in web.hits())
        order(system, "requests_per_second")
        system.wait_done(40, "slow")
    begin = arrived[HOSTS]
    seconds = [sum(begin + n <= at < begin + n + 1 for at in arrived) for n in range(2)]
    assert all(19 <= count <= 21 for count in seconds), seconds


def pages(web: Web) -> Counter[str]:
    """Return how often each page was asked for."""
    return Counter(
        f"http://{hit.address}:{web.port}{hit.target}"
        for hit in web.hits()
        if hit.target != "/robots.txt"
    )


def page(request: Request) -> Answer:
    if request.target == "/robots.txt":
        return Answer(404)
    return Answer(body=html(request.target, ["/1", "/2", "/3"]))


def test_a_lower_delay_ends_the_pause_of_a_session_and_applies_from_then_on(system: System) -> None:
    with SiteServer(page, ("127.0.3.1",)) as site:
        system.crawl([site.url("/")], name="rests", delay=25)
        wait_until(lambda: site.hits, 30, "robots.txt was asked for, and the session rests")
        system.call("PATCH", "/v1/crawls/rests", {"options": {"depth": 40}, "by": "bob"})
        changed = system.call("PATCH", "/v1/crawls/rests", {"options": {"delay": 0.1}})
        assert changed["options"]["delay"] == 0.1
        assert changed["options"]["sitemaps"] == "off", "the other options stay"
        system.wait_done(10, "rests")
        assert len(site.hits) == 5
    log = system.call("GET", "/v1/orders/log?crawl=rests")["items"]
    assert [(one["crawl"], one["changed"]) for one in log] == [
        ("rests", {"delay": 0.1}),
        ("rests", {"depth": 40}),
    ]


def test_orders_stay_in_force_without_a_broker_even_when_a_worker_starts(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with System(tmp_path, [redis_server.url], worker_id=NODE) as system:
        system.start()
        wait_until(lambda: kept(system, "greenlets", 300, "default"), 20, "it is a member")
        order(system, greenlets=9, processes=2)
        wait_until(lambda: kept(system, "greenlets", 9), 20, "it is kept")
        wait_until(lambda: len(facts(system, "greenlets")) == 2, 20, "by both")
        system.kill("broker")
        system.kill("worker")
        system.start_worker()
        wait_until(lambda: len(system.children()) == 2, 20, "two processes without a broker")
        system.start_broker()
        wait_until(lambda: kept(system, "greenlets", 9), 20, "it is a member again")
        wait_until(lambda: len(facts(system, "greenlets")) == 2, 20, "both are")
        every = system.call("GET", "/v1/members?gone=true")["members"]
        ids = [one["id"] for one in every]
        assert sorted(set(ids)) == sorted(ids)
        assert len(ids) == 3, "two processes and the broker, each once"
