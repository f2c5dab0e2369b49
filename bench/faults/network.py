"""Rows 8 to 10 of ``make faults``: a worker is cut off, a worker is frozen, every message comes
three times.

In rows 8 and 9 the harmed worker holds all leases at the time of the fault; then a second worker on
the same host is started, and gets the hosts that the broker takes away from the first.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tests.support import oracle
from tests.support.faultrig import Fault, Result, Rig, Row, Say, run
from tests.support.proxy import Repeater, TcpProxy
from tests.support.system import System
from tests.support.web import WebSpec

LEASE_SECONDS = 2.0
REQUEST_SECONDS = 1.0
AWAY_SECONDS = 2 * LEASE_SECONDS + REQUEST_SECONDS + 1.0
"""Twice the lease, the longest request (sessions are reaped after it), and a second more."""


class Apart:
    """A worker behind a proxy that can cut it off and read its answers."""

    def __init__(self) -> None:
        self.refused = 0
        self.proxy: TcpProxy

    def prepare(self, rig: Rig) -> None:
        """Put the proxy between the worker and the broker."""
        self.refused = 0
        self.proxy = rig.stack.enter_context(
            TcpProxy(lambda: ("127.0.0.1", rig.system.port), self._read)
        )
        rig.settings["broker"] = f"http://{self.proxy.address}"

    def _read(self, answer: bytes) -> None:
        self.refused += answer.count(b'"stale"')

    def second(self, rig: Rig) -> None:
        """Start another worker, which calls the broker directly."""
        given: dict[str, Any] = {**rig.settings, "worker_id": "second"}
        given |= {
            "data": str(rig.folder / "data"),
            "broker": f"http://127.0.0.1:{rig.system.port}",
        }
        other = System(rig.folder / "second", [rig.redis.url], **given)
        rig.stack.enter_context(other).start_worker()

    def check(self, rig: Rig) -> list[str]:
        """Check that late results were sent and refused, and that the second worker got their
        tasks."""
        rig.notes["late results refused"] = self.refused
        return [] if self.refused else ["no late result was refused"]


class Cut(Apart):
    """Silently drop all data between worker and broker, for twice the lease and more."""

    def __call__(self, rig: Rig) -> None:
        self.proxy.drop()
        with rig.blow("worker cut off"):
            self.second(rig)
            time.sleep(AWAY_SECONDS)
            rig.notes["bytes dropped"] = self.proxy.lost_bytes
            self.refused = 0
            self.proxy.mend()


class Freeze(Apart):
    """SIGSTOP the supervisor and its children for twice the lease and more, then SIGCONT."""

    def __call__(self, rig: Rig) -> None:
        assert rig.system.worker is not None
        family = [psutil.Process(rig.system.worker.pid), *rig.system.children()]
        for process in family:
            process.send_signal(signal.SIGSTOP)
        with rig.blow("worker frozen"):
            self.second(rig)
            time.sleep(AWAY_SECONDS)
            self.refused = 0
            for process in reversed(family):
                process.send_signal(signal.SIGCONT)


_SHORT = {"lease_seconds": f"{LEASE_SECONDS:g}", "request_seconds": f"{REQUEST_SECONDS:g}"}
_CUT, _FREEZE = Cut(), Freeze()

CUT_OFF = Fault(
    "worker cut from the broker for twice the lease time",
    _CUT,
    "no request after the lease's deadline; reaped later; finishing only under a current token",
    rows=(8,),
    web=WebSpec(pages=8000, answer_seconds=0.05),
    delay=0.05,
    settings=_SHORT,
    prepare=_CUT.prepare,
    check=_CUT.check,
)
FROZEN = Fault(
    "worker frozen for twice the lease time, then continued",
    _FREEZE,
    "deadlines on a clock that goes on while frozen; reap after the longest request; tokens",
    rows=(9,),
    web=WebSpec(pages=8000, answer_seconds=0.05),
    delay=0.05,
    settings=_SHORT,
    prepare=_FREEZE.prepare,
    check=_FREEZE.check,
)


# --- every message three times -----------------------------------------------------------------

THROTTLED = 10
"""Hosts that answer once with 429, so that there are retries that could be counted twice by
mistake."""
QUOTA = 700
SHOWN = ("stored", "attempts", "retries", "requests", "sessions left", "state")
SETTLE_SECONDS = 3.0
"""Time for copies that are still on their way when the crawl is done; only long polls take
longer."""


SPREAD_SECONDS = 0.2
BY_CHANCE = ("admitted", "waiting", "hosts", "bytes")
"""Counters that depend on which pages come first, if a quota ends the crawl."""


class Repeat:
    """All calls of the worker and the client go through a :class:`Repeater`, from the start."""

    def __init__(self) -> None:
        self.proxy: Repeater
        self._port = 0

    def prepare(self, rig: Rig) -> None:
        """Put the proxy between the worker and the broker."""
        self._port = 0
        self.proxy = rig.stack.enter_context(
            Repeater(
                lambda: ("127.0.0.1", self._port or rig.system.port), spread_seconds=SPREAD_SECONDS
            )
        )
        rig.settings["broker"] = self.proxy.url

    def before_seeding(self, rig: Rig) -> Sequence[str]:
        """Send the client's calls through it, too. Seeds nothing further."""
        self._port, rig.system.port = rig.system.port, self.proxy.port
        return throttled(rig)

    def __call__(self, rig: Rig) -> None:
        """Do nothing: the harm began at the start, and lasts to the end."""
        with rig.blow("every message three times"):
            pass


def throttled(rig: Rig) -> Sequence[str]:
    """Let :data:`THROTTLED` hosts answer 429 once. Seeds nothing further."""
    rig.web.throttle(range(THROTTLED), 1)
    return ()


def account(rig: Rig) -> dict[str, Any]:
    """Return the account of a crawl: counters, rows of SQL, requests, without names of
    processes."""
    path = rig.folder / "data" / "content.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT kind, count(*) FROM attempts GROUP BY kind").fetchall()
        (pages,) = database.execute("SELECT count(*) FROM pages").fetchone()
        (owed,) = database.execute("SELECT count(*) FROM seed_batches WHERE pending").fetchone()
    return {
        **rig.stats(),
        "attempts": dict(rows),
        "pages": pages,
        "pending batches": owed,
        "requests": sum(oracle.requests_of(rig.hits(), rig.web.port).values()),
        "sessions left": len(list(rig.redis.client.scan_iter("gc:{*}:s:*"))),
    }


REPEATED = Fault(
    "every message delivered three times, shuffled",
    lambda rig: None,
    "fingerprints; tokens; a lease's sequence opens sessions once; batches by number",
    rows=(10,),
    web=WebSpec(pages=3000),
    settings={"lease_seconds": "10", "request_seconds": "2"},
    seeds_extra=throttled,
    refetched="none",
)
"""This fault has no harm: the row adds :class:`Repeat`."""


def triple(folder: Path, say: Say, small: bool) -> Result:
    """Run row 10: a crawl of all pages and one up to a quota, each with a clean twin."""
    clean = replace(REPEATED, web=replace(REPEATED.web, pages=1000)) if small else REPEATED
    repeat = Repeat()
    harmed = replace(
        clean, inflict=repeat, prepare=repeat.prepare, seeds_extra=repeat.before_seeding
    )
    result = Result(clean.name, clean.rows, clean.mechanism)
    for kind, quota in (("all pages", 0), (f"max_pages {QUOTA}", QUOTA)):
        say(f"{kind}, clean")
        options = {"max_pages": quota}
        with Rig(replace(clean, crawl_options=options), folder / f"clean{quota}", say) as rig:
            rig.start()
            _seed_more(rig)
            rig.until_done()
            expected = account(rig)
        say(f"{kind}, every message three times")
        with Rig(replace(harmed, crawl_options=options), folder / f"harmed{quota}", say) as rig:
            rig.start()
            _seed_more(rig)
            rig.until_at_stake()
            repeat(rig)
            rig.until_done()
            if not quota:
                result = rig.judge()
                result.notes["copies delivered"] = repeat.proxy.delivered.total()
                result.why_not += [f"unanswered: {why}" for why in repeat.proxy.failed]
            repeat.proxy.settle(SETTLE_SECONDS)
            found = account(rig)
        result.notes[kind] = ", ".join(f"{name} {found.get(name)}" for name in SHOWN)
        result.why_not += [
            f"{kind}: {name} is {found.get(name)}, of a clean run {expected.get(name)}"
            for name in sorted(expected.keys() | found.keys())
            if found.get(name) != expected.get(name) and not (quota and name in BY_CHANCE)
        ]
    return result


def _seed_more(rig: Rig) -> None:
    """Seed more URLs; half of them are known by then, or found at the same time."""
    pages = range(rig.fault.seeds // 2, 2 * rig.fault.seeds)
    rig.system.call("POST", "/v1/crawls/test/urls", {"urls": [rig.web.url(n) for n in pages]})


def _row(fault: Fault) -> Row:
    return lambda folder, say, small: run(
        replace(fault, web=replace(fault.web, pages=4000)) if small else fault, folder, say
    )


ROWS: dict[int, Row] = {8: _row(CUT_OFF), 9: _row(FROZEN), 10: triple}
