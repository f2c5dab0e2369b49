"""Deletions and explanations, with a real broker, Redis and store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

SLOW = {"delay": 60}


SEQUENCE = count(1)


def lease(system: System, worker: str = "w", **more: Any) -> list[dict[str, Any]]:
    body = {"worker": worker, "incarnation": 1, "wait": 1, "sequence": next(SEQUENCE), **more}
    return list(system.call("POST", "/v1/lease", body)["sessions"])


def finish(system: System, session: dict[str, Any], task: int, outcome: dict[str, Any]) -> None:
    item = {k: session[k] for k in ("session", "token")} | {"task": task, "outcome": outcome}
    assert system.call("POST", "/v1/finish", {"items": [item]})["results"] == ["ok"]


def close(system: System, session: dict[str, Any], **report: Any) -> None:
    numbers = [task["number"] for task in session["tasks"]]
    item = {k: session[k] for k in ("session", "token")} | {"report": report, "release": numbers}
    assert system.call("POST", "/v1/sessions/close", {"items": [item]})["results"] == ["ok"]


def explain(system: System, url: str, crawl: str = "test") -> dict[str, Any]:
    (found,) = system.call("GET", f"/v1/urls?crawl={crawl}&url={url}")
    return dict(found)


def purged(system: System) -> bool:
    return system.call("GET", "/v1/purges") == []


def seed(system: System, host: str, number: int, crawl: str = "test") -> list[str]:
    urls = [f"http://{host}/{i:05}" for i in range(number)]
    system.call("POST", f"/v1/crawls/{crawl}/urls", {"urls": urls})
    return urls


def test_purging_a_host_excludes_its_waiting_urls_and_no_others(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Tasks in memory, in the overflow, due later, and leased: each comes to an end, and so does
    the crawl."""
    with System(tmp_path, [redis_server.url], host_bytes="65536") as system:
        system.start_broker()
        system.crawl([], scope="any", delay=0)
        urls = seed(system, "trap.example", 3000)
        others = seed(system, "good.example", 3)
        before = system.stats()
        assert before["overflow"] > 500
        while True:
            session = lease(system, max_sessions=1)[0]
            if session["host"] == "trap.example":
                break
            close(system, session)
        tasks = {task["number"]: task["url"] for task in session["tasks"]}
        retried, leased, *_ = tasks
        finish(system, session, retried, {"type": "retry", "wait": 3600, "kind": "reset"})
        assert system.stats()["later"] == 1
        system.call("DELETE", "/v1/crawls/test/hosts/trap.example")
        wait_until(lambda: purged(system), 60, "all is gone")
        after = system.stats()
        assert (after["waiting"], after["overflow"], after["later"]) == (len(others), 0, 0)
        assert after["leased"] == len(tasks) - 1
        assert after["failures"]["purged"] == after["finished"] == len(urls) - after["leased"]
        for url in (tasks[retried], urls[-1], urls[1500]):
            found = explain(system, url)
            assert found["state"] == "excluded"
            assert "purged" in found["why"]
        assert explain(system, tasks[leased])["state"] == "leased"
        finish(system, session, leased, {"type": "done"})
        close(system, session)
        system.call("DELETE", "/v1/crawls/test/hosts/trap.example")
        wait_until(lambda: purged(system), 30, "what was handed back has gone too")
        assert system.stats()["waiting"] == len(others)
        assert {task["url"] for one in lease(system) for task in one["tasks"]} == set(others)


def test_a_deletion_that_the_death_of_a_broker_interrupted_is_finished_by_the_next_broker(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with System(tmp_path, [redis_server.url]) as system:
        system.start_broker()
        for name in ("old", "kept"):
            system.crawl([], name, scope="any", **SLOW)
            for host in range(50):
                seed(system, f"{name}{host}.example", 20, name)
        assert redis_server.process is not None
        redis_server.process.send_signal(signal.SIGSTOP)
        try:
            found = system.call("DELETE", "/v1/crawls/old")
            system.call("DELETE", "/v1/crawls/kept/hosts/kept7.example")
            under_way = [(one["crawl"], one["host"]) for one in system.call("GET", "/v1/purges")]
            assert under_way == [("old", ""), ("kept", "kept7.example")]
            system.kill("broker")
        finally:
            redis_server.process.send_signal(signal.SIGCONT)
        system.start_broker()
        wait_until(lambda: purged(system), 30, "the next broker deletes the rest")
        keys = redis_server.client.keys("gc:{*")
        number = str(found["id"])
        left = [
            key
            for key in keys
            if number in key.split(":")[2:4] and redis_server.client.ttl(key) < 0
        ]
        assert left == []
        assert system.stats("kept")["waiting"] == 980
        assert explain(system, "http://kept7.example/00003", "kept")["state"] == "excluded"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            system.call("GET", "/v1/crawls/old")


def test_every_reason_why_a_url_is_not_fetched_is_named(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    def site(request: Request) -> Answer:
        if request.target == "/robots.txt":
            rules = b"User-agent: *\nDisallow: /private/\n"
            return Answer(body=rules, headers={"Content-Type": "text/plain"})
        if request.target == "/":
            links = ["/private/x", "/forbidden", "/broken", "/skip/me", "http://o.example/", "/a"]
            return Answer(body=html("menu", links) + b"<a href=/passed rel=nofollow>x</a>")
        statuses = {"/forbidden": 403, "/broken": 500, "/a": 200}
        return Answer(statuses.get(request.target, 404), body=html(request.target, []))

    with SiteServer(site) as server, System(tmp_path, [redis_server.url]) as system:
        system.start()
        system.crawl([server.url("/")], delay=0.1, exclude=["/skip/"])
        wait_until(lambda: system.stats()["finished"] == 4, 30, "what can be settled is settled")
        expected = {
            "/": ("fetched", "with status 200"),
            "/private/x": ("excluded", "Disallow: /private/"),
            "/forbidden": ("dead", "forbidden"),
            "/broken": ("later", "the next try is due in"),
            "/skip/me": ("unseen", "/skip/"),
            "/nowhere": ("unseen", "never seen"),
            "/passed": ("unseen", "links with nofollow are not recorded"),
        }
        for path, (state, why) in expected.items():
            found = explain(system, server.url(path))
            assert (found["state"], why in found["why"]) == (state, True), found
        found = explain(system, "http://o.example/")
        assert (found["state"], "scope" in found["why"]) == ("unseen", True), found
        assert explain(system, server.url("/broken"))["attempts"][0]["code"] == 500
        assert system.worker is not None
        system.worker.terminate()
        system.worker.wait(30)

        system.crawl([], "held", scope="any", delay=30)
        (first, second) = seed(system, "h.example", 2, "held")
        (session,) = lease(system, "fetcher-7", max_sessions=1)
        assert "fetcher-7" in explain(system, first, "held")["why"]
        found = explain(system, second, "held")
        assert (found["state"], "is being fetched from" in found["why"]) == ("waiting", True)
        close(system, session, requests=1)
        assert "rests for another" in explain(system, second, "held")["why"]
        system.call("PATCH", "/v1/hosts/h.example", {"block": 600})
        assert "is blocked for another 600 s" in explain(system, second, "held")["why"]
        system.call("POST", "/v1/crawls/held/pause")
        assert "the crawl is paused" in explain(system, second, "held")["why"]


def test_deletions_wait_for_a_node_that_is_away_and_say_so(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    away = RedisServer(tmp_path / "away").start()
    hosts = [f"h.example{n}.org" for n in range(16)]
    try:
        with System(tmp_path, [redis_server.url, away.url]) as system:
            system.start_broker()
            system.crawl([], scope="any", **SLOW)
            for host in hosts:
                seed(system, host, 2)
            away.kill()
            for host in hosts:
                system.call("DELETE", f"/v1/crawls/test/hosts/{host}")

            def those_left() -> list[dict[str, Any]]:
                found = list(system.call("GET", "/v1/purges"))
                return found if all(one["away"] for one in found) else []

            wait_until(those_left, 20, "hosts of the other node are purged")
            left = those_left()
            assert 0 < len(left) < len(hosts), "what waits holds up no other"
            assert {node["node"] for one in left for node in one["away"]} == {away.url}
            command = subprocess.Popen(
                [sys.executable, "-m", "greencrawl.cli", "delete", "test", "--yes"],
                cwd=ROOT, text=True,
                env={**os.environ, "GREENCRAWL_BROKER": f"http://127.0.0.1:{system.port}"},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            assert command.stderr
            said: list[str] = []
            while not said or "waits for" not in said[-1]:
                said.append(command.stderr.readline())
                assert said[-1], "it ended"
            away.start()
            out, more = command.communicate(timeout=30)
            said += more.splitlines(keepends=True)
            assert (command.returncode, out) == (0, "deleted\n")
            assert f"waits for Redis at {away.url}, away since " in "".join(said)
            assert "goes on by itself" in "".join(said)
            assert len(said) == len(set(said)), "a line when something has changed"
            assert purged(system)
    finally:
        away.stop()


def test_a_url_in_the_overflow_is_explained(tmp_path: Path, redis_server: RedisServer) -> None:
    with System(tmp_path, [redis_server.url], host_bytes="65536") as system:
        system.start_broker()
        system.crawl([], scope="any", **SLOW)
        urls = seed(system, "h.example", 3000)
        assert explain(system, urls[0])["state"] == "waiting"
        found = explain(system, urls[-1])
        assert (found["state"], "overflow" in found["why"]) == ("overflow", True)
        system.call("POST", "/v1/crawls/test/pause")
        assert "the crawl is paused" in explain(system, urls[-1])["why"]


def test_bad_name_of_a_crawl_is_refused_in_words(tmp_path: Path, redis_server: RedisServer) -> None:
    with System(tmp_path, [redis_server.url]) as system:
        system.start_broker()
        with pytest.raises(urllib.error.HTTPError) as refused:
            system.call("POST", "/v1/crawls", {"name": "My Crawl"})
        (note,) = refused.value.__notes__
        assert "name" in note
        assert "lower-case letters" in note
        assert "^[a-z0-9]" not in note


def greencrawl(system: System, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "GREENCRAWL_BROKER": f"http://127.0.0.1:{system.port}"}
    done = subprocess.run(
        [sys.executable, "-m", "greencrawl.cli", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_crawl_is_paused_resumed_purged_and_deleted_by_command(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with System(tmp_path, [redis_server.url]) as system:
        system.start_broker()
        system.crawl([], scope="any", **SLOW)
        seed(system, "h.example", 50)
        seed(system, "other.example", 5)
        assert greencrawl(system, "pause") == (0, "test: paused\n")
        assert system.stats()["state"] == "paused"
        assert greencrawl(system, "resume", "test") == (0, "test: active\n")
        assert greencrawl(system, "stop") == (0, "test: done (stopped)\n")
        code, said = greencrawl(system, "pause")
        assert (code, "is done (stopped); there is nothing to pause" in said) == (1, True)
        assert system.stats()["waiting"] == 55
        assert greencrawl(system, "resume") == (0, "test: active\n")
        code, said = greencrawl(system, "purge", "test", "h.example")
        assert (code, "h.example: purged" in said.splitlines()) == (0, True)
        assert system.stats()["waiting"] == 5
        code, said = greencrawl(system, "purge", "test", "no host")
        assert code == 1
        code, said = greencrawl(system, "delete", "test", "--yes")
        assert (code, "deleted" in said.splitlines()) == (0, True)
        assert system.call("GET", "/v1/crawls") == []
        code, said = greencrawl(system, "delete", "test", "--yes")
        assert (code, "no crawl is named 'test'" in said) == (1, True)
