"""Periodic crawls: they begin again, whatever process dies, until somebody stops them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from greencrawl.schema.records import STOPPED
from tests.support.effort import LONG, cases, examples
from tests.support.idle import commands_during
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

PERIODS = examples(3, 10)
EVERY_SECONDS = 2
MOST_OF_A_CORE = 0.01
"""The share of broker, worker and Redis together."""


class News:
    """A front page that links to one more page each time, and to all earlier ones."""

    def __init__(self) -> None:
        self.issues = 0

    def __call__(self, request: Request) -> Answer:
        if request.target == "/robots.txt":
            return Answer(404)
        if request.target == "/start":  # as if a person gave the site's old name
            return Answer(301, headers={"Location": "/"})
        if request.target == "/":
            self.issues += 1
            return Answer(body=html("news", [f"/issue/{n}" for n in range(self.issues)]))
        return Answer(body=html(request.target, ["/"]))


@pytest.mark.parametrize("harm", cases(["broker"], ["redis", "none", "worker", "in turn"]))
def test_each_period_fetches_the_seeds_once_and_follows_new_links(
    tmp_path: Path, redis_server: RedisServer, harm: str
) -> None:
    site = News()
    with (
        SiteServer(site) as server,
        System(
            tmp_path, [redis_server.url], request_seconds="2", lease_seconds="6"
        ).start() as system,
    ):
        system.crawl([server.url("/start")], delay=0, recrawl={"every": f"{EVERY_SECONDS}s"})

        def periods() -> int:
            return len(system.call("GET", "/v1/crawls/test/periods"))

        for number in range(1, PERIODS + 1):
            wait_until(lambda n=number: site.issues >= n, 60, f"period {number} begins")  # type: ignore[misc]
            struck = ("worker", "broker", "redis")[number % 3] if harm == "in turn" else harm
            if struck == "broker":
                system.kill("broker")
                system.start_broker()
            elif struck == "worker":
                system.kill("worker")
                system.start_worker()
            elif struck == "redis" and (harm == "in turn" or number == 2):
                redis_server.kill()
                redis_server.start()
        wait_until(lambda: periods() >= PERIODS, 60, "the periods are counted")
        system.call("POST", "/v1/crawls/test/stop", {})
        system.wait_done(60)
        ended = system.stats()
        assert (ended["reason"], ended["leased"]) == (STOPPED, 0)
        begun = len(system.call("GET", "/v1/crawls/test/periods"))
        asked = Counter(hit.target for hit in server.hits)
        again = 0 if harm == "none" else PERIODS  # tasks that were leased at a kill
        assert begun <= asked["/"] + 1
        assert asked["/"] <= begun + again
        issues = {path: n for path, n in asked.items() if path.startswith("/issue/")}
        assert len(issues) >= PERIODS - 1
        assert sum(issues.values()) <= len(issues) + again
        count = len(server.hits)
        time.sleep(EVERY_SECONDS + 0.5)  # no event shows that a period does not begin
        assert len(server.hits) == count


def test_a_resting_crawl_spends_almost_no_cpu_time_and_few_redis_commands(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    # A minute may have sixty commands; those sent every fifteen seconds may fall into any five.
    seconds, most = (60.0, 60) if LONG else (5.0, 12)
    assert redis_server.process is not None
    redis_process = psutil.Process(redis_server.process.pid)
    with (
        SiteServer(News()) as server,
        System(tmp_path, [redis_server.url]).start() as system,
    ):
        system.crawl([server.url("/")], delay=0, recrawl={"every": "1h", "depth": "all"})
        wait_until(lambda: system.stats()["state"] == "resting", 30, "it rests")
        commands_during(redis_server.client, 2.0)  # just after its end a period is not at rest yet

        def spent() -> float:
            return sum(system.cpu_seconds().values()) + sum(redis_process.cpu_times()[:2])

        for _ in range(2):  # the coordinator counts ended crawls once more, during one of the two
            before = spent()
            commands = commands_during(redis_server.client, seconds)
            share = (spent() - before) / seconds
            if sum(commands.values()) <= most:
                break
    assert sum(commands.values()) <= most, commands
    if LONG:  # by day other tests run beside this one, and CPU time comes in ticks
        assert share <= MOST_OF_A_CORE, f"{share:.2%} of a core"


def test_a_resting_crawl_says_when_each_url_is_requested_again(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with (
        SiteServer(News()) as server,
        System(tmp_path, [redis_server.url]).start() as system,
    ):
        system.crawl([server.url("/")], delay=0, recrawl={"every": "1h"})
        wait_until(lambda: system.stats()["state"] == "resting", 30, "it rests")
        stats = system.stats()
        assert (stats["period"]["number"], stats["period"]["ended_ms"] > 0) == (1, True)
        assert stats["wakes_ms"] == stats["period"]["started_ms"] + 3_600_000

        def why(path: str) -> str:
            (state,) = system.call("GET", f"/v1/urls?crawl=test&url={server.url(path)}")
            return str(state["why"])

        assert "; asked for again at 20" in why("/")
        assert "every 1h, as a seed" in why("/")
        system.call("POST", "/v1/crawls/test/urls", {"urls": [server.url("/other")]})
        wait_until(lambda: system.stats()["stored"] == 3, 30, "it is woken")
        wait_until(lambda: system.stats()["state"] == "resting", 30, "it rests")
        assert "; not asked for again: " in why("/other")
        assert system.stats()["wakes_ms"] == stats["wakes_ms"], "the same period goes on"
