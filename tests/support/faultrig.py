"""The rig of ``make faults``: a crawl of a synthetic web, harm done to it, and a verdict.

A :class:`Fault` says what is harmed and how; :func:`run` starts the web, Redis, a broker and a
worker in a folder, seeds, waits until enough is at stake, calls ``inflict``, which does the harm,
waits for the end of the crawl and judges. ``inflict`` strikes inside ``with rig.blow("what"):``,
once or more often. Entering counts what is at stake – leased tasks, and those of them that are not
in SQL – so Redis must still answer then; leaving says that the harm is over, and the clock of
recovery starts. A run fails if it has no blow, or if too little was at stake at a blow.

    def kill_the_worker(rig: Rig) -> None:
        with rig.blow("kill -9"):
            rig.system.kill("worker")
            rig.system.start_worker()

    FAULT = Fault("worker killed", kill_the_worker, mechanism="session deadline")
    result = run(FAULT, folder)

Every run must keep these rules: each page of the web is stored; nothing is fetched again beyond
``Fault.refetched``; no host is asked too soon or twice at the same time; the end of the crawl is
announced, but not before everything is stored and nothing is leased; and no request follows this
end. ``Fault.check`` adds what only this fault must show.

``make faults`` runs rows: a module of them has ``ROWS: dict[int, Row]``, by the row's number in the
table. A row may run several faults, or one with and one without harm, and returns one result.
"""

from __future__ import annotations

import http.client
import sqlite3
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
import redis

from greencrawl.broker.frontier.scripts.partition import task_of
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.site_server import Hit
from tests.support.system import System, alive, wait_until
from tests.support.web import Web, WebSpec

LEAST_LEASES = 200
REPETITIONS = 5
"""A fault that came when too little was at stake is repeated at most this often; it does harm
nevertheless."""
CALM_SECONDS = 1.0
"""How long the web is watched after "done" for a request that should not come."""

Say = Callable[[str], None]
"""A function that takes a line of progress."""


@dataclass(frozen=True)
class Fault:
    """A row of the table. Durations in seconds.

    ``mechanism`` says, for the table, what makes the fault harmless; ``inflict`` does the harm.
    ``rows`` are the row's numbers in the table. ``web`` is crawled at ``delay`` from ``seeds``
    first pages; ``settings`` and ``redis_options`` are passed to processes and to redis-server. The
    rig calls ``inflict`` when the share ``after`` of the pages was requested, ``least_leases``
    tasks are leased and some of them are not in SQL. ``prepare`` runs before anything but the web
    is started: it may replace ``rig.redis``, add to ``rig.settings``, and put what is to be closed
    on ``rig.stack``. ``seeds_extra`` are further URLs to seed.

    ``refetched`` says which URLs may be fetched again: "none", "leased" (a URL at most once for
    each blow at which it was leased, so count what is at stake when the harm is done, not before)
    or "any". ``check`` returns findings beyond the common ones, ``recovered`` returns the seconds
    to recover if :meth:`Rig.recovered` measures something else. ``least_leases`` holds for each
    blow. ``done_seconds`` is how long the end of the crawl is awaited after ``inflict``.
    """

    name: str
    inflict: Callable[[Rig], None]
    mechanism: str
    rows: tuple[int, ...] = ()
    web: WebSpec = field(default_factory=WebSpec)
    delay: float = 0.02
    seeds: int = 100
    after: float = 0.1
    crawl_options: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    redis_options: tuple[str, ...] = ()
    prepare: Callable[[Rig], None] | None = None
    seeds_extra: Callable[[Rig], Sequence[str]] | None = None
    refetched: Literal["none", "leased", "any"] = "leased"
    check: Callable[[Rig], list[str]] | None = None
    recovered: Callable[[Rig], float | None] | None = None
    least_leases: int = LEAST_LEASES
    done_seconds: float = 120.0


@dataclass(frozen=True)
class Leased:
    """A task under a lease, from its session's record in Redis."""

    session: str
    token: str
    number: int
    url: str
    host: str


@dataclass
class Blow:
    """What was at stake when a fault began, and when it was over (``time.monotonic()``)."""

    what: str
    at: float
    leased: list[Leased]
    uncommitted: set[str]
    over: float = 0.0
    leasing_again: float | None = None
    counts: bool = True

    @property
    def tokens(self) -> set[str]:
        """Return the tokens of the sessions that were open."""
        return {task.token for task in self.leased}


@dataclass
class Result:
    """A line of the table. ``leases_out`` and ``uncommitted`` are the least of all blows.

    ``seconds_to_recover`` is the worst blow's; None where no request was left to make.
    ``seconds_to_settle`` run from the end of the last blow until what was uncommitted is in SQL.
    ``announced`` says that the crawl was done in the end, ``early`` what was then outstanding.
    ``why_not`` is empty if and only if it passed.
    """

    name: str
    rows: tuple[int, ...]
    mechanism: str
    urls: int = 0
    blows: int = 0
    leases_out: int = 0
    uncommitted: int = 0
    lost: int = 0
    refetched: int = 0
    impolite: int = 0
    seconds_to_recover: float | None = None
    seconds_to_settle: float | None = None
    seconds: float = 0.0
    announced: bool = False
    early: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    why_not: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.why_not


class Rig:
    """The parts under one fault: ``web``, ``redis``, ``system``. ``notes`` go into the result.

    ``settings`` are settings of the processes, in addition to those of ``System``.
    """

    def __init__(self, fault: Fault, folder: Path, say: Say = print) -> None:
        self.fault = fault
        self.folder = folder
        self.say = say
        self.stack = ExitStack()
        self.notes: dict[str, Any] = {}
        self.blows: list[Blow] = []
        self.settings = {
            "lease_seconds": "2",
            "request_seconds": "1",
            "stall_seconds": "60",
            **fault.settings,
        }
        self.web = Web(fault.web, folder / "web.log")
        self.redis = RedisServer(folder / "redis", None, *fault.redis_options)
        self.addresses: list[str] = []
        """The addresses that Greencrawl gets for Redis; empty: ``redis`` itself."""
        self.system: System
        self.done_at = 0.0
        self._began = time.monotonic()
        self._findings: list[str] = []
        self._early = ""
        self._pages: set[str] = set()
        self._last_page = 0
        self._trigger = folder.absolute() / "die"
        self._looked = 0.0
        self._settled_at = 0.0

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    # -- the run

    def start(self) -> None:
        """Start web, Redis, broker and worker, and seed."""
        fault = self.fault
        self.stack.enter_context(self.web)
        if fault.prepare is not None:
            fault.prepare(self)
        self.stack.callback(self._stop_redis)
        if self.redis.process is None:
            self.redis.start()
        given: dict[str, Any] = self.settings
        self.system = self.stack.enter_context(
            System(self.folder, self.addresses or [self.redis.url], **given)
        )
        self.start_system()
        extra = fault.seeds_extra(self) if fault.seeds_extra is not None else ()
        options: dict[str, Any] = {"delay": fault.delay, "scope": "any", **fault.crawl_options}
        self.system.crawl([*self.web.seeds(fault.seeds), *extra], **options)

    def start_system(self) -> None:
        """Start broker and worker."""
        self.system.start()

    def until_at_stake(
        self, times: float = 1.5, after: float | None = None, seconds: float = 60
    ) -> None:
        """Wait until ``after`` and ``least_leases`` of the :class:`Fault` are reached, with
        ``times`` as many leases, because some will be gone when the blow falls. For the same reason
        at least a quarter of that number must not be in SQL yet.
        """
        pages = (self.fault.after if after is None else after) * self.fault.web.pages
        least = self.fault.least_leases * times

        def enough() -> bool:
            if self.web.requests() < pages:
                return False
            leased = self.leased()
            return len(leased) >= least and len(self.uncommitted(leased)) >= least / 4

        wait_until(enough, seconds, "enough is at stake", every=0.02)

    def armed(self, point: str) -> str:
        """Return the setting of a process that is to die at ``point`` once :meth:`die` was called;
        "" stays ""."""
        return f"{point}@{self._trigger}" if point else ""

    def die(self, process: psutil.Process, after: float | None = None, seconds: float = 60) -> None:
        """Wait for twice the leases needed, and then for the death of the :meth:`armed` process."""
        self.until_at_stake(2, after)
        self._trigger.touch()
        try:
            wait_until(
                lambda: not alive(process), seconds, "a process dies at its point", every=0.005
            )
        finally:
            self._trigger.unlink()

    @contextmanager
    def blow(self, what: str) -> Iterator[Blow]:
        """Do harm inside of this block; see the module's text."""
        leased = self.leased()
        blow = Blow(what, time.monotonic(), leased, self.uncommitted(leased))
        self.blows.append(blow)
        self.say(f"{what}: {len(leased)} leased, {len(blow.uncommitted)} uncommitted")
        yield blow
        blow.over = time.monotonic()

    def find(self, finding: str) -> None:
        """Add a finding against the fault."""
        self._findings.append(finding)

    def until_leasing(self, known: Iterable[str] = (), seconds: float = 60) -> None:
        """Wait for the first session whose token is neither of the last blow nor ``known`` – those
        that an older Redis still had –, or for the crawl's end.

        The result's seconds to recover then run until there: after harm to Redis, requests under
        older leases go on for a while and say nothing.
        """
        blow = self.blows[-1]
        old = blow.tokens.union(known)

        def leasing() -> bool:
            try:
                return bool({task.token for task in self.leased()} - old)
            except redis.RedisError:
                return False

        wait_until(lambda: leasing() or self.state() == "done", seconds, "leasing goes on")
        blow.leasing_again = time.monotonic()

    def must_repeat(self) -> bool:
        """Return whether less than :attr:`Fault.least_leases` was at stake at the last blow. Such a
        blow does not count and is repeated: a process dies only when it reaches its point, and
        leases may have been finished meanwhile. After some repetitions the run fails.
        """
        blow = self.blows[-1]
        enough = len(blow.leased) >= self.fault.least_leases and blow.uncommitted
        if enough or self.notes.get("blows repeated", 0) >= REPETITIONS:
            return False
        blow.counts = False
        self.notes["blows repeated"] = self.notes.get("blows repeated", 0) + 1
        return True

    def until_done(self) -> None:
        """Wait for the announced end, and check at once whether it was too early. One call is
        enough."""
        if self.done_at:
            return
        seconds, said = self.fault.done_seconds, time.monotonic()
        limit = said + seconds
        while self.state() != "done":
            now = time.monotonic()
            self._look_for_settled()
            if now > limit:
                self._findings.append(f"the end was not announced within {seconds:g} s")
                self.notes["stats"] = self.stats()
                return
            if now - said > 5:
                said = now
                self.say(f"{self.web.requests()} requests, {self.stats_line()}")
            time.sleep(0.05)
        self.done_at = time.monotonic()
        self._look_for_settled()
        missing, leased = len(self.lost()), len(self.leased())
        if missing or leased:
            self._early = f"{missing} pages not stored, {leased} tasks leased"
        time.sleep(CALM_SECONDS)
        if self.state() != "done":
            self._early += f"; then {self.state() or 'no answer'}"

    def _look_for_settled(self) -> None:
        """Note when all that was at stake at the last blow is in SQL; looks a few times a second,
        since it reads all URLs.
        """
        now = time.monotonic()
        if not self.blows or self._settled_at or now - self._looked < 0.3:
            return
        self._looked = now
        if not self.blows[-1].uncommitted - self.settled():
            self._settled_at = time.monotonic()

    def judge(self) -> Result:
        """Read everything again, and return the verdict."""
        fault, hits = self.fault, self.hits()
        result = Result(fault.name, fault.rows, fault.mechanism, fault.web.pages)
        result.why_not += self._findings
        lost, impolite = sorted(self.lost()), oracle.impolite(hits, fault.delay)
        result.lost, result.impolite = len(lost), len(impolite)
        if lost:
            result.why_not.append(f"{len(lost)} lost:\n{oracle.shown(lost)}")
        if impolite:
            result.why_not.append(f"{len(impolite)} impolite:\n{oracle.shown(impolite)}")
        self._judge_end(result, hits)
        self._judge_blows(result)
        self._judge_refetched(result, hits)
        if fault.recovered is not None:
            result.seconds_to_recover = fault.recovered(self)
        else:
            result.seconds_to_recover = self.recovered(hits)
        if self._settled_at:
            result.seconds_to_settle = self._settled_at - self.blows[-1].over
        if fault.check is not None:
            result.why_not += fault.check(self)
        result.settings = {"delay": fault.delay, **self.settings}
        result.notes = self.notes
        result.seconds = time.monotonic() - self._began
        return result

    def _judge_end(self, result: Result, hits: Sequence[Hit]) -> None:
        result.announced, result.early = bool(self.done_at), self._early
        late = [hit for hit in hits if self.done_at and hit.arrived > self.done_at]
        if late:
            result.early += f"; {len(late)} requests followed, the first for {late[0].target}"
        if result.early:
            result.why_not.append(f"the end was announced early: {result.early}")

    def _judge_blows(self, result: Result) -> None:
        blows = [blow for blow in self.blows if blow.counts]
        result.blows = len(blows)
        result.leases_out = min((len(blow.leased) for blow in blows), default=0)
        result.uncommitted = min((len(blow.uncommitted) for blow in blows), default=0)
        if result.leases_out < self.fault.least_leases:
            result.why_not.append(f"only {result.leases_out} leases out when a blow fell")
        if not result.uncommitted:
            result.why_not.append("no uncommitted work when a blow fell")

    def _judge_refetched(self, result: Result, hits: Iterable[Hit]) -> None:
        again = {url: n - 1 for url, n in self.requests(hits).items() if n > 1}
        result.refetched = sum(again.values())
        if self.fault.refetched == "any":
            return
        allowed: Counter[str] = Counter()
        if self.fault.refetched == "leased":
            for blow in self.blows:
                allowed.update({task.url for task in blow.leased})
        findings = [
            f"{url} refetched {n} times, allowed are {allowed[url]}"
            for url, n in again.items()
            if n > allowed[url]
        ]
        if findings:
            result.why_not.append(f"{len(findings)} refetched:\n{oracle.shown(findings)}")

    def recovered(self, hits: Iterable[Hit]) -> float | None:
        """Return the longest time from the end of a fault to the next request (or, if it was waited
        for, to the next lease); None if nothing followed."""
        arrivals = sorted(hit.arrived for hit in hits)
        waits = []
        for blow in self.blows:
            until = blow.leasing_again or next((at for at in arrivals if at > blow.over), None)
            if until is not None:
                waits.append(until - blow.over)
        return max(waits, default=None)

    # -- queries at any time

    def hits(self) -> list[Hit]:
        """Return requests at the hosts that count: not the tarpits."""
        pits = set(self.web.spec.addresses[self.web.spec.hosts :])
        return [hit for hit in self.web.hits() if hit.address not in pits]

    def requests(self, hits: Iterable[Hit]) -> Counter[str]:
        """Return requests by URL, without robots.txt and 429: neither is a fetch of the page."""
        counted = (hit for hit in hits if hit.status != 429)
        return oracle.requests_of(counted, self.web.port)

    def leased(self) -> list[Leased]:
        """Return tasks under a lease, from the session records themselves (``frontier/keys.py``).

        Raises redis.RedisError while Redis is away.
        """
        with closing(self.redis.client) as client:
            names = list(client.scan_iter("gc:{*}:s:*", count=1000))
            pipe = client.pipeline(transaction=False)
            for name in names:
                pipe.hgetall(name)
            found = zip(names, pipe.execute(), strict=True)
            return [task for name, record in found for task in _tasks(name, record)]

    def uncommitted(self, leased: Iterable[Leased] | None = None) -> set[str]:
        """Return leased URLs without a page and a final state in SQL."""
        given = self.leased() if leased is None else leased
        return {task.url for task in given} - self.settled()

    def lost(self) -> set[str]:
        """Return pages of the web that are not in SQL (yet)."""
        self._pages, self._last_page = set(), 0
        return self.web.expected() - self.settled()

    def settled(self) -> set[str]:
        """Return URLs with a page or a final state in SQL, read without the store's own code.

        Only pages since the last call are read: a page is never deleted.
        """
        path = self.folder / "data" / "content.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            fresh = database.execute("SELECT id, url FROM pages WHERE id > ?", [self._last_page])
            for number, url in fresh:
                self._last_page = max(self._last_page, number)
                self._pages.add(url)
            finals = {url for (url,) in database.execute("SELECT url FROM finals")}
        return self._pages | finals

    def stats(self) -> dict[str, Any]:
        """Return the crawl's counters; {} while the broker does not answer."""
        with suppress(urllib.error.URLError, OSError, http.client.HTTPException):
            return self.system.stats()
        return {}

    def stats_line(self) -> str:
        """Return the counters that show the progress, for a line."""
        stats = self.stats()
        wanted = ("state", "waiting", "leased", "later", "stored")
        return ", ".join(f"{name} {stats[name]}" for name in wanted if name in stats) or "no answer"

    def state(self) -> str:
        """Return ``active``, ``done`` …; "" while the broker does not answer."""
        return str(self.stats().get("state", ""))

    def _stop_redis(self) -> None:
        self.redis.stop()


def _tasks(name: str, record: Mapping[str, str]) -> Iterator[Leased]:
    partition = name[name.index("{") + 1 : name.index("}")]
    token = name.rpartition(":")[2]
    for key, value in record.items():
        if key[0] == "t" and key[1:].isdigit():
            task = task_of(int(key[1:]), record["host"], value)
            host = record["host"]
            yield Leased(f"{partition}/{host}", token, task.number, task.url, host)


Row = Callable[[Path, Say, bool], Result]
"""A function that runs a row of the table in a folder, and prints its progress; True: with a
smaller web."""


def run(fault: Fault, folder: Path, say: Say = print, rig_type: type[Rig] = Rig) -> Result:
    """Run one fault in ``folder``. Errors in the rig itself count against the fault."""
    with rig_type(fault, folder, say) as rig:
        try:
            rig.start()
            rig.until_at_stake()
            fault.inflict(rig)
            rig.until_done()
            return rig.judge()
        except (AssertionError, OSError, redis.RedisError, http.client.HTTPException) as error:
            result = Result(fault.name, fault.rows, fault.mechanism)
            notes = "\n".join(getattr(error, "__notes__", ()))
            result.why_not.append(f"{type(error).__name__}: {error}\n{notes}".strip())
            result.notes = rig.notes
            return result
