"""Looks at everything every few seconds, and keeps the data that the checker needs."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from time import monotonic

import redis

from tests.nemesis import checker
from tests.nemesis.checker import Finding, Hit
from tests.nemesis.parking import Parkings
from tests.nemesis.periods import Calendars
from tests.nemesis.reading import CrawlRow, Sample, sample
from tests.nemesis.world import NODES, World

EVERY_SECONDS = 2.0
FULL_EVERY = 5
"""After this many looks, done crawls are read in full, and the parked URLs of others."""
CONFIRM_SECONDS = 6.0
"""An early end must be seen twice, this far apart, with the same URLs missing."""

ENDED = ("done", "resting")
"""States in which all known URLs are settled."""
ENDS = ("finished", "max_pages")
"""Reasons of ends that a crawl reaches by itself."""


class Watch:
    """A thread. Findings and records may be read after it has stopped, or at any time as copies."""

    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self.world = world
        self.findings: list[Finding] = []
        self.samples: list[Sample] = []
        self.sizes: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        self.crawls: list[CrawlRow] = []
        self.limits: dict[str, int] = {}
        self.trapped: set[str] = set()
        """Names of crawls with traps on."""
        self.parkings = Parkings()
        self.forced: dict[int, list[str]] = {}
        """URLs of all forced batches that were seen, by the number of the batch."""
        self.looks = 0
        self.sql_failures = 0
        self.calendars = Calendars(world, {}, self.find)
        self._suspects: dict[int, tuple[float, set[str]]] = {}
        self._said: set[str] = set()
        self._say = say
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._halt.set()
        self._thread.join(60)

    def find(self, finding: Finding) -> None:
        """Keep the finding, once."""
        if finding.text not in self._said:
            self._said.add(finding.text)
            self.findings.append(finding)
            self._say(f"FINDING {finding.kind}: {finding.text}")

    def _run(self) -> None:
        while not self._halt.wait(EVERY_SECONDS):
            try:
                self.world.revive()
                self.look()
            except Exception as error:  # noqa: BLE001
                self._say(f"! the watch: {type(error).__name__}: {error}")

    def look(self) -> None:
        """Look at everything once."""
        self.looks += 1
        at = monotonic()
        try:
            self.crawls = self.world.sql().crawls()
            self.look_at_forced()
        except OSError:
            self.sql_failures += 1
        active = {crawl.id for crawl in self.crawls if crawl.state == "active"}
        for node in NODES:
            try:
                self.samples.append(sample(node, self.world.master(node).client, active))
            except (redis.RedisError, OSError):
                continue
        for part in list(self.world.parts.values()):
            pid = part.pid
            if pid is not None and (size := part.resident_bytes()):
                self.sizes[part.name, pid].append((at, size))
        try:
            self.calendars.look(
                {crawl.name: crawl.id for crawl in self.crawls if not crawl.deleted}
            )
        except OSError:
            self.sql_failures += 1
        if self.looks % FULL_EVERY == 0:
            self._look_at_crawls()

    def look_at_forced(self) -> None:
        """Keep the forced batches, whose rows do not stay. Raises OSError."""
        self.forced |= self.world.sql().forced()

    def times_forced(self) -> Counter[str]:
        """Return how often each URL was forced or released so far. Raises OSError."""
        self.look_at_forced()
        return Counter(chain.from_iterable(self.forced.values()))

    def _look_at_crawls(self) -> None:
        for crawl in self.crawls:
            if crawl.deleted:
                continue
            try:
                if limit := self.limits.get(crawl.name, 0):
                    stored = self.world.sql().stored(crawl.id)
                    for finding in checker.beyond_limit(crawl.name, stored, limit):
                        self.find(finding)
                if crawl.name in self.trapped:
                    self.parkings.note(crawl.name, self.world.sql().parked(crawl.id))
                if crawl.state in ENDED:
                    self.look_for_early_end(crawl)
            except OSError:
                self.sql_failures += 1

    def look_for_early_end(self, crawl: CrawlRow) -> None:
        """Check whether the announced states are right; raises OSError."""
        began = monotonic()
        calls = self.world.api.calls()
        found = self.world.sql().snapshot(crawl.id)
        if found is None or found.crawl.deleted or found.crawl.state not in ENDED:
            self._suspects.pop(crawl.id, None)
            return
        if found.crawl.state == "done" and found.crawl.reason not in ENDS:
            return
        if any(call.op == "delete" and call.crawl == crawl.name for call in calls):
            return
        seeds = checker.acknowledged_seeds(calls, crawl.name, began)
        missing = checker.owed(found, seeds, self.limits.get(crawl.name, 0))
        since, before = self._suspects.get(crawl.id, (began, missing))
        if not missing or not missing & before:
            self._suspects.pop(crawl.id, None)
            if missing:
                self._suspects[crawl.id] = began, missing
            return
        self._suspects[crawl.id] = since, missing & before
        if began - since >= CONFIRM_SECONDS:
            some = ", ".join(sorted(missing & before)[:3])
            text = (
                f"crawl {crawl.name} is {crawl.state}, and not settled are {len(missing)}: {some}"
            )
            if f"early {crawl.id}" not in self._said:
                self._said.add(f"early {crawl.id}")
                self.find(Finding("early", text, began))


def read_log(path: Path) -> list[Hit]:
    """Return all requests so far."""
    with path.open() as log:
        return [Hit.read(line) for line in log if line.endswith("\n")]
