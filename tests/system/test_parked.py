"""Parked URLs with a real broker, Redis and store: the end of a crawl, and a release.

The test acts as a worker over HTTP: it commits, then finishes.
"""

from __future__ import annotations

import base64
from itertools import count
from pathlib import Path
from typing import Any

from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import Commit, Final, StoredPage
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer
from tests.support.system import System

SHAPE = "http://h.example/day/{n}"
KNOWN = bytes(range(256))


class HttpWorker:
    """It parks URLs of the shape and stores all others, as its session's crawl says."""

    def __init__(self, system: System, store: Store) -> None:
        self.system, self.store = system, store
        identity = store.frontier()
        assert identity is not None
        self.secret = identity.secret
        self.sequence, self.moment = count(1), count(1000)
        self.traps: list[bytes] = []
        """The record of traps with which each session began."""

    def lease(self) -> list[dict[str, Any]]:
        body = {"worker": "w", "incarnation": 1, "wait": 1, "sequence": next(self.sequence)}
        return list(self.system.call("POST", "/v1/lease", body)["sessions"])

    def work(self, tasks: int) -> None:
        """Do this many tasks."""
        while tasks > 0:
            for session in self.lease():
                self.traps.append(base64.b64decode(session["traps"]))
                tasks -= len(session["tasks"])
                self.visit(session)

    def visit(self, session: dict[str, Any]) -> None:
        names = {key: session[key] for key in ("session", "token")}
        released = self.store.crawl(session["crawl"]).released
        items = []
        for task in session["tasks"]:
            parks = "/day/" in task["url"] and SHAPE not in released
            self.commit(session["crawl"], task["url"], parks=parks)
            outcome = {"type": "done", "kind": "parked"} if parks else {"type": "done"}
            items.append({**names, "task": task["number"], "outcome": outcome})
        assert set(self.system.call("POST", "/v1/finish", {"items": items})["results"]) == {"ok"}
        report = {"requests": 1, "robots": True, "traps": base64.b64encode(KNOWN).decode()}
        item = {**names, "report": report}
        assert self.system.call("POST", "/v1/sessions/close", {"items": [item]}) == {
            "results": ["ok"]
        }

    def commit(self, crawl: int, url: str, *, parks: bool) -> None:
        number, at_ms = fingerprint(url, self.secret), next(self.moment)
        if parks:
            final = Final(
                crawl=crawl, fingerprint=number, url=url, state="parked", kind="trap",
                detail="nothing new", shape=SHAPE, at_ms=at_ms,
            )  # fmt: skip
            assert not self.store.commit(Commit(finals=[final])).refused
        else:
            page = StoredPage(
                crawl=crawl, fingerprint=number, url=url, status=200, fetched_ms=at_ms
            )
            self.store.commit(Commit([page]))


def test_a_crawl_ends_with_parked_urls_and_goes_on_when_they_are_released(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with System(tmp_path, [redis_server.url]) as system:
        system.start_broker()
        days = [f"http://h.example/day/{n}" for n in range(5)]
        system.crawl([*days, "http://h.example/"], scope="any", delay=0)
        store = open_store(f"sqlite:///{system.folder / 'data' / 'content.sqlite'}")
        worker = HttpWorker(system, store)
        worker.work(6)
        system.wait_done(20)
        stats = system.stats()
        assert (stats["state"], stats["reason"]) == ("done", "finished")
        assert (stats["parked"], stats["finished"]) == (5, 6)
        assert "parked" not in stats["failures"]
        (found,) = system.call("GET", "/v1/parked?crawl=test")["items"]
        assert (found["shape"], found["count"]) == (SHAPE, 5)
        (state,) = system.call("GET", f"/v1/urls?crawl=test&url={days[0]}")
        assert (state["state"], "nothing new" in state["why"]) == ("parked", True)

        system.call("POST", "/v1/crawls/test/urls", {"urls": ["http://h.example/more", days[0]]})
        worker.work(1)
        assert worker.traps == [b"", KNOWN], "what is known goes along with the host"
        system.wait_done(20)

        request = {"crawl": "test", "shape": SHAPE}
        assert system.call("POST", "/v1/parked/release", request)["added"] == 5
        assert system.stats()["state"] == "active"
        worker.work(5)
        system.wait_done(20)
        assert worker.traps[2:] == [KNOWN]
        counts = store.counts(store.crawl("test").id)
        assert (counts["pages"], counts["parked"]) == (7, 0)
        store.close()
