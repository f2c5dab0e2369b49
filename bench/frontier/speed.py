"""The frontier's memory and speed: ``python -m bench.frontier.speed [PART …] [--quick]``.

The parts, all of which run unless some are named:

* ``seen``      bytes a seen URL in one crawl that grows, while nothing waits
* ``waiting``   bytes a waiting URL, with everything that Redis keeps for it, for four mixes of
  hosts
* ``ingest``    new URLs a second through ``POST /v1/crawls/{crawl}/urls``, 256 a request
* ``lease``     tasks a second through ``/v1/lease``, ``/v1/sessions/close`` and ``/v1/finish``
* ``admit``     admission by a worker's process through ``Frontier.admit``

URLs have 80 characters on average. Redis (append-only file, fsync every second; no file if only
memory is measured) has one core, the broker the other; the HTTP client runs on Redis' core. The
store is the broker's SQLite file with ``synchronous=FULL``. Each speed is compared with *bare*: the
same script calls with the same bytes in the same batches over a plain connection, with the second
core idle (``bench.frontier.frontier_rig.Bare``), the best of three.

A round counts if other programs took less than a tenth of a core. Rounds are repeated until three
count, or six were run; then all count. The row says how many rounds counted, and what other
programs took on average; the median of the rounds is the figure. For each URL the row also has the
CPU of Redis and of the broker, which depends less on other programs. ``--quick`` measures a tenth
of everything, in one round. A run of all parts is stored as ``frontier.json``. Other runs are
stored as ``frontier-….json``, which Git ignores.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402

from bench.frontier.feed import chunks  # noqa: E402
from bench.frontier.frontier_rig import Bare, Rig  # noqa: E402
from bench.rig.report import Report  # noqa: E402
from greencrawl.broker.frontier import Frontier, Mode  # noqa: E402
from greencrawl.schema import log  # noqa: E402
from greencrawl.schema.records import CloseItem, Done, FinishItem, HostReport, LeaseRequest  # noqa: E402

SEEN_LIMIT = 13.0
SEEN_LEAST = 100_000
"""The least number of URLs of a crawl for which the limit holds."""
SCRIPT_LIMIT_MS = 5.0
INGEST_LEAST = 50_000.0
LEASE_LEAST = 25_000.0
LEASE_SCALE = 0.8
ADMIT_LEAST = 0.7

BATCH = 256
"""URLs a request of ingest, and tasks a finish, as in the worker's outbox."""
CONNECTIONS = 8
SESSIONS, TASKS = 64, 32
"""Numbers of sessions and of tasks that each lease call asks for."""
TRIES = 3
"""Number of bare runs; the best counts."""
PAGE_BATCH, WRITERS = 2560, 4
"""URLs that a worker admits at a time (64 pages of 40 new links), and how many such calls run at
once."""


OTHERS_MOST = 0.1
"""Cores that other work may use in a round that counts."""

Figures = dict[str, float]
"""The measurements of ``Rig`` in one round."""


@dataclass
class Run:
    """The parameters of a part: where to report, and how much to do."""

    report: Report
    quick: bool
    worst: tuple[float, str] = (0.0, "")
    worst_at_all: tuple[float, str] = (0.0, "")
    over: int = 0
    counted: int = 0
    """Number of rounds that counted."""

    def count(self, full: int) -> int:
        """Return ``full``, or a tenth of it in a quick run."""
        return full // 10 if self.quick else full

    def rounds(self, rig: Rig, once: Callable[[int], Figures]) -> list[Figures]:
        """Return the rounds that count, by number; see the module's text."""
        wanted, most = (1, 2) if self.quick else (3, 6)
        found: list[Figures] = []
        while len(found) < most and sum(map(_counts, found)) < wanted:
            found.append(once(len(found)))
            self.look(rig, _counts(found[-1]))
        return [one for one in found if _counts(one)] or found

    def look(self, rig: Rig, counts: bool) -> None:
        """Record the slowest script since the last client began."""
        ms, over, name = rig.slowest()
        self.worst_at_all = max(self.worst_at_all, (ms, name))
        if counts:
            self.counted += 1
            self.worst, self.over = max(self.worst, (ms, name)), self.over + over


def _counts(figures: Figures) -> bool:
    return figures["others"] <= OTHERS_MOST


# -- memory


def seen(run: Run) -> None:
    """Measure the bytes of a URL in the seen-set."""
    with Rig(broker=False, durable=False) as rig:
        crawl = rig.crawl("seen")
        before, done = rig.used(), 0
        for full in (100_000, 1_000_000, 10_000_000):
            upto = run.count(full)
            mode = int(Mode.MARK)
            found = rig.feed(crawl.id, upto - done, 1000, 10, first=done, mode=mode)
            run.look(rig, _counts(found))
            assert found["done"] == upto - done
            done = upto
            bytes_ = (rig.used() - before) / done
            run.report.row(f"seen {done:,} URLs", bytes_a_URL=bytes_)
            if done >= SEEN_LEAST:
                text = f"at most {SEEN_LIMIT:g} bytes a seen URL of {done:,}"
                run.report.claim(text, bytes_ <= SEEN_LIMIT)


WAITING = ((1_000_000, 100, 130.0), (1_000_000, 3, 250.0), (1_000_000, 1, 450.0))
"""Number of URLs, URLs a host, most bytes a URL."""
MANY, MANY_HOSTS, MANY_LIMIT = 10_000_000, 100_000, 1.2e9


def waiting(run: Run) -> None:
    """Measure the bytes of a waiting URL."""
    mixes = [(run.count(n), run.count(n) // per, per, most) for n, per, most in WAITING]
    many = (run.count(MANY), run.count(MANY_HOSTS), MANY // MANY_HOSTS, MANY_LIMIT / MANY)
    for count, hosts, per, most in [*mixes, many]:
        with Rig(broker=False, durable=False) as rig:
            crawl = rig.crawl("waiting")
            before = rig.used()
            found = rig.feed(crawl.id, count, hosts, min(per, 10))
            run.look(rig, _counts(found))
            assert found["done"] == count
            used = rig.used() - before
            what = f"{count:,} URLs waiting at {hosts:,} hosts"
            run.report.row(what, bytes_a_URL=used / count, MB=used / 1e6)
            run.report.claim(f"at most {most:g} bytes a URL with {what}", used <= most * count)


# -- speed


def _row(run: Run, what: str, unit: str, found: Sequence[Figures], bare: float) -> float:
    """Print the median of rounds, and return it."""
    rates = [one["done"] / one["seconds"] for one in found]
    rate = statistics.median(rates)
    done = sum(one["done"] for one in found)
    columns: dict[str, float | int | str] = {f"{unit}/s": rate, "best": max(rates)}
    columns |= {"× bare": rate / bare, f"bare {unit}/s": bare}
    for part in ("redis", "broker", "client"):
        if f"{part} cpu" in found[0]:
            columns[f"{part} CPU µs"] = sum(one[f"{part} cpu"] for one in found) / done * 1e6
    columns["rounds that count"] = sum(map(_counts, found))
    columns["cores taken by others"] = statistics.mean(one["others"] for one in found)
    run.report.row(what, **columns)
    return rate


INGEST = ((1_000, True), (20_000, True), (0, False))
"""Number of hosts (0: each URL has its own), and whether there is a claim."""


def ingest(run: Run) -> None:
    """Measure seeds a second through the API."""
    count = run.count(256_000)
    for hosts, claimed in INGEST:
        mix = f"{hosts:,} hosts, each URL of a batch at another" if hosts else "each at a new host"
        with Rig(broker=True) as rig:

            def once(number: int, rig: Rig = rig, hosts: int = hosts) -> Figures:
                rig.crawl(f"round{number}")
                found = rig.request(
                    do="ingest",
                    crawl=f"round{number}",
                    first=0 if hosts else number * count,
                    count=count,
                    hosts=hosts or 1 << 40,
                    batch=BATCH,
                    connections=CONNECTIONS,
                )
                assert found["done"] == count, f"{found['done']} of {count} were new"
                return found

            rounds = run.rounds(rig, once)
            first = 0 if hosts else 10 * count
            bare = _bare_admission(rig, first, count, hosts or 1 << 40, BATCH)
            rate = _row(run, f"ingest, {mix}", "URLs", rounds, bare)
            if claimed:
                text = f"at least {INGEST_LEAST:,.0f} new URLs/s at {hosts:,} hosts"
                run.report.claim(text, rate >= INGEST_LEAST)


def _bare_admission(rig: Rig, first: int, count: int, hosts: int, batch: int) -> float:
    """Return URLs a second of bare admit calls, for URLs ``first`` … in crawls of their own."""
    frontier = rig.frontier or rig.inside()
    rates = []
    for attempt in range(TRIES):
        at = first + attempt * count if first else 0
        task = {"first": at, "count": count, "hosts": hosts, "run": 1, "batch": batch}
        work = list(chunks(task))
        crawl = rig.crawl(f"bare{attempt}")
        with Bare(frontier, rig.server.port) as bare:
            new = sum(sum(frontier.admit(crawl.id, chunk)) for chunk in work)
        assert new == count
        rates.append(count / bare.seconds)
    return max(rates)


LEASE_TASKS = 250_000
LEASE = ((1_000, 2_000, False), (100_000, 32, False), (1_000, 2_000, True))
"""Number of hosts, number of tasks that wait at each host, and whether there is also a paused crawl
of a million tasks."""
PAUSED, PAUSED_HOSTS = 1_000_000, 100_000


def lease(run: Run) -> None:
    """Measure tasks a second that are leased, closed and finished through the API."""
    rates: list[float] = []
    for full_hosts, per, beside in LEASE:
        hosts = full_hosts if full_hosts <= 1000 else run.count(full_hosts)
        each = run.count(per) if full_hosts <= 1000 else per
        with Rig(broker=True) as rig:
            what = f"lease + close + finish, {hosts:,} hosts × {each} tasks"
            if beside:
                paused = rig.crawl("paused")
                rig.feed(paused.id, run.count(PAUSED), run.count(PAUSED_HOSTS), 10)
                assert rig.broker is not None
                rig.broker.client().pause("paused")
                what += f", a paused crawl of {run.count(PAUSED):,} tasks beside it"
            crawl = rig.crawl("lease")
            rig.feed(crawl.id, hosts * each, hosts, 10)

            def once(number: int, rig: Rig = rig) -> Figures:
                found = rig.request(
                    do="lease",
                    round=number,
                    count=run.count(LEASE_TASKS),
                    connections=CONNECTIONS,
                    sessions=SESSIONS,
                    tasks=TASKS,
                )
                assert found["done"] >= run.count(LEASE_TASKS)
                return found

            rounds = run.rounds(rig, once)
            bare = _bare_lease(rig, run.count(LEASE_TASKS) // 4)
            rate = _row(run, what, "tasks", rounds, bare)
            run.report.claim(f"at least {LEASE_LEAST:,.0f} tasks/s: {what}", rate >= LEASE_LEAST)
            if rates:
                run.report.claim(
                    f"at least {LEASE_SCALE:g} × the first row: {what}",
                    rate >= LEASE_SCALE * rates[0],
                    f"{rate / rates[0]:.2f} ×",
                )
            rates.append(rate)


def _bare_lease(rig: Rig, count: int) -> float:
    """Return tasks a second of bare open, close and finish calls, in the batches of the HTTP
    client."""
    frontier = rig.inside()
    frontier.start()
    rates, sequence = [], 0
    for _ in range(TRIES):
        done = 0
        with Bare(frontier, rig.server.port) as bare:
            while done < count:
                sequence += 1
                request = LeaseRequest(
                    worker="bare",
                    incarnation=1,
                    sequence=sequence,
                    max_sessions=SESSIONS,
                    tasks_per_session=TASKS,
                )
                done += _settle(frontier, request)
        rates.append(done / bare.seconds)
    return max(rates)


def _settle(frontier: Frontier, request: LeaseRequest) -> int:
    """Lease, close and finish once; return the number of tasks."""
    sessions = frontier.lease(request).sessions
    report = HostReport(latency=0.05, robots=True, requests=TASKS)
    closed = frontier.close_sessions(
        [CloseItem(session=s.session, token=s.token, report=report) for s in sessions]
    )
    outcome = Done(stored=True, bytes=18_000)
    items = [
        FinishItem(session=s.session, token=s.token, task=task.number, outcome=outcome)
        for s in sessions
        for task in s.tasks
    ]
    for start in range(0, len(items), BATCH):
        closed += frontier.finish(items[start : start + BATCH])
    assert set(closed) <= {"ok"}, set(closed)
    return len(items)


def admit(run: Run) -> None:
    """Measure URLs a second that are admitted without the API."""
    count, hosts = run.count(640_000) // PAGE_BATCH * PAGE_BATCH, 1_000
    with Rig(broker=False) as rig:

        def once(number: int) -> Figures:
            crawl = rig.crawl(f"round{number}")
            more = {"processes": 1, "greenlets": WRITERS, "prepared": True}
            found = rig.feed(crawl.id, count, hosts, 1, batch=PAGE_BATCH, **more)
            assert found["done"] == count
            return found

        rounds = run.rounds(rig, once)
        bare = _bare_admission(rig, 0, count, hosts, PAGE_BATCH)
        what = f"admission by a worker, {PAGE_BATCH} URLs a call over {hosts:,} hosts"
        rate = _row(run, what, "URLs", rounds, bare)
        run.report.claim(f"at least {ADMIT_LEAST:g} × bare calls", rate >= ADMIT_LEAST * bare)


PARTS: dict[str, Callable[[Run], None]] = {
    "seen": seen,
    "waiting": waiting,
    "ingest": ingest,
    "lease": lease,
    "admit": admit,
}


SPEED = {"ingest", "lease", "admit"}
"""Parts in which scripts are timed."""


def _scripts(run: Run) -> None:
    for what, (ms, script) in (
        ("slowest script where the cores were ours", run.worst),
        ("slowest script at all", run.worst_at_all),
    ):
        run.report.row(what, ms=ms or "under 1", name=script or "none")
    run.report.figure("scripts over 1 ms where the cores were ours", run.over)
    ms, script = run.worst
    found = f"{script}: {ms:.1f} ms" if ms else "" if run.counted else "the cores were never ours"
    holds = run.counted > 0 and ms < SCRIPT_LIMIT_MS
    run.report.claim(f"no script takes {SCRIPT_LIMIT_MS:g} ms", holds, found)


def main(arguments: Sequence[str]) -> int:
    """Run the parts; return 0 if every claim holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontier.speed")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    log.configure("bench", "error")  # log no opened nodes and ended listeners: they are usual here
    name = "-".join(["frontier", *options.parts, *["quick"] * options.quick])
    run = Run(
        Report(name, "the frontier: memory, ingest, lease + finish, admission"), options.quick
    )
    for part in options.parts or PARTS:
        PARTS[part](run)
    if SPEED & set(options.parts or PARTS):
        _scripts(run)
    return run.report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
