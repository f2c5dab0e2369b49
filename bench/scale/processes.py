"""More processes and longer latencies: pages a second, CPU by process, and a model that predicts.

``python -m bench.scale.processes [--short]``. There are three questions:

1. How do pages a second, and the CPU a page of each part, depend on the number of worker processes
   and on latency (10, 100 and 1000 ms)? Which share of the rate that the CPU allows do two
   processes reach on this machine?
2. How well does a cost model (``bench.scale.cost_model``), fitted on small runs – one process, few
   sessions –, predict larger runs that it has not seen?
3. A straight line: each additional node brings its own sessions. How do pages a second grow with
   the nodes, and what CPU does a node take?

Every page has 40 links: two lead to unknown pages, the others to the menu of the host. So a page
costs the same at any time of a crawl. In one series all links are new, to show what a new link
costs. In another series every host has a single page, to show what a new host costs.

Measurements that other programs disturb are repeated, a bounded number of times.
``docs/scaling.md`` has the conclusions for a hundred workers and a billion URLs.
"""

from __future__ import annotations

import sys

import psutil

from bench.rig.record import Record
from bench.scale import process_runs, process_tables, scaling

NAME = "scale"


def run(short: bool) -> None:
    """Write the result, the plots and ``docs/scaling.md``."""
    record = Record(NAME, "More processes, and what comes beyond them", short)
    measured = process_runs.measure(short)
    record.runs("measured", measured)
    process_tables.show(record, measured, psutil.cpu_count() or 1)
    record.finish()
    scaling.write()


if __name__ == "__main__":
    run("--short" in sys.argv[1:])
