"""Rows 20 and 21 of ``make faults``: known pages are being queued to be asked for again.

The broker dies between queueing them and noting that; Redis comes back in its state from before
they were queued, or empty. A page that was left out would come in the next period at the earliest;
a page that was queued twice is asked for twice.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.support.faultrig import Result, Row, Say
from tests.support.redis_dump import contents, dump
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

PAGES, FEW_PAGES = 600, 150
EVERY_SECONDS = 3
LEAST_ON_WAY = 60
"""At least this many pages are queued when the fault happens."""
LEASED = 64
"""Tasks that one worker process holds of one host at most: two sessions, while one closes."""


class Again:
    """A crawl in which all pages are asked for again in each period."""

    def __init__(self, folder: Path, pages: int) -> None:
        self.pages = pages
        self.redis = RedisServer(folder / "redis")
        self.system = System(
            folder / "system", [self.redis.url], lease_seconds="2", request_seconds="1"
        )
        self.site = SiteServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        if request.target == "/robots.txt":
            return Answer(404)
        tag = f'"{request.target}"'
        if request.headers.get("if-none-match") == tag:
            return Answer(304, headers={"ETag": tag})
        links = [f"/page/{n}" for n in range(self.pages)] if request.target == "/" else []
        return Answer(body=html(request.target, links), headers={"ETag": tag})

    def begin(self) -> None:
        """Run up to the end of the first period."""
        recrawl = {"every": f"{EVERY_SECONDS}s", "depth": "all"}
        self.system.crawl([self.site.url("/")], delay=0.004, recrawl=recrawl)
        self.wait_period(1)

    def periods(self) -> list[dict[str, Any]]:
        """Return the periods, the earliest first."""
        found: list[dict[str, Any]] = self.system.call("GET", "/v1/crawls/test/periods")
        return found[::-1]

    def wait_period(self, number: int) -> None:
        """Wait until a period has ended."""

        def over() -> bool:
            found = self.periods()
            return len(found) >= number and found[number - 1]["ended_ms"] > 0

        wait_until(over, 120, f"period {number} ends", 0.1)

    def on_way(self) -> int:
        """Return how many pages are queued to be asked for again."""
        raw = redis.Redis(port=self.redis.port, decode_responses=True, encoding="latin-1")
        return sum(map(len, contents(dump(raw)).again.values()))

    def asked(self) -> Counter[str]:
        """Return how often each page was asked for."""
        return Counter(hit.target for hit in self.site.hits if hit.target != "/robots.txt")


def _broker_dies(rig: Again, result: Result) -> int:
    """Return how many pages may be asked for twice: none, since nothing that was leased was
    lost."""
    rig.system.kill("broker")
    rig.system.start_broker(fault="broker.after_again:2")
    broker = rig.system.broker
    assert broker is not None
    wait_until(lambda: broker.poll() is not None, 60, "the broker dies", 0.01)
    result.notes["on their way when it died"] = result.leases_out = rig.on_way()
    rig.system.start_broker()
    return LEASED  # a worker may reach its deadline before the broker is back


def _redis_goes_back(rig: Again, result: Result, *, empty: bool) -> int:
    """Return how many pages may be asked for twice: those that were asked for since the copy, and
    leased ones."""
    copy = rig.redis.folder.parent / "copy"
    number, before = len(rig.periods()), rig.asked().total()
    shutil.copytree(rig.redis.folder, copy)
    wait_until(
        lambda: len(rig.periods()) > number and rig.on_way() >= LEAST_ON_WAY,
        60, "many are on their way", 0.01,
    )  # fmt: skip
    result.notes["on their way when it was killed"] = result.leases_out = rig.on_way()
    rig.redis.kill()
    shutil.rmtree(rig.redis.folder)
    if not empty:
        shutil.copytree(copy, rig.redis.folder)
    since = rig.asked().total() - before
    result.notes["asked for since the copy"] = since
    rig.redis.start()
    return since + LEASED


def _run(harm: Callable[[Again, Result], int], result: Result, folder: Path, pages: int) -> Result:
    began, rig = time.monotonic(), Again(folder, pages)
    rig.redis.start()
    try:
        with rig.site, rig.system.start():
            rig.begin()
            most = harm(rig, result)
            struck = len(rig.periods())
            rig.wait_period(struck + 1)
            rig.system.call("POST", "/v1/crawls/test/stop", {})
            rig.system.wait_done(60)
            over = len(rig.periods()) - 1  # the last may have been stopped
            asked = rig.asked()
    finally:
        rig.redis.stop()
    result.blows, result.urls, result.announced = 1, len(asked), True
    lost = [url for url, times in asked.items() if times < over]
    result.lost = len(lost) + pages + 1 - len(asked)
    result.refetched = sum(max(times - over - 1, 0) for times in asked.values())
    result.seconds = time.monotonic() - began
    if result.lost:
        result.why_not.append(f"{result.lost} pages were passed over, such as {lost[:1]}")
    if result.refetched > most:
        result.why_not.append(f"{result.refetched} asked for once too often, at most {most} may be")
    if not result.leases_out:
        result.why_not.append("nothing was on its way when the blow fell")
    return result


def _broker_row(folder: Path, say: Say, small: bool) -> Result:
    result = Result(
        "broker killed between queueing pages that are due and noting it", (20,),
        "what is on its way is known to Redis: it is asked once more, and queues nothing",
    )  # fmt: skip
    return _run(_broker_dies, result, folder, FEW_PAGES if small else PAGES)


def _redis_row(folder: Path, say: Say, small: bool) -> Result:
    result = Result(
        "Redis back older, or empty, with pages that are due queued", (21,),
        "rows that were noted under an earlier epoch are due again",
    )  # fmt: skip
    for empty in (True,) if small else (False, True):
        place = folder / ("empty" if empty else "older")
        one = Result(result.name, result.rows, result.mechanism)
        _run(
            lambda rig, into, empty=empty: _redis_goes_back(rig, into, empty=empty),  # type: ignore[misc]
            one, place, FEW_PAGES if small else PAGES,
        )  # fmt: skip
        result.blows += one.blows
        result.urls, result.announced = one.urls, True
        result.leases_out = one.leases_out
        result.lost, result.refetched = result.lost + one.lost, result.refetched + one.refetched
        result.notes |= {f"{place.name}: {what}": value for what, value in one.notes.items()}
        result.why_not += one.why_not
        result.seconds += one.seconds
    return result


ROWS: dict[int, Row] = {20: _broker_row, 21: _redis_row}
