"""More processes and longer latencies: pages a second, CPU by process, and a model that foretells.

``python -m bench.scale.processes [--short]``. Three questions:

1. pages a second and CPU a page of each part, against worker processes and latency (10, 100 and
   1000 ms); of two processes on this machine, what share of what the CPU of all processes allows;
2. a cost model (``bench.scale.cost_model``), fitted on small runs – one process, few sessions –,
against
   larger runs that it has not seen;
3. source B's straight line: one node more brings its own sessions; pages a second against nodes,
   and CPU a node.

Every page has 40 links: two lead to pages that nobody knew, the others to its host's menu. So a
page costs the same at each moment of a crawl. In one series all are new, to tell what that costs,
and in one every host has a single page, to tell what it costs to meet a host.

Measurements that others disturb are repeated, a bounded number of times. What follows for a hundred
workers and a billion URLs is written to ``docs/scaling.md``.
"""

from __future__ import annotations

import sys

import psutil

from bench.rig.record import Record
from bench.scale import process_runs, process_tables, scaling

NAME = "scale"


def run(short: bool) -> None:
    """Writes the result, the plots and ``docs/scaling.md``."""
    record = Record(NAME, "More processes, and what comes beyond them", short)
    measured = process_runs.measure(short)
    record.runs("measured", measured)
    process_tables.show(record, measured, psutil.cpu_count() or 1)
    record.finish()
    scaling.write()


if __name__ == "__main__":
    run("--short" in sys.argv[1:])
