"""One run: the world, its schedule, its healing, and the verdict."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import redis

from tests.nemesis import checker, parking, periods, reading, refetches, site
from tests.nemesis.api import Call
from tests.nemesis.checker import Finding, Hit, Span, Stillness
from tests.nemesis.faults import Done, Strokes
from tests.nemesis.reading import CrawlRow, Snapshot, waiting
from tests.nemesis.refetches import Harm, LeaseWatch, harms_of
from tests.nemesis.schedule import DELAY_SECONDS, OPERATIONS, Schedule
from tests.nemesis.watch import CONFIRM_SECONDS, Watch, read_log
from tests.nemesis.world import (
    BROKERS,
    NODES,
    REQUEST_SECONDS,
    WORKERS,
    World,
)

STOP_SECONDS = 120.0
"""Crawls that begin again are stopped when they rest; this long after healing, also within a
period."""
QUIET_SECONDS = 130.0
"""If there is no request for this long after healing, crawls that are not done will not end. But a
task may still be tried later, for example if a busy machine answered too late for robots.txt."""
END_SECONDS = 720.0
"""The longest time after healing: URLs that wait for robots.txt wait for ten minutes."""
NEAR_SECONDS = 15.0
"""A finding names the faults that ended within this time before it."""
LIFT_SECONDS = 10.0
"""The time between two rounds in which paused crawls are resumed and blocks removed."""
NODE_RECOVERS_SECONDS = REQUEST_SECONDS + 12 + 20
"""In addition to the duration of a lease: the time that a node may rest after it was taken over, or
found again."""
RECOVERS_SECONDS = 15.0
EXPLAINED_DEATHS = ("timeout", "reset", "robots_unreachable", "process_death", "stalled", "login")
"""Effects of freezing and killing workers on URLs of healthy targets."""

Say = Callable[[str], None]


@dataclass
class Report:
    """The result of one run."""

    seed: int
    findings: list[Finding] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the report for a person, in one line."""
        done = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        left = sum(self.skipped.values())
        kinds = Counter(finding.kind for finding in self.findings)
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "clean"
        figures = " ".join(f"{name}={value:g}" for name, value in self.figures.items())
        return f"seed {self.seed}: {said}; faults: {done or 'none'} ({left} skipped); {figures}"

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.__dict__, default=asdict, indent=1) + "\n")


def run(schedule: Schedule, folder: Path, root: Path, say: Say) -> Report:
    """Raises CannotRun; raises KeyboardInterrupt after everything was stopped."""
    with World(folder, root, schedule.store, schedule.lease_seconds) as world:
        world.start()
        return _Run(schedule, world, say).go()


class _Run:
    def __init__(self, schedule: Schedule, world: World, say: Say) -> None:
        self.schedule, self.world, self.say = schedule, world, say
        self.began = time.monotonic()
        self.watch = Watch(world, self.tell)
        self.leases = LeaseWatch(world)
        self.strokes = Strokes(world, self.tell)
        self.report = Report(schedule.seed, notes=list(world.notes))
        recrawls: dict[str, object] = {
            event.arguments["crawl"]: event.arguments["recrawl"]["depth"]
            for event in schedule.events
            if "recrawl" in event.arguments
        }
        self.watch.calendars.crawls = recrawls
        self.cut_short: set[str] = set()
        """Crawls that were stopped in the middle of a period, since no period ended for long."""
        self.stopped: set[str] = set()
        """Crawls that were stopped so that they end: they are paused until nothing is leased."""
        for event in schedule.events:
            if limit := event.arguments.get("max_pages", 0):
                self.watch.limits[event.arguments["crawl"]] = limit
            graph = site.graph_of(f"/{event.arguments.get('graph')}/")
            if graph is not None and "t" in graph.extras:
                self.watch.trapped.add(event.arguments["crawl"])

    def tell(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.1f}  {text}")

    def go(self) -> Report:
        self.watch.start()
        self.leases.start()
        try:
            self._strike()
            healed = self._heal()
            ended = self._until_done(healed)
        finally:
            self.watch.stop()
            self.leases.stop()
        self._judge(healed, ended)
        return self.report

    def _strike(self) -> None:
        for event in self.schedule.events:
            time.sleep(max(0.0, self.began + event.at - time.monotonic()))
            self.tell(str(event).split("s  ", 1)[1])
            self.strokes.strike(event)
        time.sleep(max(0.0, self.began + self.schedule.seconds - time.monotonic()))

    def _heal(self) -> float:
        self.tell("healing")
        self.strokes.finish(60)
        self.world.heal()
        for node in NODES:
            with suppress(OSError):
                self._up_again(node)
        return time.monotonic()

    def _up_again(self, node: str) -> None:
        """Wait for a node. If it refuses its own file, an operator starts it empty."""
        part = self.world.master(node)
        try:
            part.until_up()
        except redis.RedisError:
            why = f"node {node} was started empty: {part.last_words()}"
            self.tell(why)
            self.report.notes.append(why)
            self.strokes.empty(node, time.monotonic() - self.began)
            part.until_up()

    # -- the end

    def _open(self) -> list[CrawlRow]:
        """Return crawls that must end and have not."""
        rows = self.world.sql().crawls()
        return [row for row in rows if not row.deleted and row.state != "done"]

    def _stop_resting(self, left: Sequence[CrawlRow], healed: float) -> None:
        """Stop crawls that begin again when they rest after a period without a fault."""
        late = time.monotonic() - healed > STOP_SECONDS
        for row in left:
            if row.name not in self.watch.calendars.crawls:
                continue
            plan = periods.read(self.world.sql(), row.id)
            if plan is None or not plan.periods:
                continue
            if not periods.rests_after(plan, healed):
                whole = any(p.started > healed and p.ended for p in plan.periods)
                if not (late and whole):
                    continue
                self.cut_short.add(row.name)
            if self.watch.calendars.all_pages(row.name):
                for finding in periods.findings(plan, periods.broken(plan), time.monotonic()):
                    self.watch.find(finding)
            self.watch.calendars.plans[row.name] = plan
            self.stopped.add(row.name)
            self.world.api.call(BROKERS[int(time.monotonic()) % len(BROKERS)], "stop", row.name)

    def _until_done(self, healed: float) -> bool:
        """Resume and unblock whatever is held, as an operator does, and wait for all ends."""
        log = self.world.target_log
        moved, size, told, lifted = healed, 0, 0.0, 0.0
        while True:
            now = time.monotonic()
            if log.stat().st_size != size:
                moved, size = now, log.stat().st_size
            with suppress(OSError):
                left = self._open()
                if not left:
                    self.report.figures["seconds_to_end"] = round(now - healed, 1)
                    return True
                self._stop_resting(left, healed)
                if now - lifted > LIFT_SECONDS:
                    lifted = now
                    self._let_go(left)
                if now - told > 15:
                    told = now
                    states = ", ".join(f"{row.name} {row.state}" for row in left[:8])
                    self.tell(f"{len(left)} crawls to end: {states}")
            quiet = now - moved > QUIET_SECONDS and not self._retries_wait()
            if quiet or now - healed > END_SECONDS:
                return False
            time.sleep(1.0)

    def _retries_wait(self) -> bool:
        with suppress(redis.RedisError, OSError):
            return any(reading.retries_wait(self.world.master(node).client) for node in NODES)
        return False

    def _let_go(self, left: Sequence[CrawlRow]) -> None:
        api = self.world.api
        broker = BROKERS[int(time.monotonic()) % len(BROKERS)]
        for row in left:
            if row.state == "paused" and row.name not in self.stopped:
                api.call(broker, "resume", row.name)
        now_ms = time.time() * 1000
        for host, until_ms in self.world.sql().blocked().items():
            if until_ms > now_ms:
                api.ask(broker, "PATCH", f"/v1/hosts/{host}", {"block": 0}, 5)

    # -- the verdict

    def _judge(self, healed: float, ended: bool) -> None:
        until = time.monotonic()
        hits = read_log(self.world.target_log)
        calls = self.world.api.calls()
        spans = self._spans()
        for finding in checker.impolite(hits, DELAY_SECONDS):
            self.watch.find(finding)
        rows = {row.id: row for row in self.world.sql().crawls() if not row.deleted}
        snapshots = [found for i in rows if (found := self.world.sql().snapshot(i)) is not None]
        if ended:
            self._judge_waiting()
        else:
            self._missing_end(snapshots)
        seen = self.watch.parkings
        for found in snapshots:
            seen.note(found.crawl.name, found.parked)
        self._judge_crawls(snapshots, calls, ended)
        allowed = self._allowed(calls)
        died = {part.name: part.ended for part in self.world.parts.values()}
        harms = harms_of(self.strokes.done, died, self.schedule.lease_seconds)
        parked = seen.hits(time.time() - time.monotonic())
        names = {found.crawl.name for found in snapshots}
        turns, forced, passed = self._judge_periods(hits, until, calls, names)
        beyond, count = refetches.judge(
            hits, self.leases.leases, harms, allowed, parked, turns, forced
        )
        for finding in (*beyond, *passed, *self._unasked(snapshots, calls, hits, harms)):
            self.watch.find(finding)
        self.report.figures |= {"asked_again": count.asked_again, "of_leased": count.leased}
        looks = self.watch.samples
        for finding in Stillness(spans).judge(looks, hits, healed):
            self.watch.find(finding)
        for finding in checker.wandering(looks, spans):
            self.watch.find(finding)
        self._judge_promises(rows, calls)
        for (name, _), sizes in self.watch.sizes.items():
            for finding in checker.growth(name, sizes):
                self.watch.find(finding)
        self._account(hits, snapshots)

    def _missing_end(self, snapshots: Sequence[Snapshot]) -> None:
        """Keep a node's data at that time as ``end-A.rdb``: it shows which hosts wait, and for
        what."""
        for node in NODES:
            self.world.master(node).copy(self.world.folder / f"end-{node}.rdb")
        for found in snapshots:
            if found.crawl.state != "done":
                stats = self.world.api.ask("b1", "GET", f"/v1/stats?crawl={found.crawl.name}")[1]
                row = found.crawl
                text = f"crawl {row.name} is {row.state} long after healing: {stats}"
                self.watch.find(Finding("missing end", text, time.monotonic()))

    def _judge_waiting(self) -> None:
        """Find unsettled URLs that wait in a done crawl, unless the crawl is reopened soon.

        Settled URLs may wait in a node that was set back to an older copy.
        """
        limit = time.monotonic() + CONFIRM_SECONDS
        while True:
            rows = self.world.sql().crawls()
            done = {row.id: row for row in rows if row.state == "done" and not row.deleted}
            finished = {i for i, row in done.items() if row.reason == "finished"}
            found: dict[int, set[str]] = {}
            for node in NODES:
                for crawl, urls in waiting(self.world.master(node).client, finished).items():
                    found.setdefault(crawl, set()).update(urls)
            for crawl, urls in found.items():
                snapshot = self.world.sql().snapshot(crawl)
                if snapshot is not None:
                    urls -= snapshot.pages.keys() | snapshot.finals.keys()
                    urls -= set(filter(site.is_guess, urls))
            if not any(found.values()):
                return
            if time.monotonic() > limit:
                break
            time.sleep(1.0)
        for crawl, urls in found.items():
            if urls:
                some = ", ".join(sorted(urls)[:3])
                text = f"crawl {done[crawl].name} is done, and {len(urls)} URLs wait for it: {some}"
                self.watch.find(Finding("early", text, time.monotonic()))

    def _judge_crawls(
        self, snapshots: Sequence[Snapshot], calls: Sequence[Call], ended: bool
    ) -> None:
        dropped = {call.crawl for call in calls if call.op == "delete"}
        created = {call.crawl for call in calls if call.op == "create" and call.acknowledged}
        present = {found.crawl.name for found in snapshots}
        for name in sorted(created - present - dropped):
            self.watch.find(Finding("promise", f"crawl {name} was acknowledged and is not there"))
        for name in sorted(present):
            if checker.deleted(calls, name):
                self.watch.find(Finding("promise", f"crawl {name} was deleted and is there"))
        for found in snapshots:
            name = found.crawl.name
            limit = self.watch.limits.get(name, 0)
            for finding in checker.beyond_limit(name, found.stored, limit):
                self.watch.find(finding)
            if name in dropped:
                continue
            seeds = checker.acknowledged_seeds(calls, name, float("inf"))
            missing = checker.owed(found, seeds, limit)
            if missing and name not in self.cut_short and (ended or found.crawl.state == "done"):
                some = ", ".join(sorted(missing)[:4])
                text = f"crawl {name} ({found.crawl.state}): {len(missing)} URLs: {some}"
                self.watch.find(Finding("lost", text, time.monotonic()))
            for finding in checker.odd_deaths(found, EXPLAINED_DEATHS):
                self.watch.find(finding)
            for finding in parking.judge(found, self.watch.parkings, calls, limit):
                self.watch.find(finding)

    def _unasked(
        self,
        snapshots: Sequence[Snapshot],
        calls: Sequence[Call],
        hits: Sequence[Hit],
        harms: Sequence[Harm],
    ) -> Iterator[Finding]:
        times = [(one.begin, one.end) for one in harms]
        dropped = {call.crawl for call in calls if call.op == "delete"}
        for found in snapshots:
            name = found.crawl.name
            if name not in dropped and name not in self.watch.limits:
                seeds = checker.acknowledged_seeds(calls, name, float("inf"))
                yield from checker.unasked(found, seeds, hits, times)

    def _judge_periods(
        self, hits: Sequence[Hit], until: float, calls: Sequence[Call], names: set[str]
    ) -> tuple[dict[str, list[float]], set[str], list[Finding]]:
        """Return when places may be requested once more; which of them a period forces; and what
        was passed over in periods that had ended when the log was read, at ``until``."""
        calendars = self.watch.calendars
        turns: dict[str, list[float]] = {}
        forced: set[str] = set()
        seeds: dict[str, list[str]] = {}
        for name, plan in calendars.plans.items():
            seeds[name] = [
                url
                for call in calls
                if (call.op, call.crawl) == ("create", name)
                for url in call.asked
            ]
            last = periods.read(self.world.sql(), plan.id) or plan
            calendars.plans[name] = last
            all_pages = calendars.all_pages(name)
            turns |= (mine := periods.turns(last, seeds[name], all_pages=all_pages))
            forced |= set() if all_pages else mine.keys()
            if name in self.cut_short:  # nothing can be said about its last period
                calendars.plans[name] = last = replace(last, periods=last.periods[:-1])
            calendars.plans[name] = last.ended_by(until)
        self.report.figures |= {
            "periods": sum(len(plan.periods) for plan in calendars.plans.values()),
            "calendar_looks": calendars.looks,
        }
        failed = self.world.sql().retried()
        return turns, forced, periods.judge_log(calendars, hits, seeds, failed, names)

    def _judge_promises(self, rows: dict[int, CrawlRow], calls: Sequence[Call]) -> None:
        pauses = {
            i: checker.pauses_of(calls, row.name, time.monotonic()) for i, row in rows.items()
        }
        for finding in checker.leased_while_paused(self.watch.samples, pauses):
            self.watch.find(finding)

    def _allowed(self, calls: Sequence[Call]) -> dict[str, int]:
        """Return further requests by host and path: forced, released, or failed."""
        found: Counter[str] = Counter()
        for call in calls:
            if call.op == "seed":
                for url in call.asked:
                    found[_place(url)] += 1
        for url, count in self.world.sql().retried().items():
            found[_place(url)] += count
        found += self.watch.parkings.released(calls)
        # some URLs were parked between two looks
        for url, count in self.watch.times_forced().items():
            found[_place(url)] = max(found[_place(url)], count)
        for url in self.world.sql().surplus():
            found.setdefault(_place(url), 0)
        return dict(found)

    def _account(self, hits: Sequence[Hit], snapshots: Sequence[Snapshot]) -> None:
        report = self.report
        report.findings = [self._placed(finding) for finding in self.watch.findings]
        for done in self.strokes.done:
            kind = done.event.kind
            if kind in OPERATIONS:
                report.operations[kind] += 1
            elif done.skipped:
                report.skipped[kind] += 1
                report.notes.append(f"{done.event}: skipped, {done.skipped}")
            else:
                report.faults[kind] += 1
        acknowledged = sum(call.acknowledged for call in self.world.api.calls())
        report.figures |= {
            "requests": len(hits),
            "crawls": len(snapshots),
            "pages": sum(len(found.pages) for found in snapshots),
            "dead": sum(state == "dead" for one in snapshots for state, _ in one.finals.values()),
            "parked": sum(map(len, self.watch.parkings.by_crawl.values())),
            "calls_acknowledged": acknowledged,
            "calls": len(self.world.api.calls()),
            "ended_by_themselves": sum(len(p.ended) for p in self.world.parts.values()),
        }

    def _placed(self, finding: Finding) -> Finding:
        """Return findings with the time since the start, and the faults at that time or shortly
        before."""
        at = round(finding.at - self.began, 1) if finding.at else 0.0
        near = [
            str(done.event).strip()
            for done in self.strokes.done
            if done.event.is_fault
            and not done.skipped
            and done.began < finding.at
            and (done.over or finding.at) > finding.at - NEAR_SECONDS
        ]
        return Finding(finding.kind, finding.text, at, tuple(near) if finding.at else ())

    def _spans(self) -> list[Span]:
        """Return when something was broken, with the time that recovery may take."""
        spans: list[Span] = []
        for done in self.strokes.done:
            if done.event.is_fault and not done.skipped:
                spans += spans_of(done, self.schedule.lease_seconds)
        return spans


def _place(url: str) -> str:
    host, _, path = url.removeprefix("http://").partition("/")
    return f"{host.partition(':')[0]}/{path}"


def spans_of(done: Done, lease_seconds: float) -> list[Span]:
    """Return what a fault concerns, and for how long. A full memory concerns no node: leasing goes
    on."""
    event, arguments = done.event, done.event.arguments
    end = done.over or float("inf")
    place = str(
        arguments.get("part") or arguments.get("link") or arguments.get("node")
        or arguments.get("place") or "sql"
    )  # fmt: skip
    what = str(event)
    node_recovers = NODE_RECOVERS_SECONDS + lease_seconds

    def span(nodes: tuple[str, ...], recovers: float, *, hosts_only: bool = False) -> Span:
        return Span(done.began, end + recovers, nodes, hosts_only, what)

    if event.kind in ("memory", "copy"):
        return [span((), 0.0)]
    client, _, server = place.partition("-")
    node = server[:1] if server[:1] in NODES else client[:1]
    if event.kind == "promote":
        # A worker that is left with the minority has no other broker.
        return [span((arguments["node"],), node_recovers), span(NODES, 20, hosts_only=True)]
    if node in NODES:
        single = [span(NODES, RECOVERS_SECONDS, hosts_only=True)]
        return [span((node,), node_recovers), *single]
    if client in WORKERS and not done.holds_sql:
        return [span(NODES, RECOVERS_SECONDS + lease_seconds, hosts_only=True)]
    sql = client == "sql" or done.holds_sql
    return [span(NODES, RECOVERS_SECONDS + node_recovers * sql)]
