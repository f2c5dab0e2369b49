"""The functions that judge a run: they get logs, snapshots and the ledger of calls, and return
findings; they change nothing.

``test_checker.py`` shows that each of them can fail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from tests.nemesis import site
from tests.nemesis.api import Call
from tests.nemesis.reading import Sample, Snapshot

CLOCK_ERROR_SECONDS = 0.02
"""The error of the targets' log, at most."""
PAUSE_GRACE_SECONDS = 3.0
"""Time for a lease that was on its way when a pause was acknowledged."""
STILL_SECONDS = 12.0
"""The longest time without a request to any host of a node, while some host could be opened."""
HOST_STILL_SECONDS = 40.0
"""The longest time that a host may wait while it could be opened: other hosts of its node come
first."""
WANDER_SECONDS = 1.0
GROWTH = 0.5
GROWTH_BYTES = 64 << 20
"""A process may grow by both this amount and this share, once it is warm."""


@dataclass(frozen=True)
class Hit:
    """A request at a target; times by ``time.monotonic()``."""

    arrived: float
    ended: float
    host: str
    target: str
    status: int
    peer: int

    @staticmethod
    def read(line: str) -> Hit:
        arrived, ended, host, target, status, peer = line.rstrip("\n").split("\t")
        return Hit(float(arrived), float(ended), host, target, int(status), int(peer))


@dataclass(frozen=True)
class Finding:
    """A broken promise. ``kind`` is one of lost, early, missing end, impolite, refetched, too many,
    standing still, clock, memory, promise, parked, calendar, passed over."""

    kind: str
    text: str
    at: float = 0.0
    near: tuple[str, ...] = ()
    """Faults at that time."""


@dataclass(frozen=True)
class Span:
    """A time, from ``begin`` to ``end``, in which something was broken that concerns ``nodes``.

    If ``hosts_only``, single hosts of these nodes may wait because of it, though the node goes on.
    """

    begin: float
    end: float
    nodes: tuple[str, ...]
    hosts_only: bool = False
    what: str = ""


# --- politeness ------------------------------------------------------------------------------


def impolite(hits: Iterable[Hit], delay_seconds: float) -> list[Finding]:
    """Find two requests at one host at once, or a second one too soon after the end of the
    first."""
    hosts: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        hosts[hit.host].append(hit)
    found = []
    for host, log in hosts.items():
        log.sort(key=lambda hit: hit.arrived)
        last: Hit | None = None
        for hit in log:
            if last is not None:
                robots = site.robots_delay(site.number_of(host))
                known = last.target != "/robots.txt" and not last.target.startswith("/login")
                needed = max(delay_seconds, robots if known else 0.0)
                gap = hit.arrived - last.ended
                if gap < needed - CLOCK_ERROR_SECONDS:
                    said = "overlap" if gap < 0 else "too soon"
                    text = (
                        f"{said}: {host} {last.target} (port {last.peer}) then {hit.target} "
                        f"(port {hit.peer}) after {gap:.3f} s, delay {needed:g} s"
                    )
                    found.append(Finding("impolite", text, hit.arrived))
            if last is None or hit.ended > last.ended:
                last = hit
    return found


# --- what must be settled --------------------------------------------------------------------


def unsettled(snapshot: Snapshot, acknowledged: Iterable[str]) -> set[str]:
    """Return URLs that must be final in SQL and are not: those that can be reached from
    ``acknowledged`` by the site's own links, and by the links that SQL itself has logged."""
    given_up = {url for url in snapshot.finals if url not in snapshot.pages}
    wanted = site.reachable(set(acknowledged), given_up) | snapshot.links
    settled = snapshot.pages.keys() | snapshot.finals.keys()
    return {url for url in wanted - settled if not site.is_guess(url)}


def owed(snapshot: Snapshot, acknowledged: Iterable[str], limit: int) -> set[str]:
    """Return those of :func:`unsettled` that a done crawl should have settled: all, unless as many
    pages are stored as its ``max_pages`` allows (0: no limit)."""
    return set() if limit and snapshot.stored >= limit else unsettled(snapshot, acknowledged)


def unasked(
    snapshot: Snapshot,
    acknowledged: Iterable[str],
    hits: Iterable[Hit],
    harmed: Sequence[tuple[float, float]],
) -> list[Finding]:
    """Return usual places of sitemaps that got no request, though the first page of the host is
    stored. This holds only if nothing was ``harmed`` while the host was visited: a guess has one
    try, and leaves no row if it fails."""
    visits: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        visits[hit.host].append(hit)
    found = []
    for url in sorted(acknowledged):
        parts = urlsplit(url)
        log = visits[parts.hostname or ""]
        place = site.guess(site.number_of(parts.hostname or ""), parts.port or 0)
        if not (place and log and url.endswith("/home") and snapshot.pages.get(url) == 200):
            continue
        first, last = min(hit.arrived for hit in log), max(hit.ended for hit in log)
        calm = not any(begin <= last and end >= first for begin, end in harmed)
        if calm and not any(hit.target == site.USUAL_PLACE for hit in log):
            found.append(Finding("lost", f"nobody looked for a sitemap at {place}", last))
    return found


def odd_deaths(snapshot: Snapshot, explained: Iterable[str]) -> list[Finding]:
    """Find final states that none of our faults explains, at targets that are never harmed."""
    known = set(explained)
    kinds = Counter(
        f"{state} {kind}"
        for url, (state, kind) in snapshot.finals.items()
        if state == "dead" and kind not in known
    )
    return [
        Finding("lost", f"crawl {snapshot.crawl.name}: {count} URLs {kind}")
        for kind, count in kinds.items()
    ]


def beyond_limit(name: str, stored: int, limit: int) -> list[Finding]:
    """Find more pages than ``max_pages``."""
    if limit and stored > limit:
        return [Finding("too many", f"crawl {name} has {stored} pages stored, limit {limit}")]
    return []


# --- leases ----------------------------------------------------------------------------------


def leased_while_paused(
    samples: Iterable[Sample], pauses: Mapping[int, Sequence[tuple[float, float]]]
) -> list[Finding]:
    """Find sessions of a crawl that were opened after its pause was acknowledged. ``pauses`` has
    the times of pauses by the crawl's id: each from the answer to the pause until the next call was
    sent that may change the state. If a node comes back as an older copy, its sessions are those of
    the copy: their ages say when they were opened."""
    first: dict[tuple[str, str], tuple[float, float, int]] = {}
    before: dict[str, float] = {}
    for one in sorted(samples, key=lambda sample: sample.at):
        looked = before.get(one.node, 0.0)
        for token, crawl in one.sessions.items():
            opened = min(looked, one.at - one.ages.get(token, 0.0))
            first.setdefault((one.node, token), (opened, one.at + one.seconds, crawl))
        before[one.node] = one.at
    found = []
    for (node, token), (opened, at, crawl) in first.items():
        for begin, end in pauses.get(crawl, ()):
            # The session was opened between two looks: both must be within the pause.
            if opened > begin + PAUSE_GRACE_SECONDS and at < end:
                late = opened - begin
                text = f"crawl {crawl} is paused; {late:.1f} s later {node} opens session {token}"
                found.append(Finding("promise", text, at))
    return found


# --- standing still --------------------------------------------------------------------------


@dataclass
class Stillness:
    """Judges the progress by samples of the nodes and the targets' log."""

    spans: Sequence[Span]

    def judge(self, samples: Iterable[Sample], hits: Iterable[Hit], end: float) -> list[Finding]:
        """Find nodes that could open hosts and did not, and hosts that waited too long."""
        by_node: dict[str, list[Sample]] = defaultdict(list)
        for one in sorted(samples, key=lambda sample: sample.at):
            if one.at <= end:
                by_node[one.node].append(one)
        asked: dict[str, list[float]] = defaultdict(list)
        for hit in hits:
            asked[hit.host].append(hit.arrived)
        found = []
        for node, looks in by_node.items():
            hosts = {host.partition(":")[0] for look in looks for host in look.overdue}
            times = sorted(at for host in hosts for at in asked.get(host, ()))
            found += self._node(node, looks, times)
            found += self._hosts(node, looks)
        return found

    def _calm(self, node: str, begin: float, end: float, *, hosts: bool) -> bool:
        return not any(
            span.begin < end
            and span.end > begin
            and node in span.nodes
            and (hosts or not span.hosts_only)
            for span in self.spans
        )

    def _node(self, node: str, looks: list[Sample], times: list[float]) -> list[Finding]:
        """Return runs of samples in which some host could be opened, without a request."""
        begin: float | None = None
        found = []
        for look in looks:
            waits = any(late > 3.0 for late in look.overdue.values())
            if begin is not None and any(begin < at <= look.at for at in times):
                begin = None
            if not waits or not self._calm(node, begin or look.at, look.at + 0.001, hosts=False):
                begin = None
            elif begin is None:
                begin = look.at
            elif look.at - begin > STILL_SECONDS:
                count = len(look.overdue)
                still = f"none was for {STILL_SECONDS:g} s"
                text = f"node {node}: {count} hosts could be asked, {still}"
                found.append(Finding("standing still", text, look.at))
                begin = None
        return found

    def _hosts(self, node: str, looks: list[Sample]) -> list[Finding]:
        since: dict[str, float] = {}
        found = []
        for before, look in pairwise(looks):
            waiting = {
                host
                for host, late in look.overdue.items()
                if late > 3.0 and host in before.overdue and late >= before.overdue[host]
            }
            calm = self._calm(node, before.at, look.at, hosts=True)
            for host in list(since):
                if host not in waiting or not calm:
                    del since[host]
            for host in waiting if calm else ():
                begin = since.setdefault(host, look.at)
                if look.at - begin > HOST_STILL_SECONDS:
                    text = f"{host} at node {node} waits for {HOST_STILL_SECONDS:g} s"
                    found.append(Finding("standing still", text, look.at))
                    since[host] = float("inf")
        return found


def wandering(samples: Iterable[Sample], spans: Sequence[Span]) -> list[Finding]:
    """Find nodes whose logical time moves without a cause: rests and deadlines depend on this time.
    There is at most one finding a node; corrections after a fault are no findings."""
    found = []
    by_node: dict[str, list[Sample]] = defaultdict(list)
    for one in sorted(samples, key=lambda sample: sample.at):
        if one.drift_seconds is not None:
            by_node[one.node].append(one)
    for node, looks in by_node.items():
        moves = [
            (after.at, after.drift_seconds - before.drift_seconds)
            for before, after in pairwise(looks)
            if after.drift_seconds is not None
            and before.drift_seconds is not None
            and abs(after.drift_seconds - before.drift_seconds) > WANDER_SECONDS
            and not any(
                node in span.nodes
                and not span.hosts_only
                and span.begin < after.at
                and span.end > before.at
                for span in spans
            )
        ]
        if moves:
            most = max(abs(move) for _, move in moves)
            text = f"node {node}: its time moved {len(moves)} times by up to {most:.1f} s by itself"
            found.append(Finding("clock", text, moves[0][0]))
    return found


# --- memory ----------------------------------------------------------------------------------


def growth(name: str, sizes: Sequence[tuple[float, int]]) -> list[Finding]:
    """Find a growth of memory. ``sizes`` are (time, bytes) of one life of a process; its warm size
    is the largest in the second fifth."""
    if len(sizes) < 15:
        return []
    fifth = len(sizes) // 5
    warm = max(size for _, size in sizes[fifth : 2 * fifth])
    last = min(size for _, size in sizes[-fifth:])
    if last > warm * (1 + GROWTH) and last > warm + GROWTH_BYTES:
        text = f"{name} grew from {warm >> 20} to {last >> 20} MB"
        return [Finding("memory", text, sizes[-1][0])]
    return []


# --- the ledger ------------------------------------------------------------------------------


def acknowledged_seeds(calls: Iterable[Call], crawl: str, before: float) -> set[str]:
    """Return the seeds of a crawl that were answered with 2xx by the time ``before``."""
    return {
        url
        for call in calls
        if call.crawl == crawl and call.acknowledged and call.answered <= before
        for url in call.urls
    }


def deleted(calls: Sequence[Call], crawl: str) -> bool:
    """Return whether the crawl is certainly deleted: a deletion was acknowledged that was sent
    after every call that might have created it again had been answered."""
    made = [call for call in calls if call.crawl == crawl and call.op == "create"]
    return any(
        call.op == "delete"
        and call.crawl == crawl
        and call.acknowledged
        and all(one.acknowledged and one.answered < call.sent for one in made)
        for call in calls
    )


def pauses_of(calls: Iterable[Call], crawl: str, end: float) -> list[tuple[float, float]]:
    """Return the times in which the crawl is certainly paused: from the answer to a pause until
    the next call that may change its state is sent. A pause that overlaps such a call does not
    count."""
    changing = [
        call
        for call in calls
        if call.crawl == crawl
        and call.op
        in (
            "pause",
            "resume",
            "delete",
            "create",
            "seed",
            "requeue",
            "release",
            "stop",
        )
    ]
    found = []
    for call in changing:
        if call.op != "pause" or not call.acknowledged:
            continue
        others = [one for one in changing if one is not call]
        if any(
            one.sent < call.answered and (one.answered or end) > call.sent for one in others
        ) or any(one.status == 0 and one.sent < call.answered for one in others):
            continue  # the order of these is unknown
        next_sent = min((one.sent for one in others if one.sent >= call.answered), default=end)
        found.append((call.answered, next_sent))
    return found
