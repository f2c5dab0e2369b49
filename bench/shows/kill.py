"""Show 4: kill -9 of a worker and of the broker at named points, with work at stake."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.rig.report import Report
from tests.faults.test_kill_points import POINTS
from tests.support import oracle
from tests.support.kill import killed_at
from tests.support.redis_server import RedisServer

ROUNDS = 2


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("kill", "4. kill -9 at named points")
    for number in range(ROUNDS):
        for point, count in POINTS:
            later = 0 if point == "broker.after_seed_log" else 2 * number  # it is passed twice only
            _kill(report, point, count + later)
    return report.finish()


def _kill(report: Report, point: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            run = killed_at(point, count, Path(folder), redis.url, hosts=8, pages=60)
        finally:
            redis.stop()
    name = f"{point}:{count}"
    report.figure(
        name,
        f"{run.leased} leased, {run.refetched} refetched, {len(run.stored.pages)} pages stored",
    )
    report.claim(f"{name}: work was leased when the kill fell", run.leased > 0)
    report.none(
        f"{name}: no URL lost",
        oracle.differences(run.stored.pages, run.expected.pages, "stored")
        + oracle.differences(run.requests, run.expected.requested, "requested"),
    )
    report.claim(f"{name}: refetched at most what was leased", run.refetched <= run.leased)
