"""Whole crawls by real processes, judged by the target's log and by an independent walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.effort import LONG, cases
from tests.support.idle import commands_during, seed_to_arrival
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import GBK_LINKS, direct, gbk_site, graph_site
from tests.support.stored import read_stored
from tests.support.system import System, signal_child, wait_until
from tests.support.walk import walk

AGENT = "greencrawl"


def test_a_site_is_stored_as_an_independent_walk_finds_it(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    site = graph_site(150)
    with SiteServer(site) as server, System(tmp_path, [redis_server.url], processes=2) as system:
        start = server.url("/p/0")
        expected = walk([start], direct(site), agent=AGENT)
        system.start().crawl([start], delay=0, slots=8)
        system.wait_done(60)
        requests = oracle.requests_of(server.hits, server.port)
        stored = read_stored(tmp_path / "data")
    assert oracle.shown(oracle.not_once(requests, expected.requested)) == ""
    assert oracle.shown(oracle.differences(stored.pages, expected.pages, "stored")) == ""
    assert oracle.shown(oracle.differences(stored.redirects, expected.redirects, "kept")) == ""
    assert oracle.shown(oracle.differences(stored.gone, expected.missing, "journalled")) == ""
    assert oracle.shown(oracle.differences(stored.excluded, expected.forbidden, "excluded")) == ""
    assert {stored.tries[url] for url in expected.missing} == {1}
    assert stored.dead == set()


def test_the_delay_holds_when_one_of_three_worker_processes_is_killed(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    delay = 0.1
    site = graph_site(12, slow_every=5, slow=0.3)
    addresses = tuple(f"127.0.0.{n}" for n in range(2, 6))
    with (
        SiteServer(site, addresses) as server,
        System(
            tmp_path, [redis_server.url], processes=3, request_seconds="2", lease_seconds="5"
        ) as system,
    ):
        starts = [server.url("/p/0", address) for address in addresses]
        expected = walk(starts, direct(site), agent=AGENT)
        system.start().crawl(starts, delay=delay)
        half = len(expected.requested) // 2
        wait_until(lambda: len(server.hits) >= half, 30, "half of the requests arrived")
        signal_child(system.children()[0])
        system.wait_done(60)
        requests = oracle.requests_of(server.hits, server.port)
        assert oracle.shown(oracle.impolite(server.hits, delay)) == ""
    assert set(requests) == expected.requested


def test_a_crawl_over_three_nodes_gives_the_same_result_and_uses_all_of_them(
    tmp_path: Path,
) -> None:
    site = graph_site(15)
    addresses = tuple(f"127.0.0.{n}" for n in range(2, 26))
    nodes = [RedisServer(tmp_path / f"redis{i}").start() for i in range(3)]
    try:
        with (
            SiteServer(site, addresses) as server,
            System(tmp_path, [node.url for node in nodes]) as system,
        ):
            starts = [server.url("/p/0", address) for address in addresses]
            expected = walk(starts, direct(site), agent=AGENT)
            system.start().crawl(starts, delay=0)
            system.wait_done(60)
            requests = oracle.requests_of(server.hits, server.port)
            stored = read_stored(tmp_path / "data")
        sizes = [node.client.dbsize() for node in nodes]
    finally:
        for node in nodes:
            node.stop()
    assert oracle.shown(oracle.not_once(requests, expected.requested)) == ""
    assert oracle.shown(oracle.differences(stored.pages, expected.pages, "stored")) == ""
    assert min(sizes) > 1


@pytest.mark.parametrize("declared", cases(["gb2312"], ["gbk"]))
def test_queries_of_a_gbk_page_are_requested_as_a_browser_does(
    tmp_path: Path, redis_server: RedisServer, declared: str
) -> None:
    with (
        SiteServer(gbk_site(declared)) as server,
        System(tmp_path, [redis_server.url]) as system,
    ):
        system.start().crawl([server.url("/")], delay=0)
        system.wait_done(30)
        targets = {hit.target for hit in server.hits}
    assert targets == {"/robots.txt", "/", *GBK_LINKS.values()}


def test_an_idle_system_leaves_redis_alone_and_wakes_at_once(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    addresses = tuple(f"127.0.1.{n}" for n in range(1, 31))
    # A minute may have sixty commands; those sent every fifteen seconds may fall into any five.
    seconds, most = (60.0, 60) if LONG else (5.0, 12)
    with (
        SiteServer(graph_site(1), addresses) as server,
        System(tmp_path, [redis_server.url]) as system,
    ):
        system.start().crawl([server.url("/p/0")], scope="any", depth=0, delay=0)
        system.wait_done(30)
        commands_during(redis_server.client, 2.0)  # just after its end a crawl is not idle yet
        spent = commands_during(redis_server.client, seconds)
        waits = [seed_to_arrival(system, server, address) for address in addresses[1:]]
    assert sum(spent.values()) <= most, spent
    assert sorted(waits)[-2] < 0.1  # without the slowest of 29: a machine may pause once
