"""No fetch beyond the leased URLs: each second request for a URL needs a fault that may cause it.

The leases are read from Redis twice a second, with their URLs. A fault may cause one more fetch of
a URL if a session that it concerns held the URL shortly before, during the fault, or during the
recovery; or if a node came back with the URL as unfinished: waiting, leased or to be tried later.
So each fault explains at most as many requests as there were such URLs.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import monotonic

import redis

from tests.nemesis import reading, site
from tests.nemesis.checker import Finding, Hit
from tests.nemesis.faults import Done
from tests.nemesis.reading import Session
from tests.nemesis.schedule import Event
from tests.nemesis.watch import EVERY_SECONDS
from tests.nemesis.world import NODES, WORKERS, World

LOOK_SECONDS = 0.5
NEAR_SECONDS = 3 * LOOK_SECONDS
"""A session held a URL at the time of a request if it was seen within this time before or after."""
BEFORE_SECONDS = 3.0
"""Tasks that finished within this time before a fault may be forgotten: a node's file is up to two
seconds old."""
AFTER_SECONDS = 6.0
"""A fault may lose leased tasks until this time after its end, in addition to the duration of a
lease."""
ANY_PORT = 1
"""The places of the site do not depend on its port."""


@dataclass
class Lease:
    """A URL in a session. ``looks`` has the first and the last time of each run of looks that saw
    the URL there."""

    node: str
    worker: str
    looks: list[tuple[float, float]] = field(default_factory=list)

    def during(self, begin: float, end: float) -> bool:
        """Return whether the lease was seen between these times."""
        return any(first <= end and last >= begin for first, last in self.looks)


class Leases:
    """All leases that were seen, by place: address and path, as in the targets' log."""

    def __init__(self) -> None:
        self.by_place: dict[str, dict[str, Lease]] = defaultdict(dict)
        self.nodes: dict[str, str] = {}
        """Node by address."""

    def note(self, node: str, at: float, sessions: Iterable[Session]) -> None:
        """Add the result of one look at a node."""
        for one in sessions:
            self.nodes[one.address] = node
            for place in one.places:
                lease = self.by_place[place].setdefault(one.token, Lease(node, one.worker))
                first, last = lease.looks[-1] if lease.looks else (at, at)
                if lease.looks and at - last <= NEAR_SECONDS:
                    lease.looks[-1] = first, at
                else:
                    lease.looks.append((at, at))

    def of(self, place: str, before: float) -> list[Lease]:
        """Return the leases of a place that began ``before`` this time."""
        return [
            lease
            for lease in self.by_place.get(place, {}).values()
            if lease.looks[0][0] <= before + NEAR_SECONDS
        ]


class LeaseWatch:
    """Keeps :class:`Leases` by looks at the present masters, in one thread for each node."""

    def __init__(self, world: World) -> None:
        self.leases = Leases()
        self._world = world
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(node,), daemon=True) for node in NODES
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._halt.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, node: str) -> None:
        while not self._halt.wait(LOOK_SECONDS):
            try:
                found = reading.sessions(self._world.master(node).client)
            except (redis.RedisError, OSError):
                continue  # a node that is away has no leases
            with self._lock:
                self.leases.note(node, monotonic(), found)


# --- what a fault explains -------------------------------------------------------------------


@dataclass(frozen=True)
class Harm:
    """A fault, as far as it may cause a second fetch.

    It concerns only hosts of these ``nodes``, and only leases of this ``worker`` ("": of any).
    ``held`` are the places that were unfinished when a node came back in its state of ``since``;
    None if they are unknown. Faults of one ``stroke`` count as one.
    """

    begin: float
    end: float
    nodes: tuple[str, ...] = NODES
    worker: str = ""
    held: frozenset[str] | None = frozenset()
    since: float = 0.0
    recovers: bool = False
    """True if the node comes back as another process, and gets what it missed."""
    stroke: str = ""

    def explains(self, place: str, first: float, second: float, leases: Leases) -> str:
        """Return how the fault may have caused a request for a place at ``second`` after the one at
        ``first``: ``held``, ``leased``, or ``unseen`` if that session was between two looks; "" if
        it cannot."""
        node = leases.nodes.get(place.partition("/")[0], "")
        if second < self.begin or (node and node not in self.nodes):
            return ""
        # A URL that was settled before must not wait in that state, unless another fault explains
        # it.
        forgotten = self.since - BEFORE_SECONDS <= first <= self.end
        if forgotten and (self.held is None or place in self.held):
            return "held"
        known = leases.of(place, first)
        if any(lease.during(first - NEAR_SECONDS, first + NEAR_SECONDS) for lease in known):
            return "leased" if any(self.concerns(lease) for lease in known) else ""
        return "unseen" if self.begin - BEFORE_SECONDS <= first <= self.end else ""

    def concerns(self, lease: Lease) -> bool:
        """Return whether the fault may have lost this lease."""
        return (
            lease.node in self.nodes
            and self.worker in ("", lease.worker)
            and lease.during(self.begin - BEFORE_SECONDS, self.end)
        )

    def most(self, leases: Leases) -> int:
        """Return the largest number of URLs that were leased at one moment and that it concerns."""
        edges = []
        for by_token in leases.by_place.values():
            for lease in filter(self.concerns, by_token.values()):
                for first, last in lease.looks:
                    if first <= self.end and last >= self.begin - BEFORE_SECONDS:
                        edges += [(first, -1), (last, 1)]
        count = most = 0
        for _, less in sorted(edges):
            count -= less
            most = max(most, count)
        return most


def harms_of(
    strokes: Iterable[Done], ended: Mapping[str, Sequence[float]], lease_seconds: float
) -> list[Harm]:
    """Return the faults that were done. Copies and skipped events do no harm. Brokers and workers
    that ended by themselves count as faults: ``ended`` has the times at which that was found."""
    struck = [done for done in strokes if done.event.is_fault and not done.skipped]
    for name, times in ended.items():
        struck += [
            Done(Event(at, "kill", arguments={"part": name}), at - EVERY_SECONDS, at)
            for at in times
        ]
    return [_harm(done, struck, lease_seconds) for done in struck if done.event.kind != "copy"]


def _harm(done: Done, struck: Sequence[Done], lease_seconds: float) -> Harm:
    given = done.event.arguments
    place = str(given.get("part") or given.get("link") or given.get("place") or "")
    client, _, server = place.partition("-")
    begin, end = done.began, (done.over or float("inf")) + AFTER_SECONDS + lease_seconds
    stroke = f"{done.event.kind} {done.event.at}"
    if client in WORKERS:
        return Harm(begin, end, worker=client, stroke=stroke)
    node = str(given.get("node") or (server if client == "replica" else client))[:1]
    if node not in NODES:  # a broker, or SQL
        return Harm(begin, end, stroke=stroke)
    held = None if done.held is None else frozenset(done.held)
    recovers = done.event.kind in ("kill", "older", "promote")
    if recovers:  # the node gets what it missed when it answers again
        for one in sorted(struck, key=lambda other: other.began):
            if one.began <= end and _keeps_away(one, node):
                end = max(end, (one.over or float("inf")) + AFTER_SECONDS + lease_seconds)
    at_limit = any(
        one.event.kind == "memory"
        and one.event.arguments["node"] == node
        and one.began <= end
        and (one.over or end) >= begin
        for one in struck
        if one is not done
    )
    if at_limit and recovers:
        held = None  # marks of stored pages may be refused: at worst all are fetched again
    since = done.since or begin
    return Harm(begin, end, (node,), held=held, since=since, recovers=recovers, stroke=stroke)


def _keeps_away(done: Done, node: str) -> bool:
    """Return whether brokers may get no answer of the node during the fault; which of its two
    servers is the master at a time is unknown here."""
    given = done.event.arguments
    client, _, server = str(given.get("link", "")).partition("-")
    if done.event.kind == "cut":
        return client.startswith("b") and server == node
    name = str(given.get("part") or given.get("node"))
    return name[:1] == node and done.event.kind in ("stop", "kill", "older", "promote")


def with_links(harm: Harm, hits: Iterable[Hit]) -> Harm:
    """A recovering node goes on admitting, and treats a link as new if it has not yet heard that
    the URL is settled. So the links of pages that were requested about then count as held. It may
    never hear that a usual place of sitemaps is settled: so these places count as held, too."""
    if not harm.recovers or harm.held is None:
        return harm
    links, usual = set[str](), set[str]()
    for hit in hits:
        if hit.target == site.USUAL_PLACE:
            usual.add(hit.host + hit.target)
        if harm.begin - BEFORE_SECONDS <= hit.arrived <= harm.end:
            url = f"http://{hit.host}:{ANY_PORT}{hit.target}"
            links |= {*site.found_at(url), *site.brings(url)}
    places = {url.removeprefix("http://").replace(f":{ANY_PORT}/", "/", 1) for url in links}
    return replace(harm, held=harm.held | places | usual)


# --- the judge -------------------------------------------------------------------------------


@dataclass
class Count:
    """Second requests, and the most that the faults could cause."""

    asked_again: int = 0
    leased: int = 0


def judge(
    hits: Iterable[Hit],
    leases: Leases,
    harms: Sequence[Harm],
    allowed: Mapping[str, int],
    parked: Iterable[Hit] = (),
    turns: Mapping[str, Sequence[float]] | None = None,
    forced: Collection[str] = (),
) -> tuple[list[Finding], Count]:
    """Find URLs that were requested again although no fault explains this, with one finding a node.
    Find faults that alone explain more requests than URLs were leased at one moment.

    ``allowed`` has the number of further requests of each forced or failed place, and 0 for a place
    that was never settled. For these places only the number is judged, with one more for each fault
    in between. ``parked`` has the times at which URLs were settled without a request; each counts
    as a request. ``turns`` has the times at which a place may be requested once more, since a
    period begins. ``forced`` are places that are queued then even if they wait already.
    """
    hits = list(hits)
    came_back = sum(len(one.held or ()) for one in harms)
    harms = [with_links(one, hits) for one in harms]
    beyond: dict[str, list[tuple[float, str]]] = defaultdict(list)
    by_stroke: dict[str, list[float]] = defaultdict(list)
    count = Count(leased=came_back)
    for place, log in _times([*hits, *parked]).items():
        pairs = _pairs(log, (turns or {}).get(place, ()))
        if not pairs:
            continue
        count.asked_again += len(pairs)
        more = allowed.get(place, 0)
        by_number = place in allowed
        bare, causes = [], set[str]()
        begun = (turns or {}).get(place, ()) if place in forced else ()
        passed = _Turns(place, log, begun, leases)
        if by_number:
            causes = {one.stroke for one in harms if one.begin <= log[-1] and one.end >= log[0]}
        for first, second in () if by_number else pairs:
            how = {
                one.stroke: said
                for one in harms
                if (said := one.explains(place, first, second, leases))
            } or passed.lend(first, second, harms)
            causes |= how.keys()
            if not how:
                bare.append(second)
            elif list(how.values()) == ["leased"]:
                by_stroke[next(iter(how))].append(second)
        if bare or len(pairs) > more + len(causes):
            node = leases.nodes.get(place.partition("/")[0], "?")
            after = ", ".join(f"{at - pairs[0][0]:.1f}" for _, at in pairs)
            at = bare[0] if bare else pairs[-1][1]
            beyond[node].append((at, f"{place} after {after} s"))
    found = []
    for node, some in sorted(beyond.items()):
        some.sort()
        said = "; ".join(text for _, text in some[:4])
        text = f"node {node}: {len(some)} URLs asked for again, which no fault explains: {said}"
        found.append(Finding("refetched", text, some[0][0]))
    for stroke in sorted({one.stroke for one in harms}):
        mine = [one for one in harms if one.stroke == stroke]
        most = sum({(one.nodes, one.worker): one.most(leases) for one in mine}.values())
        count.leased += most
        if len(again := by_stroke[stroke]) > most:
            text = f"{stroke}: {len(again)} URLs asked for again, at most {most} were leased"
            found.append(Finding("refetched", text, min(again)))
    return found, count


def _pairs(log: Sequence[float], turns: Sequence[float]) -> list[tuple[float, float]]:
    """Return each request with the one before, if no turn is in between."""
    return [
        (first, second)
        for first, second in pairwise(log)
        if not any(first < turn <= second for turn in turns)
    ]


class _Turns:
    """The turns of a forced place. Two requests may follow a turn and a fault: the turn explains
    one of them, and the fault the other, in either order. So a turn explains the second request if
    the fault explains the first."""

    def __init__(
        self, place: str, log: Sequence[float], turns: Sequence[float], leases: Leases
    ) -> None:
        self._place, self._leases = place, leases
        self._gaps = [
            (first, second)
            for first, second in pairwise(log)
            if any(first < turn <= second for turn in turns)
        ]

    def lend(self, first: float, second: float, harms: Sequence[Harm]) -> dict[str, str]:
        """Return how faults explain the first request after the last turn before ``first``: then
        this turn can explain the request at ``second`` instead. Each turn is lent once."""
        before = [gap for gap in self._gaps if gap[1] <= first]
        for begin, end in before[-1:]:
            how = {
                one.stroke: said
                for one in harms
                if (said := one.explains(self._place, begin, end, self._leases))
            }
            if how:
                self._gaps.remove((begin, end))
                return how
        return {}


def _times(hits: Iterable[Hit]) -> dict[str, list[float]]:
    """Return the times of the requests for each page, requisite and sitemap that was requested more
    than once, by place. A redirect to the login does not count."""
    times: dict[str, list[float]] = defaultdict(list)
    for hit in hits:
        login = hit.status == 302 and site.has_login(site.number_of(hit.host))
        page = site.graph_of(hit.target) is not None or hit.target == site.USUAL_PLACE
        if page and not login:
            times[hit.host + hit.target].append(hit.arrived)
    return {place: sorted(log) for place, log in times.items() if len(log) > 1}
