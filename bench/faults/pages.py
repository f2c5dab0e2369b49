"""Rows 14 and 15 of ``make faults``: pages that kill or hang, and hosts that send very slowly.

The speed of the other pages and hosts is compared with a clean twin that crawls at the same time on
the same machine. Both crawls are limited by their hosts' delays and not by the cores, so that the
effect of the harm is seen, and not that of other work on the machine.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import gevent

from tests.support.faultrig import Fault, Result, Rig, Row, Say
from tests.support.web import WebSpec

TRIES = 2
POISON = {700: "kill", 701: "hang"}
"""Titles of pages without links, and the expected reason."""
REASONS = {"kill": "process_death", "hang": "stalled"}
LEAST_SPEED = 0.95

POISONED = Fault(
    "a task whose page always kills, always hangs the process",
    lambda rig: None,
    "the page being parsed is marked in shared memory: it alone is charged, then parsed apart",
    rows=(14,),
    web=WebSpec(hosts=60, pages=4800, titles=POISON),
    delay=1.0,
    seeds=120,
    after=0.01,
    crawl_options={"tries": TRIES, "hook": "tests.support.deadly_hook"},
    settings={
        "lease_seconds": "15",
        "request_seconds": "1",
        "stall_seconds": "2",
        "processes": "2",
    },
    refetched="any",
)
"""A process that dies had unfinished pages: they are fetched again."""


def poison(folder: Path, say: Say, small: bool) -> Result:
    """Run row 14: the crawl with its twin, until all pages but the deadly ones are stored."""
    fault = POISONED
    clean = replace(fault, web=replace(fault.web, titles={}))
    with (
        Rig(clean, folder / "clean", lambda text: None) as twin,
        Rig(fault, folder / "harmed", say) as rig,
    ):
        _start_both(rig, twin)
        rig.until_at_stake()
        with rig.blow("deadly pages are in the queue"):
            pass
        deadly = {rig.web.url(page) for page in POISON}
        twin.until_done()
        rig.until_done()
        result = rig.judge()
        fetched, of = _fetched(rig, twin, deadly)
        result.notes["others' speed"] = round(fetched / of, 3)
        if fetched < LEAST_SPEED * of:
            result.why_not.append(f"the others' speed was {fetched / of:.1%} of a clean run's")
        result.why_not += _dead_letters(rig) + _charged(rig)
        return result


def _start_both(rig: Rig, twin: Rig) -> None:
    """Start both systems, then let both crawls begin at once."""
    jobs = [gevent.spawn(one.start) for one in (rig, twin)]
    gevent.joinall(jobs, raise_error=True)


def _fetched(rig: Rig, twin: Rig, deadly: set[str]) -> tuple[int, int]:
    """Return how many pages each system had fetched, without the deadly ones, when the twin had
    fetched its last page."""

    def first_requests(one: Rig) -> list[float]:
        hits = [hit for hit in one.hits() if hit.status == 200]
        first: dict[str, float] = {}
        for hit in sorted(hits, key=lambda hit: hit.arrived):
            url = f"http://{hit.address}:{one.web.port}{hit.target}"
            first.setdefault(url, hit.arrived)
        return sorted(at for url, at in first.items() if url not in deadly)

    ours, others = first_requests(rig), first_requests(twin)
    span = others[-1] - others[0]
    return sum(at <= ours[0] + span for at in ours), len(others)


def _dead_letters(rig: Rig) -> list[str]:
    """Check that each deadly page is a dead letter of the right kind, after its tries."""
    with closing(_database(rig)) as database:
        found = dict(database.execute("SELECT url, kind FROM finals WHERE state = 'dead'"))
        tries = dict(
            database.execute("SELECT url, count(*) FROM attempts WHERE kind <> 'ok' GROUP BY url")
        )
    wanted = {rig.web.url(page): REASONS[title] for page, title in POISON.items()}
    rig.notes["dead letters"] = sorted(found.values())
    findings = [] if found == wanted else [f"dead letters are {found}, not {wanted}"]
    return findings + [
        f"{url} was tried {tries.get(url, 0)} times" for url in wanted if tries.get(url) != TRIES
    ]


def _charged(rig: Rig) -> list[str]:
    """Check that no failure was counted for another page."""
    deadly = {rig.web.url(page) for page in POISON}
    with closing(_database(rig)) as database:
        rows = database.execute("SELECT url, kind FROM attempts WHERE kind <> 'ok' OR errors > 0")
        return [f"{url} was charged: {kind}" for url, kind in rows if url not in deadly]


def _database(rig: Rig) -> sqlite3.Connection:
    path = rig.folder / "data" / "content.sqlite"
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)


# --- slow hosts --------------------------------------------------------------------------------

MEASURED_SECONDS = 30.0
LEAST_SHARE = 0.90

DRIPPING = Fault(
    "500 hosts that answer a byte a second beside 50 good ones",
    lambda rig: None,
    "slow hosts hold a set share of the greenlets; what they hold beyond is lent",
    rows=(15,),
    web=WebSpec(hosts=50, pages=3200, tarpits=500),
    delay=0.5,
    seeds=100,
    after=0.005,
    crawl_options={"tries": 1},
    settings={
        "request_seconds": "40",
        "lease_seconds": "60",
        "processes": "1",
        "greenlets": "300",
    },
)
"""A slow host's only page is being read for longer than the speed is measured."""


def dripping(folder: Path, say: Say, small: bool) -> Result:
    """Run row 15: pages a second of the good hosts in the same seconds, with slow ones and
    without."""
    clean = replace(DRIPPING, web=replace(DRIPPING.web, tarpits=0))
    harmed = replace(DRIPPING, seeds_extra=lambda rig: rig.web.tarpit_urls())
    with (
        Rig(clean, folder / "clean", lambda text: None) as twin,
        Rig(harmed, folder / "harmed", say) as rig,
    ):
        _start_both(rig, twin)
        rig.until_at_stake()
        with rig.blow("500 slow hosts"):
            began = min(hit.arrived for hit in rig.hits())
            time.sleep(max(0.0, began + MEASURED_SECONDS + 1 - time.monotonic()))
        ours, others = (_each_5_seconds(one) for one in (rig, twin))
        share = sum(ours) / sum(others)
        rig.notes |= {
            "good hosts' pages in each 5 s": ours,
            "and without slow hosts": others,
            "share": round(share, 3),
        }
        if share < LEAST_SHARE:
            rig.find(f"good hosts had {share:.1%} of their speed")
        rig.until_done()
        return rig.judge()


def _each_5_seconds(rig: Rig) -> list[int]:
    """Return the requests at good hosts in each 5 s of the measured time, which begins with the
    first."""
    arrived = sorted(hit.arrived for hit in rig.hits())
    counts = [0] * int(MEASURED_SECONDS / 5)
    for at in arrived:
        if at - arrived[0] < MEASURED_SECONDS:
            counts[int((at - arrived[0]) / 5)] += 1
    return counts


ROWS: dict[int, Row] = {14: poison, 15: dripping}
