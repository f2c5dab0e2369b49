"""One of two Redis nodes is away: how fast are the other's hosts fetched, and are URLs lost?

``python -m bench.faults.away [--short] [killed|frozen|busy …]``. A broker and a worker process
crawl sixty hosts, thirty on each of two Redis nodes. Links lead to all of them at random, so half
of the links lead to hosts of the node that is taken away.

* ``killed``: the node's server is killed for ten minutes, then started again. Each host is asked
  every half second, so the rate is bounded by politeness, and is the same before and after;
* ``frozen``: the same, but the server is stopped by SIGSTOP and resumed by SIGCONT;
* ``busy``: killed for three minutes during a crawl without delays, which is bounded by the CPU of
  the worker's core. This would show if a page costs more while a node is away.

The figure is the pages a second while the node was away, divided by those before. It counts the
hosts of the other node. With ``busy`` it counts all hosts, since the other node's hosts then get
all of the CPU. When the node is back and has got what it missed, the crawl is paused. Then the URLs
that the queue knows are compared with the links of all stored pages.

``--short`` takes one minute and half a minute. Full runs take 45 minutes in all, short ones six.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import document
from bench.faults.away_report import report
from bench.faults.away_runs import DELAY, HOSTS, LEASE_SECONDS, RUNS, crawl
from bench.rig.options import parser
from bench.rig.record import Record

NAME = "away"


def main(arguments: Sequence[str]) -> int:
    """Run them; return 0 if all required figures were reached."""
    words = parser("bench.faults.away", __doc__, "six minutes in all instead of 45")
    words.add_argument("runs", nargs="*", metavar="RUN", help=", ".join(RUNS))
    options = words.parse_args(arguments)
    if unknown := set(options.runs) - set(RUNS):
        words.error(f"no such run: {', '.join(sorted(unknown))}")
    title = "one of two Redis nodes is away"
    record = Record(NAME, title, options.short, packages=("matplotlib",))
    record.note(
        f"{HOSTS} hosts with a delay of {DELAY:g} s; each page has twelve links, which lead to any"
        " host. In the run that is bound by CPU there is no delay; the worker has a core, and all"
        " others share one. Rates cover all of the time that the node was away, including its first"
        " seconds, and are compared with those before, in the same run. A lease and a request last"
        f" at most {LEASE_SECONDS} s, so a killed node rests for {2 * LEASE_SECONDS + 12} s. Lost"
        " URLs are those to which pages in the store lead and which the queue does not know when"
        " the crawl is paused afterwards."
    )
    found = {}
    for name in options.runs or RUNS:
        run = RUNS[name].short() if options.short else RUNS[name]
        print(f"\n== {run.what}", flush=True)
        with tempfile.TemporaryDirectory(prefix="away-") as folder:
            found[name] = crawl(run, Path(folder))
    report(record, found)
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
