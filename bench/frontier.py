"""The frontier's memory and speed: ``python -m bench.frontier [PART …] [--quick]``.

Parts, all of them unless some are named:

* ``seen``      bytes a seen URL in one crawl that grows, with nothing waiting
* ``waiting``   bytes a waiting URL, all that Redis keeps of it, for four mixes of hosts
* ``ingest``    new URLs a second through ``POST /v1/crawls/{crawl}/urls``, 256 a request
* ``lease``     tasks a second through ``/v1/lease``, ``/v1/sessions/close`` and ``/v1/finish``
* ``admit``     admission by a worker's process through ``Frontier.admit``

URLs have 80 characters in the mean. Redis (append-only file, fsync every second; none where only
memory is measured) has one core, the broker the other; the HTTP client runs on Redis' core. The
store is the broker's SQLite file with ``synchronous=FULL``. Each part that measures speed runs in
rounds; the median counts. Beside it stands *bare*: the same script calls with the same bytes in the
same batches over a plain connection, with the second core idle (``bench.frontier_rig.Bare``).

Other load on the machine spoils times, not CPU: rows also name the CPU of Redis and of the broker,
and the share of the time for which each waited for its core. ``--quick`` is a tenth of everything.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402

from bench.frontier_feed import chunks  # noqa: E402
from bench.frontier_rig import Bare, Rig, Spent, calm  # noqa: E402
from bench.report import Report  # noqa: E402
from broker.frontier import Frontier, Mode  # noqa: E402
from schema import log  # noqa: E402
from schema.records import (  # noqa: E402
    CloseItem,
    Done,
    FinishItem,
    HostReport,
    LeaseRequest,
)

SEEN_LIMIT = 13.0
SCRIPT_LIMIT_MS = 5.0
INGEST_LEAST = 50_000.0
LEASE_LEAST = 25_000.0
LEASE_SCALE = 0.8
ADMIT_LEAST = 0.7

BATCH = 256
"""URLs a request of ingest, and tasks a finish: what the worker's outbox sends."""
CONNECTIONS = 8
SESSIONS, TASKS = 64, 32
"""Asked for in each lease."""
PAGE_BATCH, WRITERS = 2560, 4
"""URLs a worker admits at a time (64 pages of 40 new links), and how many such at once."""


@dataclass
class Run:
    """What a part needs: where to report, and how much to do."""

    report: Report
    quick: bool
    worst: tuple[float, int, str] = (0.0, 0, "")

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3

    def count(self, full: int) -> int:
        return full // 10 if self.quick else full

    def look(self, rig: Rig) -> None:
        """Keep the slowest script of a rig that ends."""
        ms, over, name = rig.slowest()
        most = max(self.worst, (ms, 0, name))
        self.worst = (most[0], self.worst[1] + over, most[2])


# -- memory


def seen(run: Run) -> None:
    with Rig(broker=False, durable=False) as rig:
        crawl = rig.crawl("seen")
        before, done = rig.used(), 0
        for full in (100_000, 1_000_000, 10_000_000):
            upto = run.count(full)
            mode = int(Mode.MARK)
            found = rig.feed(crawl.id, upto - done, 1000, 10, first=done, mode=mode)
            assert found["done"] == upto - done
            done = upto
            bytes_ = (rig.used() - before) / done
            run.report.row(f"seen {done:,} URLs", bytes_a_URL=bytes_)
            run.report.claim(
                f"at most {SEEN_LIMIT:g} bytes a seen URL of {done:,}", bytes_ <= SEEN_LIMIT
            )
        run.look(rig)


WAITING = ((1_000_000, 100, 130.0), (1_000_000, 3, 250.0), (1_000_000, 1, 450.0))
"""URLs, URLs a host, most bytes a URL."""
MANY, MANY_HOSTS, MANY_LIMIT = 10_000_000, 100_000, 1.2e9


def waiting(run: Run) -> None:
    mixes = [(run.count(n), run.count(n) // per, per, most) for n, per, most in WAITING]
    many = (run.count(MANY), run.count(MANY_HOSTS), MANY // MANY_HOSTS, MANY_LIMIT / MANY)
    for count, hosts, per, most in [*mixes, many]:
        with Rig(broker=False, durable=False) as rig:
            crawl = rig.crawl("waiting")
            before = rig.used()
            found = rig.feed(crawl.id, count, hosts, min(per, 10))
            assert found["done"] == count
            used = rig.used() - before
            what = f"{count:,} URLs waiting at {hosts:,} hosts"
            run.report.row(what, bytes_a_URL=used / count, MB=used / 1e6)
            run.report.claim(f"at most {most:g} bytes a URL with {what}", used <= most * count)
            run.look(rig)


# -- speed


def _row(
    run: Run, what: str, unit: str, found: Sequence[dict[str, float]], bare: float
) -> tuple[float, float]:
    """Print the median of rounds; returns it and its ratio to bare calls a second."""
    rates = [one["done"] / one["seconds"] for one in found]
    rate = statistics.median(rates)
    done = sum(one["done"] for one in found)
    seconds = sum(one["seconds"] for one in found)
    columns: dict[str, float | str] = {f"{unit}/s": rate, "best": max(rates), "× bare": rate / bare}
    columns[f"bare {unit}/s"] = bare
    for part in ("redis", "broker"):
        if f"{part} cpu" in found[0]:
            cpu = sum(one[f"{part} cpu"] for one in found)
            columns[f"{part} CPU µs"] = cpu / done * 1e6
            columns[f"{part} waited %"] = sum(o[f"{part} waited"] for o in found) / seconds * 100
    columns["client CPU µs"] = sum(one["cpu"] for one in found) / done * 1e6
    run.report.row(what, **columns)
    return rate, rate / bare


def _spent(rig: Rig, found: dict[str, float]) -> dict[str, float]:
    parts: dict[str, Spent] = {"redis": rig.redis}
    if rig.broker is not None:
        parts["broker"] = rig.served
    for name, part in parts.items():
        found[f"{name} cpu"], found[f"{name} waited"] = part.cpu, part.waited
    return found


INGEST = ((1_000, True), (20_000, True), (0, False))
"""Hosts (0: each URL has its own), and whether there is a claim."""


def ingest(run: Run) -> None:
    count = run.count(256_000)
    for hosts, claimed in INGEST:
        mix = f"{hosts:,} hosts, each URL of a batch at another" if hosts else "each at a new host"
        with Rig(broker=True) as rig:
            rounds = []
            for number in range(run.rounds):
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
                rounds.append(_spent(rig, found))
            first = 0 if hosts else run.rounds * count
            bare = _bare_admission(rig, first, count, hosts or 1 << 40, BATCH)
            rate, _ = _row(run, f"ingest, {mix}", "URLs", rounds, bare)
            if claimed:
                text = f"at least {INGEST_LEAST:,.0f} new URLs/s at {hosts:,} hosts"
                run.report.claim(text, rate >= INGEST_LEAST)
            run.look(rig)


def _bare_admission(rig: Rig, first: int, count: int, hosts: int, batch: int) -> float:
    """URLs a second of bare admit calls, of URLs ``first`` … in a crawl of their own."""
    frontier = rig.frontier or rig.inside()
    crawl = rig.crawl("bare")
    task = {"first": first, "count": count, "hosts": hosts, "run": 1, "batch": batch}
    work = list(chunks(task))
    bare = Bare(frontier, rig.server.port)
    calm()
    new = sum(sum(frontier.admit(crawl.id, chunk)) for chunk in work)
    bare.close()
    assert new == count
    return count / bare.seconds


LEASE_TASKS = 250_000
LEASE = ((1_000, 1_000, False), (100_000, 32, False), (1_000, 1_000, True))
"""Hosts, tasks waiting at each, and whether a paused crawl of a million tasks is beside it."""
PAUSED, PAUSED_HOSTS = 1_000_000, 100_000


def lease(run: Run) -> None:
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
            rounds = []
            for number in range(run.rounds):
                found = rig.request(
                    do="lease",
                    round=number,
                    count=run.count(LEASE_TASKS),
                    connections=CONNECTIONS,
                    sessions=SESSIONS,
                    tasks=TASKS,
                )
                assert found["done"] >= run.count(LEASE_TASKS)
                rounds.append(_spent(rig, found))
            bare = _bare_lease(rig, run.count(LEASE_TASKS) // 2)
            rate, _ = _row(run, what, "tasks", rounds, bare)
            run.report.claim(f"at least {LEASE_LEAST:,.0f} tasks/s: {what}", rate >= LEASE_LEAST)
            if rates:
                run.report.claim(
                    f"at least {LEASE_SCALE:g} × the first row: {what}",
                    rate >= LEASE_SCALE * rates[0],
                    f"{rate / rates[0]:.2f} ×",
                )
            rates.append(rate)
            run.look(rig)


def _bare_lease(rig: Rig, count: int) -> float:
    """Tasks a second of bare open, close and finish calls, in the batches of the HTTP client."""
    frontier = rig.inside()
    frontier.start()
    bare = Bare(frontier, rig.server.port)
    calm()
    done = sequence = 0
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
    bare.close()
    return done / bare.seconds


def _settle(frontier: Frontier, request: LeaseRequest) -> int:
    """Lease, close and finish once; returns the number of tasks."""
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
    count, hosts = run.count(640_000) // PAGE_BATCH * PAGE_BATCH, 1_000
    with Rig(broker=False) as rig:
        rounds = []
        for number in range(run.rounds):
            crawl = rig.crawl(f"round{number}")
            found = rig.feed(
                crawl.id,
                count,
                hosts,
                1,
                processes=1,
                batch=PAGE_BATCH,
                greenlets=WRITERS,
                prepared=True,
            )
            assert found["done"] == count
            rounds.append(_spent(rig, found))
        bare = _bare_admission(rig, 0, count, hosts, PAGE_BATCH)
        what = f"admission by a worker, {PAGE_BATCH} URLs a call over {hosts:,} hosts"
        _, ratio = _row(run, what, "URLs", rounds, bare)
        run.report.claim(f"at least {ADMIT_LEAST:g} × bare calls", ratio >= ADMIT_LEAST)
        run.look(rig)


PARTS: dict[str, Callable[[Run], None]] = {
    "seen": seen,
    "waiting": waiting,
    "ingest": ingest,
    "lease": lease,
    "admit": admit,
}


def main(arguments: Sequence[str]) -> int:
    """Run the parts; 0 if every claim holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontier")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    log.configure("bench", "error")  # a node is opened, a listener ends: that is how it goes here
    name = "frontier-quick" if options.quick else "frontier"
    run = Run(
        Report(name, "the frontier: memory, ingest, lease + finish, admission"), options.quick
    )
    for part in options.parts or PARTS:
        PARTS[part](run)
    ms, over, script = run.worst
    run.report.row("slowest script", ms=ms, name=script, over_1_ms=over)
    text = f"no script takes {SCRIPT_LIMIT_MS:g} ms"
    run.report.claim(text, ms < SCRIPT_LIMIT_MS, f"{script} took {ms:.1f} ms" if over else "")
    return run.report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
