"""Three experiments of a published study: greenlets and threads under the same crawler.

``python -m bench.models.greenlets_vs_threads [--short]``. The processes are
``bench.models.model_process``, once with gevent and once with ``bench.models.on_threads`` instead
of gevent; everything else is the same code. Runs of both models alternate.

1. memory: RSS and PSS of the process while 0 to 1000 requests are under way;
2. overhead: the download is a sleep of 5 s. The figure is ideal over actual time, at 30 points up
   to 300 units and more points up to 1000, with and without reading a page after the sleep. While
   a process sleeps, other processes run: each process begins half-way between the ends of two
   others, and ends half-way between the starts of two others;
3. network: pages of 20 KB over a link of 10 Mbit/s, 60 at once, ten equal periods: each model
   alone, and both together.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.models import experiments, findings
from bench.rig import namespace
from bench.rig.record import Record

NAME = "greenlets-vs-threads"


def run(short: bool) -> None:
    """Run all three experiments; write the result and the plots."""
    record = Record(NAME, "Greenlets and threads under the same crawler", short)
    record.note(
        "Both processes run the crawler's own modules: robots.txt, download, reading, link checker,"
        " writer, SQLite, Redis. With threads, each name from gevent is replaced by its twin from"
        " the standard library (`bench/models/on_threads.py`). In the second experiment a page is"
        " not stored."
    )
    found: dict[str, Any] = {
        "memory": experiments.memory(short),
        "overhead": experiments.overhead(short),
    }
    found["network"] = experiments.network(short)
    for key, values in found.items():
        record.runs(key, values)
    findings.tables(record, found)
    findings.plots(record, found)
    record.finish()


def main(arguments: list[str]) -> int:
    """Run it; with ``--network``, the part that runs in a network namespace of its own."""
    short = "--short" in arguments
    if "--network" in arguments:
        namespace.bring_up()
        print(json.dumps(experiments.over_link(short, by_server=False)))
        return 0
    run(short)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
