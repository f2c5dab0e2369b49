"""Orders in tests of some minutes: all brokers away, and hundreds of sessions."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import oracle
from tests.support.broker_process import BrokerProcess
from tests.support.effort import by_night
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until
from tests.support.web import Web, WebSpec
from tests.system.test_orders import NODE, facts, kept, members, order, pages

AWAY_SECONDS = 120.0
HOSTS = 400
MANY = WebSpec(hosts=HOSTS, pages=30 * HOSTS, fan_out=HOSTS, cross_links=0, answer_seconds=0.1)
DELAY, WINDOW_SECONDS = 1.0, 10.0
MOST = 50 * WINDOW_SECONDS / DELAY
"""The requests of fifty sessions in the window."""


@by_night
def test_orders_and_members_stay_the_same_when_all_brokers_are_away_for_two_minutes(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    store = f"sqlite:///{tmp_path / 'content.sqlite'}"
    with ExitStack() as stack:
        system = stack.enter_context(
            System(tmp_path / "system", [redis_server.url], worker_id=NODE, store=store)
        )
        other = BrokerProcess(
            tmp_path / "other", worker_id="other", store=store, redis=redis_server.url
        )
        stack.callback(other.kill)
        system.variables["BROKER"] += f",{other.url}"
        system.start_broker()
        other.start()
        system.start_worker()
        wait_until(lambda: kept(system, "greenlets", 300, "default"), 20, "it is a member")
        order(system, greenlets=9, processes=2)
        wait_until(lambda: len(facts(system, "greenlets")) == 2, 20, "both processes are members")
        wait_until(lambda: kept(system, "greenlets", 9), 5, "by both")
        before = system.call("GET", "/v1/orders")
        children = {child.pid for child in system.children()}

        system.kill("broker")
        other.kill()
        until = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < until:
            assert {child.pid for child in system.children()} == children
            time.sleep(1)
        system.start_broker()
        other.start()

        def here() -> list[str]:
            every = system.call("GET", "/v1/members")["members"]
            return sorted(one["kind"] for one in every if one["status"] == "here")

        wait_until(lambda: here() == ["broker", "broker", "worker", "worker"], 10, "all are back")
        assert kept(system, "greenlets", 9)
        assert system.call("GET", "/v1/orders") == before
        every = system.call("GET", "/v1/members?gone=true")["members"]
        assert len({one["id"] for one in every}) == len(every) == 4, "each once"
        time.sleep(75)  # a member is lost after a minute without news
        assert here() == ["broker", "broker", "worker", "worker"]
        assert other.client().alerts() == []


@by_night
def test_three_hundred_greenlets_become_fifty_and_three_hundred_again_under_load(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    def under_way() -> Any:
        return sum(facts(system, "sessions"))

    with (
        System(tmp_path / "system", [redis_server.url], worker_id=NODE) as system,
        Web(MANY, tmp_path / "web.log") as web,
    ):
        system.start()
        wait_until(lambda: members(system), 20, "it is a member")
        system.crawl(web.seeds(), name="load", scope="any", delay=DELAY, depth=99)
        wait_until(lambda: under_way() >= 250, 60, "hundreds of hosts are under way")
        order(system, greenlets=50)
        wait_until(lambda: kept(system, "greenlets", 50), 5, "it is kept")
        time.sleep(3)
        fewer = time.monotonic()
        time.sleep(WINDOW_SECONDS)
        order(system, "greenlets")
        wait_until(lambda: under_way() >= 250, 60, "hundreds are again")
        system.wait_done(250, "load")
        hits = web.hits()
        assert set(pages(web).values()) == {1}, "nothing is fetched twice"
        assert pages(web).keys() == web.expected()
        assert oracle.impolite(hits, DELAY) == []
        assert system.stats("load")["retries"] == 0, "no lease is lost"
    asked = sum(fewer <= hit.arrived < fewer + WINDOW_SECONDS for hit in hits)
    assert 0.3 * MOST < asked <= MOST, "each of fifty sessions asks once a delay"
