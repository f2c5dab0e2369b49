"""Rows 17 to 19 of ``make faults``: URLs that a crawl finds by itself, and URLs that it parks.

A sitemap is half queued, requisites are being fetched, or URLs are parked, while workers are killed
and Redis comes back in an earlier state.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import redis

from tests.support import webfiles
from tests.support.faultrig import Fault, Leased, Result, Rig, Row, Say, run
from tests.support.system import System, wait_until
from tests.support.web import WebSpec

SHORT = {"lease_seconds": "2", "request_seconds": "1"}
LONG_LEASE = {"lease_seconds": "60", "request_seconds": "1"}


def copy_redis(rig: Rig) -> Path:
    """Copy Redis' folder in its present state."""
    place = rig.folder / "older"
    shutil.copytree(rig.redis.folder, place)
    rig.notes["copied at request"] = rig.web.requests()
    return place


def put_back(rig: Rig, copy: Path) -> set[str]:
    """Kill Redis and start it with the copy; return the tokens of its sessions then."""
    rig.redis.kill()
    shutil.rmtree(rig.redis.folder)
    shutil.copytree(copy, rig.redis.folder)
    rig.redis.start()
    return {task.token for task in rig.leased()}


class Admitted:
    """Counts URLs that Redis has accepted, without the broker.

    It finds the crawls' records once, so that a later count is one call, fast enough to come
    half-way through a sitemap.
    """

    def __init__(self, rig: Rig) -> None:
        self._port = rig.redis.port
        with self._client() as client:
            self._names = list(set(client.scan_iter("gc:{*}:c:*", count=1000)))

    def __call__(self) -> int:
        with self._client() as client:
            return self.read(client)

    def read(self, client: redis.Redis) -> int:
        """Return the count, over an open connection."""
        records: list[Any] = client.mget(self._names)
        crawls = [msgspec.msgpack.decode(record) for record in records if record is not None]
        return sum(int(crawl.get("adm", 0)) for crawl in crawls)

    def until(self, least: int) -> None:
        """Wait until more than ``least`` are accepted."""
        with self._client() as client:
            wait_until(lambda: self.read(client) > least, 30, f"{least} URLs are taken", 0.001)

    def _client(self) -> closing[redis.Redis]:
        return closing(redis.Redis(port=self._port))


# --- sitemaps ---------------------------------------------------------------------------------

SITEMAP_SEEDS = 1000
"""First pages that keep the worker busy when the sitemap comes."""


class HalfASitemap:
    """Copy Redis before the sitemap is read; kill the worker and restore the copy when some of its
    URLs are queued and others are not."""

    def __call__(self, rig: Rig) -> None:
        admitted, listed = Admitted(rig), rig.fault.web.pages - SITEMAP_SEEDS
        before = admitted()
        copy = copy_redis(rig)
        rig.notes["taken before"] = before
        if not before or admitted() != before:
            rig.find("the sitemap came before Redis was copied")
        admitted.until(before + listed // 50)
        least = rig.fault.least_leases
        wait_until(lambda: len(rig.leased()) >= least, 5, f"{least} are leased", 0.001)
        rig.system.kill("worker")
        with rig.blow("kill -9 half-way through a sitemap, and an older Redis"):
            taken = admitted() - before
            rig.notes["of the sitemap taken"] = taken
            if taken >= listed:
                rig.find("all of the sitemap was queued when the blow fell")
            restored = put_back(rig, copy)
            rig.system.start_worker()
        rig.until_leasing(restored)


SITEMAP = Fault(
    "worker killed half-way through a sitemap, and Redis put back to before it",
    HalfASitemap(),
    "what a sitemap lists are links of its row: SQL's window, and a task that is leased again",
    rows=(17,),
    web=WebSpec(pages=18_000, sitemaps=1, sitemap_seconds=0.7),
    delay=0.05,
    seeds=SITEMAP_SEEDS,
    after=0.0,
    crawl_options={"sitemaps": "on"},
    settings=SHORT,
    refetched="any",
)


# --- requisites -------------------------------------------------------------------------------


@dataclass(frozen=True)
class KillAt:
    """kill -9 the worker at any moment, then once at each of ``points``."""

    points: tuple[str, ...]

    def __call__(self, rig: Rig) -> None:
        died, left, most = "any moment", list(self.points), 0
        least = rig.fault.least_leases
        wait_until(lambda: _images(rig.leased()) > least / 2, 30, "requisites are leased", 0.01)
        while True:
            rig.system.kill("worker")
            with rig.blow(f"kill -9 a worker at {died}") as blow:
                if died in self.points and rig.must_repeat():
                    left.insert(0, died)
                most = max(most, _images(blow.leased))
                point = left.pop(0) if left else ""
                rig.system.start_worker(rig.armed(point))
            if not point:
                break
            rig.die(rig.system.children()[0], after=rig.fault.after)
            died = point
        rig.notes["images leased, at most"] = most
        if not most:
            rig.find("no requisite was leased when a blow fell")


def _images(leased: Iterable[Leased]) -> int:
    return sum("/r/" in task.url for task in leased)


REQUISITES = Fault(
    "kill -9 a worker among what pages need to be shown",
    KillAt(("worker.after_store", "worker.after_admit", "worker.before_finish")),
    "requisites are links of their page's row, and tasks of their own",
    rows=(18,),
    web=WebSpec(hosts=250, pages=10_000, requisites=True),
    seeds=400,
    after=0.02,
    delay=0.02,
    crawl_options={"requisites": "on"},
    settings={**LONG_LEASE, "greenlets": "150"},
    done_seconds=180,
)
QUICK_REQUISITES = replace(
    REQUISITES,
    inflict=KillAt(()),
    web=WebSpec(hosts=60, pages=240, requisites=True),
    seeds=120,
    after=0.1,
    least_leases=60,
)


# --- traps ------------------------------------------------------------------------------------

LEAST_PARKED = 100
KEPT = 0.75
"""At least this share of the parked URLs must be kept after Redis lost them; a page that was
fetched meanwhile stays."""


class Trapped:
    """Two workers; Redis is copied when something is parked; later one worker is killed at the
    moment at which Redis is restored."""

    def prepare(self, rig: Rig) -> None:
        """Forget earlier runs."""
        self.before: set[str] = set()

    def __call__(self, rig: Rig) -> None:
        given: dict[str, Any] = {**rig.settings, "worker_id": "second"}
        given |= {
            "data": str(rig.folder / "data2"),
            "store": f"sqlite:///{(rig.folder / 'data' / 'content.sqlite').absolute()}",
            "broker": f"http://127.0.0.1:{rig.system.port}",
        }
        second = System(rig.folder / "second", [rig.redis.url], **given)
        rig.stack.enter_context(second).start_worker()
        wait_until(lambda: len(parked(rig)) >= LEAST_PARKED / 4, 60, "something is parked", 0.05)
        copy = copy_redis(rig)
        wait_until(lambda: len(parked(rig)) >= LEAST_PARKED, 60, "more is parked", 0.05)
        rig.until_at_stake()
        with rig.blow("kill -9 one of two workers, and an older Redis"):
            second.kill("worker")
            restored = put_back(rig, copy)
            self.before = parked(rig)
            second.start_worker()
        rig.notes["parked when it fell"] = len(self.before)
        rig.until_leasing(restored)

    def check(self, rig: Rig) -> list[str]:
        """Check the result; see :func:`wrongly_parked`."""
        with closing(_database(rig)) as database:
            stored = {url for (url,) in database.execute("SELECT url FROM pages")}
            rows = database.execute("SELECT url, shape, detail FROM finals WHERE state = 'parked'")
            now = {url: bool(shape and why) for url, shape, why in rows}
        rig.notes["parked in the end"] = len(now)
        rig.notes["of these fetched after all"] = len(self.before & stored)
        return wrongly_parked(self.before, now, stored, linked(rig, stored))


def wrongly_parked(
    before: set[str], now: Mapping[str, bool], stored: set[str], known: set[str]
) -> list[str]:
    """Check that URLs that were parked ``before`` are settled, most of them without a request, and
    so is everything ``known`` of a trap.

    Only traps may be parked ``now``; True means that the row has a reason.
    """
    again = before & stored
    wrong = {
        "were parked and have no row": before - now.keys() - stored,
        "parked ones were fetched, too many": again
        if len(again) > (1 - KEPT) * len(before)
        else set(),
        "that traps lead to have no row": known - now.keys() - stored,
        "are parked for no reason": {url for url, has_reason in now.items() if not has_reason},
        "are parked and no traps": {url for url in now if "/t/" not in url},
    }
    return [f"{len(urls)} {what}, such as {min(urls)}" for what, urls in wrong.items() if urls]


def _database(rig: Rig) -> sqlite3.Connection:
    path = rig.folder / "data" / "content.sqlite"
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)


def parked(rig: Rig) -> set[str]:
    """Return URLs that are parked in SQL."""
    with closing(_database(rig)) as database:
        found = database.execute("SELECT url FROM finals WHERE state = 'parked'")
        return {url for (url,) in found}


def linked(rig: Rig, stored: set[str]) -> set[str]:
    """Return traps to which stored pages lead, and those to which each host's first page leads."""
    spec = rig.web.spec
    found = {rig.web.at(host, "/t/0") for host in range(spec.hosts)}
    for url in stored:
        place, _, number = url.rpartition("/")
        if place.endswith("/t"):
            found |= {f"{place}/{n}" for n in webfiles.below(int(number), spec.traps)}
    return found


_TRAPPED = Trapped()
TRAPS = Fault(
    "one of two workers killed, Redis put back, with traps on",
    _TRAPPED,
    "what is parked is a final state in SQL: its marks are among what Redis is told",
    rows=(19,),
    web=WebSpec(hosts=60, pages=9000, traps=120),
    delay=0.05,
    seeds=60,
    after=0.05,
    crawl_options={"traps": "on"},
    settings=SHORT,
    prepare=_TRAPPED.prepare,
    check=_TRAPPED.check,
    refetched="any",
)


def _row(fault: Fault, quick: Fault) -> Row:
    def run_row(folder: Path, say: Say, small: bool) -> Result:
        return run(quick if small else fault, folder, say)

    return run_row


ROWS: dict[int, Row] = {
    17: _row(SITEMAP, SITEMAP),  # a smaller one would be queued at once
    18: _row(REQUISITES, QUICK_REQUISITES),
    19: _row(TRAPS, replace(TRAPS, web=replace(TRAPS.web, pages=3000))),
}
