"""Whole worker processes, with a real broker, Redis and site."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from greencrawl.schema.records import STOPPED, STOPPING_NOW
from tests.support.effort import by_night, cases
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

PAGES = [f"/{i}" for i in range(12)]
DEADLY = ["/kill", "/hang", "/wait"]


def menu_site(request: Request) -> Answer:
    """Answer with a page that links to twelve others, and to some named after what a hook does
    there."""
    if request.target == "/":
        return Answer(body=html("menu", [*PAGES, *DEADLY]))
    if request.target == "/robots.txt":
        return Answer(404)
    return Answer(body=html(request.target.strip("/"), ["/"]))


def targets(server: SiteServer) -> Counter[str]:
    return Counter(hit.target for hit in server.hits)


@pytest.mark.parametrize(
    ("mode", "kind"), cases([("kill", "process_death")], [("hang", "stalled"), ("wait", "stalled")])
)
def test_only_the_page_that_kills_its_process_is_charged(
    tmp_path: Path, redis_server: RedisServer, mode: str, kind: str
) -> None:
    """The page first kills its worker process, then only the process that reads it alone.

    With tries = 1, a death among other pages proves nothing, and a death alone is final.
    """
    others = [f"{path}$" for path in DEADLY if path != f"/{mode}"]
    with (
        SiteServer(menu_site) as server,
        System(
            tmp_path, [redis_server.url], stall_seconds="1", request_seconds="2"
        ).start() as system,
    ):
        system.crawl(
            [server.url("/")],
            delay=0,
            tries=1,
            hook="tests.support.deadly_hook",
            exclude=others,
        )
        system.wait_done(40)
        stored = read_stored(tmp_path / "data")
        assert stored.pages == {server.url(path) for path in ["/", *PAGES]}
        assert stored.dead == {server.url(f"/{mode}")}
        stats = system.stats()
        assert (stats["failures"], stats["retries"]) == ({kind: 2}, 1)
        assert system.call("GET", "/v1/dead?crawl=test")["items"][0]["letter"]["kind"] == kind
        assert targets(server)[f"/{mode}"] == 2
        log = (tmp_path / "worker.log").read_text()
        assert log.count("child_died") == 1
        assert log.count("quarantine_started") >= 1


def test_a_crawl_stopped_at_once_gives_back_its_tasks_and_goes_on_when_it_is_resumed(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """A session has thirty tasks of a host and pauses a second after each; it must end within
    two."""
    with (
        SiteServer(menu_site) as server,
        System(tmp_path, [redis_server.url], lease_seconds="6").start() as system,
    ):
        system.crawl([server.url(path) for path in PAGES], delay=1)
        wait_until(lambda: targets(server)["/1"], 20, "two pages are asked for")
        assert system.stats()["leased"] > 8
        began = len(server.hits)
        assert system.call("POST", "/v1/crawls/test/stop", {"now": True})["reason"] == STOPPING_NOW
        system.wait_done(15)
        ended = system.stats()
        assert (ended["state"], ended["reason"], ended["leased"]) == ("done", STOPPED, 0)
        assert ended["waiting"] + ended["stored"] == ended["admitted"] >= len(PAGES)
        assert len(server.hits) - began <= 4
        stopped = len(server.hits)
        system.call("POST", "/v1/crawls/test/resume")
        wait_until(lambda: len(server.hits) > stopped, 20, "it goes on")
        asked = targets(server)
        assert all(asked[path] <= 1 for path in PAGES)
        system.call("POST", "/v1/crawls/test/stop", {"now": False})
        assert system.stats()["state"] == "paused"


@by_night
def test_only_the_task_at_which_a_request_hook_kills_its_process_is_charged(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    def site(request: Request) -> Answer:
        if request.target == "/":
            return Answer(body=html("menu", [*PAGES, "/request-kill"]))
        return menu_site(request)

    with SiteServer(site) as server, System(tmp_path, [redis_server.url]).start() as system:
        system.crawl([server.url("/")], delay=0, tries=1, hook="tests.support.deadly_hook")
        system.wait_done(60)
        stored = read_stored(tmp_path / "data")
        assert stored.pages == {server.url(path) for path in ["/", *PAGES]}
        assert stored.dead == {server.url("/request-kill")}
        assert targets(server)["/request-kill"] == 0
        assert (tmp_path / "worker.log").read_text().count("child_died") == 1


@pytest.mark.parametrize(
    ("mode", "kind"), cases([("kill", "process_death")], [("hang", "stalled")])
)
@by_night
def test_only_the_page_at_which_a_login_class_dies_is_charged(
    tmp_path: Path, redis_server: RedisServer, mode: str, kind: str
) -> None:
    """``logged_out`` looks at every page; the page decides what it does there."""
    secrets = {"auth_shop_username": "ann", "auth_shop_password": "1"}
    others = [f"{path}$" for path in DEADLY if path != f"/{mode}"]
    with (
        SiteServer(menu_site) as server,
        System(
            tmp_path,
            [redis_server.url],
            stall_seconds="1",
            request_seconds="2",
            secrets=secrets,
        ).start() as system,
    ):
        entry = {
            "kind": "own",
            "name": "shop",
            "hosts": [server.url("").rstrip("/")],
            "login": "tests.support.deadly_hook:DeadlyLogin",
        }
        system.crawl([server.url("/")], delay=0, tries=1, auth=[entry], exclude=others)
        system.wait_done(60)
        stored = read_stored(tmp_path / "data")
        assert stored.pages >= {server.url(path) for path in PAGES}
        assert stored.dead == {server.url(f"/{mode}")}
        assert system.stats()["failures"] == {kind: 2}
        assert (tmp_path / "worker.log").read_text().count("child_died") == 1


def test_hosts_without_an_open_request_go_on_at_once_when_a_page_kills_its_process(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """The longest request takes a minute, and hosts with an open request rest as long."""
    hosts = tuple(f"127.0.0.{number}" for number in range(2, 8))

    def site(request: Request) -> Answer:
        if request.target == "/" and request.address == hosts[0]:
            return Answer(body=html("menu", ["/kill"]))
        if request.target == "/kill":  # by then the others are between two requests
            return Answer(body=html("kill", []), wait=1.0)
        return menu_site(request)

    with SiteServer(site, hosts) as server, System(tmp_path, [redis_server.url]).start() as system:
        system.crawl(
            [server.url("/", host) for host in hosts],
            delay=2,
            exclude=["/hang$", "/wait$"],
            hook="tests.support.deadly_hook",
            name="test",
        )
        log = tmp_path / "worker.log"
        wait_until(lambda: "child_died" in log.read_text(), 30, "the page kills")
        before = {hit.address: len(server.hits) for hit in server.hits}
        assert set(before) == set(hosts)
        count = len(server.hits)

        def gone_on() -> set[str]:
            return {hit.address for hit in server.hits[count:]}

        wait_until(lambda: len(gone_on()) >= len(hosts) - 1, 20, "the others go on")
        system.call("DELETE", "/v1/crawls/test")


def test_a_worker_hands_back_its_unfetched_tasks_at_sigterm(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with (
        SiteServer(menu_site) as server,
        System(tmp_path, [redis_server.url]).start() as system,
    ):
        system.crawl([server.url("/")], delay=0.3)
        wait_until(lambda: len(server.hits) >= 5, 20, "the crawl is under way")
        assert system.worker is not None
        children = system.children()
        system.worker.send_signal(signal.SIGTERM)
        assert system.worker.wait(15) == 0
        assert not any(psutil.pid_exists(child.pid) for child in children)
        stats = system.stats()
        assert (stats["leased"], stats["retries"]) == (0, 0)
        assert stats["waiting"] > 0
        fetched = len(server.hits)
        system.start_worker()
        wait_until(lambda: len(server.hits) > fetched, 20, "the next worker goes on")
        system.wait_done(40)
        counts = targets(server)
        assert set(counts) == {"/", "/robots.txt", *DEADLY, *PAGES}
        assert all(count == 1 for count in counts.values())


def test_a_worker_stops_soon_if_its_broker_stops_at_the_same_time(tmp_path: Path) -> None:
    """honcho stops both at once, and the broker stops the embedded Redis.

    Otherwise the worker would wait for the longest request and a little more: 70 s.
    """
    with SiteServer(menu_site) as server, System(tmp_path).start() as system:
        system.crawl([server.url("/")], delay=0.1)
        wait_until(lambda: len(server.hits) >= 4, 20, "the crawl is under way")
        assert system.broker is not None
        assert system.worker is not None
        system.broker.terminate()
        system.worker.terminate()
        assert system.broker.wait(30) == 0
        assert system.worker.wait(30) == 0


def test_a_worker_survives_the_death_of_its_broker(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with (
        SiteServer(menu_site) as server,
        System(tmp_path, [redis_server.url]).start() as system,
    ):
        system.crawl([server.url("/")], delay=0.1)
        wait_until(lambda: len(server.hits) >= 4, 20, "the crawl is under way")
        child = system.children()[0].pid
        system.kill("broker")
        system.start_broker()
        system.wait_done(40)
        assert system.children()[0].pid == child
        assert all(count == 1 for count in targets(server).values())


@by_night
def test_a_robots_txt_on_another_host_rules_the_host_that_redirects_to_it(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """The other host is out of scope: only its robots.txt is asked for."""
    here, there = "127.0.0.2", "127.0.0.3"
    moved: list[str] = []

    def site(request: Request) -> Answer:
        if request.target != "/robots.txt":
            return menu_site(request)
        if request.address == here:
            return Answer(301, headers={"Location": moved[0]})
        return Answer(body=b"User-agent: *\nDisallow: /3\n", headers={"Content-Type": "text/plain"})

    with (
        SiteServer(site, (here, there)) as server,
        System(tmp_path, [redis_server.url]).start() as system,
    ):
        moved.append(server.url("/robots.txt", there))
        system.crawl([server.url("/", here)], delay=0, exclude=["/[a-z]"])
        system.wait_done(40)
        stored = read_stored(tmp_path / "data")
    assert stored.excluded == {server.url("/3", here)}
    assert len(stored.pages) == len(PAGES)
    assert [hit.target for hit in server.hits if hit.address == there] == ["/robots.txt"]
    assert targets(server)["/3"] == 0


def test_a_crawl_whose_hook_no_worker_can_import_says_so_and_others_go_on(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with SiteServer(menu_site) as server, System(tmp_path, [redis_server.url]).start() as system:
        system.call("POST", "/v1/crawls", {
            "name": "odd", "seeds": [server.url("/")], "hook": "no.such.module", "delay": 0,
        })  # fmt: skip

        def odd() -> dict[str, Any]:
            found: dict[str, Any] = system.call("GET", "/v1/stats?crawl=odd")["crawls"][0]
            return found

        wait_until(lambda: odd()["stuck"], 20, "the crawl says that nobody takes it")
        (refused,) = odd()["refused"]
        assert (refused["hook"], refused["host"]) == ("no.such.module", socket.gethostname())
        assert "cannot import 'no.such.module'" in refused["reason"]
        system.crawl([server.url("/")], delay=0, exclude=["kill", "hang", "wait"])
        system.wait_done(20)
        now = odd()
        assert (now["waiting"], now["leased"], now["finished"]) == (1, 0, 0)
        log = (tmp_path / "worker.log").read_text()
        assert log.count("hook_not_loaded") == 1
        system.call("POST", "/v1/crawls", {"name": "odd", "delay": 0})
        wait_until(lambda: odd()["state"] == "done", 20, "without the hook it is crawled")
        assert odd()["refused"] == []
