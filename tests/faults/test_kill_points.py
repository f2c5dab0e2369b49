"""kill -9 at named points: no URL is lost, and at most what was leased is fetched again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.effort import cases
from tests.support.kill import killed_at
from tests.support.redis_server import RedisServer

POINTS = cases(
    [("worker.after_admit", 2), ("broker.after_seed_log", 2)],
    [
        ("worker.after_store", 2),
        ("worker.before_finish", 2),
        ("worker.after_finish", 2),
        ("broker.after_lease_script", 3),
        ("broker.after_finish_script", 2),
        ("broker.after_close_script", 2),
    ],
)
"""By day most points are tried in ``test_faults``, several in one crawl."""


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_kill_loses_no_url_and_only_leased_urls_are_fetched_again(
    tmp_path: Path, redis_server: RedisServer, point: str, count: int
) -> None:
    run = killed_at(point, count, tmp_path, redis_server.url)
    assert oracle.shown(oracle.differences(run.stored.pages, run.expected.pages, "stored")) == ""
    assert oracle.shown(oracle.differences(run.requests, run.expected.requested, "requested")) == ""
    assert run.leased > 0, "nothing was at stake when the kill fell"
    assert run.refetched <= run.leased
