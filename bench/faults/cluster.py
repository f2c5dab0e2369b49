"""``python -m bench.faults.cluster [ROW …] [--quick]``: faults of five servers during a crawl.

The rows are like those of ``bench.faults.table``, with content on two masters and three replicas. A
run of all rows at full size is stored in ``bench/results/cluster-faults.json``.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402

from bench.faults import table  # noqa: E402
from tests.support.clusterrows import ROWS  # noqa: E402

if __name__ == "__main__":
    sys.exit(table.main(sys.argv[1:], ROWS, "cluster-faults"))
