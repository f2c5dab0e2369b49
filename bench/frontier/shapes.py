"""A waiting URL's queue alone: a list a host and level (as built) beside a sorted set a host.

Behind ``docs/decisions/0001-waiting-lists.md``.
"""

from __future__ import annotations

import redis

from bench.rig.report import Report

CHUNK = 5000
PER_HOST = (100, 3, 1)
LENGTHS = (50, 80)
"""Characters of a path."""


def shapes(report: Report, server: redis.Redis, count: int) -> None:
    """Print bytes a URL of both shapes for some mixes; empties the server each time."""
    for per_host in PER_HOST:
        for length in LENGTHS:
            found = {
                f"{shape} bytes a URL": _queue(server, count, per_host, length, shape)
                for shape in ("list", "sorted set")
            }
            report.row(f"the queue alone, {per_host} URLs a host, paths of {length}", **found)


def _queue(server: redis.Redis, count: int, per_host: int, length: int, shape: str) -> float:
    server.flushall()
    before = server.info("memory")["used_memory"]
    pipe = server.pipeline(transaction=False)
    for n in range(count):
        host = f"www.site-{n // per_host}.com"
        path = f"/section/{n % 97:02d}/article-{n:08d}-".ljust(length - 5, "x") + ".html"
        if shape == "list":
            pipe.rpush(f"gc:{{7}}:w:1:{host}:A", "1s" + path)
        else:
            pipe.zadd(f"gc:{{7}}:w:1:{host}", {"1s" + path: n})
        if n % CHUNK == 0:
            pipe.execute()
    pipe.execute()
    return float(server.info("memory")["used_memory"] - before) / count
