"""A process of ``bench.frontier.speed`` that admits like a worker, with ``Frontier.admit``.

It reads one JSON object from its command line, prints ``ready``, waits for a line on standard
input, and prints its figures as JSON. With ``prepared`` the admissions are made before it is ready.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from bench.frontier.urls import url_of  # noqa: E402
from greencrawl.broker.frontier import Frontier  # noqa: E402
from greencrawl.broker.frontier.scripts.partition import Mode  # noqa: E402
from greencrawl.schema.records import Admission  # noqa: E402
from greencrawl.store import open_store  # noqa: E402


def chunks(task: dict[str, Any]) -> Iterator[list[Admission]]:
    """Yield the task's URLs in the order of their numbers, as depth 1 of a breadth-first crawl."""
    first, last, size = task["first"], task["first"] + task["count"], task["batch"]
    for start in range(first, last, size):
        numbers = range(start, min(start + size, last))
        yield [Admission(url_of(n, task["hosts"], task["run"]), 1, 1) for n in numbers]


def main() -> None:
    """Admit the URLs of the task in the first argument, and print the figures."""
    task = json.loads(sys.argv[1])
    store = open_store(task["store"])
    frontier = Frontier([task["redis"]], store)
    work = chunks(task)
    if task["prepared"]:
        work = iter(list(work))
    new = 0

    def feed() -> None:
        nonlocal new
        for chunk in work:
            flags = frontier.admit(task["crawl"], chunk, mode=Mode(task["mode"]))
            new += sum(flags)

    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.monotonic(), time.process_time()
    greenlets = [gevent.spawn(feed) for _ in range(task["greenlets"])]
    gevent.joinall(greenlets, raise_error=True)
    figures = {"done": new, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    print(json.dumps(figures), flush=True)
    frontier.stop()
    store.close()


if __name__ == "__main__":
    main()
