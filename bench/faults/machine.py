"""Rows 11 to 13 of ``make faults``: Redis' memory, its disk and SQL's disk full, Redis' clock."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import urllib.error
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import redis

from tests.support.faketime import ClockedRedis, library
from tests.support.faultrig import Fault, Result, Rig, Row, Say, run
from tests.support.system import wait_until
from tests.support.web import WebSpec

# --- memory ------------------------------------------------------------------------------------

MEMORY = "5mb"
"""Enough for the normal needs of a crawl of this size, but not for all its waiting URLs."""
SQUEEZED_SECONDS = 6.0


class Squeeze:
    """Set ``maxmemory`` to the memory in use, so that Redis refuses every write that may take more;
    set it back to its first value after a while."""

    def __call__(self, rig: Rig) -> None:
        with closing(rig.redis.client) as client:
            before = str(client.config_get("maxmemory")["maxmemory"])
            with rig.blow("Redis at its memory limit"):
                client.config_set("maxmemory", client.info("memory")["used_memory"])
                time.sleep(SQUEEZED_SECONDS / 3)
                first = _finished(rig)
                time.sleep(SQUEEZED_SECONDS / 3)
                rig.notes["seeding"] = answered = _seeding(rig)
                if answered != 429:
                    rig.find(f"seeding was answered {answered}")
                time.sleep(SQUEEZED_SECONDS / 3)
                more = _finished(rig) - first
                rig.notes["finished at the limit"] = more
                if more < 1:
                    rig.find("nothing was finished at the limit")
                client.config_set("maxmemory", before)
            rig.notes["evicted"] = client.info("stats")["evicted_keys"]
        wait_until(lambda: rig.stats() != {}, 30, "the broker answers")

    def check(self, rig: Rig) -> list[str]:
        """Check that the overflow was used, and is empty at the end."""
        with closing(_database(rig)) as database:
            (most,) = database.execute(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'overflow'"
            ).fetchone()
            left = most and database.execute("SELECT count(*) FROM overflow").fetchone()[0]
        rig.notes["rows of overflow"] = most
        findings = [] if most else ["nothing went to the overflow"]
        return [*findings, *([f"{left} rows of overflow are left"] if left else [])]


def _finished(rig: Rig) -> int:
    """Return the tasks that Redis counts as finished, read without the broker, whose scripts may be
    refused."""
    with closing(redis.Redis(port=rig.redis.port)) as client:
        names = list(client.scan_iter("gc:{*}:c:*", count=1000))
        records: list[Any] = client.mget(names) if names else []
    crawls = [msgspec.msgpack.decode(record) for record in records if record is not None]
    return sum(int(crawl.get("fin", 0)) for crawl in crawls)


def _seeding(rig: Rig) -> int:
    """Return the status of the answer to a seed."""
    try:
        rig.system.call("POST", "/v1/crawls/test/urls", {"urls": [rig.web.url(0)]})
    except urllib.error.HTTPError as error:
        return error.code
    return 200


_SQUEEZE = Squeeze()
FULL_MEMORY = Fault(
    "Redis at its memory limit",
    _SQUEEZE,
    "what is beyond goes to the overflow in SQL first; every script but admit begins with DEL",
    rows=(11,),
    web=WebSpec(pages=20_000),
    delay=0.05,
    redis_options=("--maxmemory", MEMORY),
    settings={"lease_seconds": "15", "request_seconds": "2"},
    check=_SQUEEZE.check,
    refetched="leased",
)


def memory(folder: Path, say: Say, small: bool) -> Result:
    """Run row 11; a smaller web would fill nothing."""
    return run(FULL_MEMORY, folder, say)


# --- the clock ---------------------------------------------------------------------------------

HOUR = 3600
OFF_SECONDS = 60.0
"""Logical time may fall behind by the time until a jump is noticed, and no more."""


def prepare_clock(rig: Rig) -> None:
    """Give Redis a clock of its own."""
    rig.redis = ClockedRedis(rig.folder / "redis")


def jump(rig: Rig) -> None:
    """Let the clock jump: an hour forward, back, an hour back, forward again, each time with leased
    tasks."""
    server = rig.redis
    assert isinstance(server, ClockedRedis)
    seen: list[float] = []
    for offset in (HOUR, 0, -HOUR, 0):
        rig.until_at_stake()
        with rig.blow(f"Redis' clock {offset:+d} s"):
            server.set_clock(offset)
        seen.append(round(_until_right(rig, offset), 1))
        rig.until_leasing()
    rig.notes["logical time ahead after each jump, s"] = seen


def _until_right(rig: Rig, offset: int) -> float:
    """Wait until logical time is right though Redis' clock is wrong by ``offset`` seconds.

    Return by how many seconds logical time is then ahead.
    """

    def ahead() -> float:
        with closing(rig.redis.client) as client:
            return offset + int(client.hget("gc:owner", "offset") or 0) / 1000

    wait_until(lambda: abs(ahead()) < OFF_SECONDS, 10, f"logical time is right at {offset:+d} s")
    return ahead()


def clock_kept(rig: Rig) -> list[str]:
    """Check that no error was counted, and no lease taken away; the rig checks refetches."""
    stats = rig.stats()
    charged = stats.get("retries") or stats.get("failures")
    return [f"charged: {stats}"] if charged else []


CLOCK = Fault(
    "the Redis machine's clock jumps an hour, either way",
    jump,
    "calls carry the time expected, the node its last use: a jump is one change of the offset",
    rows=(13,),
    web=WebSpec(pages=12_000),
    delay=0.1,
    settings={"lease_seconds": "10", "request_seconds": "2"},
    prepare=prepare_clock,
    check=clock_kept,
    refetched="none",
)


def clock(folder: Path, say: Say, small: bool) -> Result:
    """Run row 13, if libfaketime is installed."""
    if library() is None:
        result = Result(CLOCK.name, CLOCK.rows, CLOCK.mechanism)
        result.why_not.append("libfaketime is not installed: apt-get install libfaketime")
        return result
    return run(replace(CLOCK, web=replace(CLOCK.web, pages=8000)) if small else CLOCK, folder, say)


# --- full disks --------------------------------------------------------------------------------

DISK_BYTES = 64 * 1024 * 1024
FULL_SECONDS = 5.0
PROBE_SECONDS = 0.1


class FullDisk:
    """A small file system under one folder of the rig, which is full for a while.

    While the disk is full, seeds are posted again and again, one in each call, and Redis' count of
    finished tasks is compared with SQL. ``acknowledged`` are the seeds that got a 2xx answer.
    """

    def __init__(self, part: Literal["redis", "data"]) -> None:
        self.part = part
        self.acknowledged: list[str] = []

    def prepare(self, rig: Rig) -> None:
        """Mount the file system; it is unmounted when all its users have ended."""
        self.acknowledged = []
        folder = rig.folder / self.part
        folder.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "greencrawl", str(folder)],
            check=True,
        )
        rig.stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)

    def __call__(self, rig: Rig) -> None:
        refused = 0
        logged = _logged(rig)
        ballast = rig.folder / self.part / "ballast"
        with rig.blow(f"disk full under {self.part}"):
            _fill(ballast)
            until = time.monotonic() + FULL_SECONDS
            while time.monotonic() < until:
                number = rig.fault.web.pages + refused + len(self.acknowledged)
                url = rig.web.url(number)  # beyond the last page: 404
                if _seeded(rig, url):
                    self.acknowledged.append(url)
                    if _logged(rig) < logged + len(self.acknowledged):
                        rig.find(f"acknowledged, but not in the log: {url}")
                else:
                    refused += 1
                _finished_is_stored(rig)
                time.sleep(PROBE_SECONDS)
            rig.notes["requests while full"] = len(
                [hit for hit in rig.hits() if hit.arrived > rig.blows[-1].at]
            )
            ballast.unlink()
        rig.notes |= {"seeds refused": refused, "seeds acknowledged": len(self.acknowledged)}
        if not refused:
            rig.find("the disk was full, and nothing was refused")
        rig.until_leasing()

    def check(self, rig: Rig) -> list[str]:
        """Check that all seeds that were acknowledged while it was full have been crawled."""
        missing = sorted(set(self.acknowledged) - rig.settled())
        return [f"{url} was acknowledged and is lost" for url in missing]


def _fill(ballast: Path) -> None:
    """Fill the file system completely."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024 * 1024)):
            pass


def _seeded(rig: Rig, url: str) -> bool:
    """Return whether a seed was acknowledged.

    Raises HTTPError for any status other than 503 and 429.
    """
    try:
        rig.system.call("POST", "/v1/crawls/test/urls", {"urls": [url]})
    except urllib.error.HTTPError as error:
        if error.code not in (429, 503):
            raise
        return False
    return True


def _logged(rig: Rig) -> int:
    """Return the number of batches in the log of seeds."""
    with closing(_database(rig)) as database:
        (count,) = database.execute("SELECT count(*) FROM seed_batches").fetchone()
    return int(count)


def _database(rig: Rig) -> sqlite3.Connection:
    path = rig.folder / "data" / "content.sqlite"
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)


def _finished_is_stored(rig: Rig) -> None:
    """Check that tasks that Redis counts as finished are in SQL: they were committed before."""
    finished = _finished(rig)
    settled = len(rig.settled())
    if finished > settled:
        rig.find(f"{finished} tasks finished, {settled} of them in SQL")


def _disk(part: Literal["redis", "data"], name: str, mechanism: str) -> Fault:
    harm = FullDisk(part)
    return Fault(
        name,
        harm,
        mechanism,
        rows=(12,),
        web=WebSpec(pages=8000),
        delay=0.1,
        settings={"lease_seconds": "15", "request_seconds": "2"},
        prepare=harm.prepare,
        check=harm.check,
        refetched="leased",
    )


DISKS = (
    _disk("redis", "disk full under Redis", "MISCONF means away: wait, go on; SQL comes first"),
    _disk("data", "disk full under SQLite", "commit before acknowledging; workers keep and wait"),
)


def disks(folder: Path, say: Say, small: bool) -> Result:
    """Run row 12, if a file system can be mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        result = Result("disk full", (12,), "")
        result.why_not.append("mounting a small file system takes root")
        return result
    return merged(
        "disk full under Redis, under SQLite",
        [run(fault, folder / str(number), say) for number, fault in enumerate(DISKS)],
    )


def merged(name: str, results: Sequence[Result]) -> Result:
    """Return several runs as one line: the sums of errors, the worst of measurements."""
    recover = [r.seconds_to_recover for r in results if r.seconds_to_recover is not None]
    settle = [r.seconds_to_settle for r in results if r.seconds_to_settle is not None]
    return Result(
        name,
        results[0].rows,
        "; ".join(dict.fromkeys(result.mechanism for result in results)),
        urls=sum(result.urls for result in results),
        blows=sum(result.blows for result in results),
        leases_out=min(result.leases_out for result in results),
        uncommitted=min(result.uncommitted for result in results),
        lost=sum(result.lost for result in results),
        refetched=sum(result.refetched for result in results),
        impolite=sum(result.impolite for result in results),
        seconds_to_recover=max(recover, default=None),
        seconds_to_settle=max(settle, default=None),
        announced=all(result.announced for result in results),
        early="; ".join(result.early for result in results if result.early),
        settings=results[0].settings,
        notes={result.name: result.notes for result in results},
        why_not=[f"{result.name}: {why}" for result in results for why in result.why_not],
    )


ROWS: dict[int, Row] = {11: memory, 12: disks, 13: clock}
