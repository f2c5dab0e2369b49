"""The times and kinds of events: a list that is drawn from a seed and kept as JSON.

Faults last ``seconds``, and then end; operations are calls of the API and take no time. A seed
first draws a *mix*: which kinds of fault are frequent.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.nemesis.site import SHARED_HOSTS, Graph, graph_of, mapped
from tests.nemesis.world import BROKERS, NODES, WORKERS, Store

DELAY_SECONDS = 0.3
"""The delay of every crawl, so that the delay in force is known."""
LEASE_SECONDS, LONG_LEASE_SECONDS = 4.0, 30.0
"""Leases are short, so that a run has many. They are long if time itself is harmed: the shortest
silence that a node treats as an outage is longer then, too."""
OPERATIONS = ("create", "pause", "resume", "delete", "seed", "requeue", "release")
EXTRAS = {"s": ("sitemaps", 0.4), "q": ("requisites", 0.4), "t": ("traps", 0.4)}
"""Letter in the tag of a crawl's graph → the option that it turns on, and the share of crawls that
have it."""
LIMITS = ("max_pages", "shape_pages", "recrawl")
PERIODS_SECONDS = (12, 15, 18)
"""The period of crawls that begin again: long enough for a rest in between if nothing is harmed."""
PERIODS_FIRST = 15_000
"""Hosts from this number on belong to crawls that begin again."""
FAULTS = (
    "kill", "stop", "cut", "memory", "disk", "clock", "copy", "older", "promote", "lock", "twin",
)  # fmt: skip


@dataclass
class Event:
    """``at`` seconds after the start ``kind`` happens, for ``seconds``, with ``arguments``."""

    at: float
    kind: str
    seconds: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULTS

    def __str__(self) -> str:
        said = " ".join(
            f"{name}={value}"
            for name, value in self.arguments.items()
            if name not in ("urls", "leaves")
        )
        span = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind} {said}{span}"


@dataclass
class Schedule:
    """A run. Events come for ``seconds``; then everything is healed, and the run waits for the
    end."""

    seed: int
    store: Store
    seconds: float
    mix: list[str]
    events: list[Event]
    lease_seconds: float = 4.0
    """Duration of a lease; half of it is also the longest silence that is no outage to a node."""

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Schedule:
        given = json.loads(path.read_text())
        return Schedule(**{**given, "events": [Event(**one) for one in given["events"]]})


MIXES = ("clocks", "split", "memory", "nodes", "ends", "workers", "brokers", "sql", "all")


def make(seed: int, store: Store, minutes: float) -> Schedule:
    """Return the schedule of a seed; the same for the same arguments."""
    dice = random.Random(f"{seed} {store}")
    seconds = minutes * 60
    mix = dice.sample(MIXES, dice.choice((1, 2, 2, 3)))
    events = _with_extras(_crawls(dice, seconds, "ends" in mix), f"{seed} {store}", seconds)
    events += _with_periods(f"{seed} {store}", seconds)
    faults = _Faults(dice, seconds, store)
    at = dice.uniform(4, 8)
    while at < seconds - 3:
        stroke = faults.draw(at, dice.choice(mix))
        events += stroke
        # Sometimes there are several faults at once. There are also calm times, and times of only
        # one long fault: in these progress can be judged.
        at += dice.choice((0.3, 1.0, 3.0, 5.0, 8.0, 12.0, 20.0))
        if dice.random() < 0.4:
            at = max(at, *(event.at + event.seconds for event in stroke))
    events.sort(key=lambda event: event.at)
    lease_seconds = LONG_LEASE_SECONDS if mix == ["clocks"] else LEASE_SECONDS
    return Schedule(seed, store, seconds, mix, events, lease_seconds)


# --- faults ----------------------------------------------------------------------------------


class _Faults:
    def __init__(self, dice: random.Random, seconds: float, store: Store) -> None:
        self._dice, self._seconds, self._store = dice, seconds, store
        self._room_at = 0.0
        self._floods = 0

    def draw(self, at: float, mix: str) -> list[Event]:
        """Draw one stroke of the nemesis, which may be several events."""
        kinds: dict[str, list[Callable[[float], list[Event]]]] = {
            "clocks": [self._late_broker, self._late_broker, self._late_broker, self._clock],
            "split": [self._promote, self._promote, self._copy, self._stop_part],
            "memory": [self._memory],
            "nodes": [self._node_away, self._node_away, self._older, self._copy],
            "ends": [
                self._stop_for_long, self._stop_for_long, self._stop_worker, self._kill_part,
                self._cut, self._late_worker, self._late_worker,
            ],
            "workers": [self._stop_worker, self._kill_worker, self._twin_worker],
            "brokers": [self._stop_broker, self._kill_broker, self._cut],
            "sql": [self._sql, self._disk],
            "all": [
                self._kill_part, self._stop_part, self._cut, self._memory, self._disk,
                self._clock, self._copy, self._older, self._promote, self._sql,
            ],
        }  # fmt: skip
        return self._dice.choice(kinds[mix])(at)

    def _event(self, at: float, kind: str, seconds: float, **arguments: Any) -> Event:
        return Event(round(at, 2), kind, round(seconds, 2), arguments)

    def _short(self, most: float) -> float:
        """Draw seconds; each order of magnitude from 0.1 on is equally likely."""
        return float(0.1 * (most / 0.1) ** self._dice.random())

    def _parts(self) -> list[str]:
        parts = [*BROKERS, *WORKERS, "A1", "A2", "B1", "B2"]
        return [*parts, "sql"] if self._store == "mysql" else parts

    def _how(self) -> str:
        return self._dice.choice(("reset", "drop", "hold", "late"))

    def _kill(self, at: float, parts: list[str]) -> list[Event]:
        what = self._dice.choice(("all", "child"))
        return [self._event(at, "kill", self._short(10), part=self._dice.choice(parts), what=what)]

    def _stop(self, at: float, parts: list[str]) -> list[Event]:
        return [self._event(at, "stop", self._short(40), part=self._dice.choice(parts))]

    def _kill_part(self, at: float) -> list[Event]:
        return self._kill(at, self._parts())

    def _stop_part(self, at: float) -> list[Event]:
        return self._stop(at, self._parts())

    def _stop_for_long(self, at: float) -> list[Event]:
        """Stop a worker for so long that others do its tasks, and crawls end, before it goes on."""
        seconds = self._dice.uniform(12, 40)
        return [self._event(at, "stop", seconds, part=self._dice.choice(WORKERS))]

    def _kill_worker(self, at: float) -> list[Event]:
        return self._kill(at, list(WORKERS))

    def _stop_worker(self, at: float) -> list[Event]:
        return self._stop(at, list(WORKERS))

    def _twin_worker(self, at: float) -> list[Event]:
        """A worker and a copy of its machine use one name, while a broker dies now and then."""
        seconds = self._dice.uniform(8, 30)
        deaths = [at + seconds * self._dice.uniform(0.1, 0.9) for _ in range(2)]
        return [
            self._event(at, "twin", seconds, part=self._dice.choice(WORKERS)),
            *(
                self._event(death, "kill", 0.5, part=self._dice.choice(BROKERS), what="all")
                for death in deaths
            ),
        ]

    def _kill_broker(self, at: float) -> list[Event]:
        return self._kill(at, list(BROKERS))

    def _stop_broker(self, at: float) -> list[Event]:
        return self._stop(at, list(BROKERS))

    def _cut(self, at: float) -> list[Event]:
        links = [f"{client}-{node}" for client in (*BROKERS, *WORKERS) for node in NODES]
        links += [f"{worker}-{broker}" for worker in WORKERS for broker in BROKERS]
        links += [f"replica-{node}" for node in NODES]
        if self._store == "mysql":
            links += [f"{client}-sql" for client in (*BROKERS, *WORKERS)]
        chosen = self._dice.sample(links, self._dice.choice((1, 1, 2, 3)))
        seconds = self._short(30)
        return [self._event(at, "cut", seconds, link=one, how=self._how()) for one in chosen]

    def _late_broker(self, at: float) -> list[Event]:
        """A broker hears from a node late: the line holds data, or the broker is frozen."""
        broker, seconds = self._dice.choice(BROKERS), self._dice.uniform(2.2, 6.0)
        if self._dice.random() < 0.4:
            return [self._event(at, "stop", seconds, part=broker)]
        link = f"{broker}-{self._dice.choice(NODES)}"
        how = self._dice.choice(("hold", "late", "late"))
        return [self._event(at, "cut", seconds, link=link, how=how)]

    def _late_worker(self, at: float) -> list[Event]:
        """A worker reaches only SQL: the links of its stored pages come when others have done its
        tasks."""
        worker, how = self._dice.choice(WORKERS), self._dice.choice(("hold", "reset", "drop"))
        seconds = self._dice.uniform(8, 25)
        return [
            self._event(at, "cut", seconds, link=f"{worker}-{other}", how=how)
            for other in (*NODES, *BROKERS)
        ]

    def _memory(self, at: float) -> list[Event]:
        """Fill the memory just when many hosts are new. Leave pauses with room, since otherwise
        seeds are refused."""
        if at < self._room_at:
            return self._dice.choice((self._stop_part, self._kill_part, self._cut))(at)
        nodes = self._dice.choice((["A"], ["B"], ["A", "B"], ["A", "B"]))
        seconds = self._dice.uniform(20, 70)
        self._room_at = at + seconds + 8
        self._floods += 1
        graph = Graph(500 + self._floods, 2000 + 120 * self._floods, 100, 1)
        full_at = at + self._dice.uniform(0.3, 1.2)
        return [
            _create(graph, f"flood{self._floods}", at, graph.hosts),
            *(self._event(full_at, "memory", seconds, node=node) for node in nodes),
        ]

    def _disk(self, at: float) -> list[Event]:
        places = ["A", "B"] if self._store == "mysql" else ["A", "B", "store", "store"]
        return [self._event(at, "disk", self._short(20), place=self._dice.choice(places))]

    def _clock(self, at: float) -> list[Event]:
        offset = self._dice.choice((-3600, -30, -5, -2, -0.7, 0.4, 1, 1.9, 5, 30, 3600, 200_000))
        return [self._event(at, "clock", 0, node="A", offset=offset)]

    def _copy(self, at: float) -> list[Event]:
        """Make a copy now; restart from it later."""
        node = self._dice.choice(NODES)
        later = at + self._dice.uniform(3, 30)
        return [
            self._event(at, "copy", 0, node=node),
            self._event(min(later, self._seconds - 1), "older", self._short(5), node=node),
        ]

    def _older(self, at: float) -> list[Event]:
        return [self._event(at, "older", self._short(5), node=self._dice.choice(NODES))]

    def _promote(self, at: float) -> list[Event]:
        """Promote a replica. The old master still serves a minority, which is often cut off from
        SQL."""
        node = self._dice.choice(NODES)
        broker, worker = self._dice.choice(BROKERS), self._dice.choice(WORKERS)
        minority = self._dice.choice(([], [broker], [broker, worker], [broker, worker]))
        seconds = self._dice.uniform(8, 30) if minority else 1.0
        events = []
        if self._dice.random() < 0.5:
            lag = self._short(8)
            events.append(
                self._event(max(1, at - lag), "cut", lag, link=f"replica-{node}", how="drop")
            )
        events.append(self._event(at, "promote", seconds, node=node, minority=minority))
        if minority and self._store == "mysql" and self._dice.random() < 0.8:
            for client in self._dice.choice(([broker], minority)):
                link = f"{client}-sql"
                events.append(self._event(at, "cut", seconds, link=link, how=self._how()))
        if len(minority) == 2:  # the worker of the minority sees that broker only
            other = next(name for name in BROKERS if name != broker)
            events.append(
                self._event(at, "cut", seconds, link=f"{worker}-{other}", how=self._how())
            )
        return events

    def _node_away(self, at: float) -> list[Event]:
        """A node's server dies or is frozen for long, or nobody reaches it."""
        node, seconds = self._dice.choice(NODES), self._dice.uniform(15, 40)
        how = self._dice.choice(("stop", "stop", "kill", "cut"))
        if how == "cut":
            silence = self._how()
            return [
                self._event(at, "cut", seconds, link=f"{client}-{node}", how=silence)
                for client in (*BROKERS, *WORKERS)
            ]
        return [self._event(at, how, seconds, part=node, what="all")]

    def _sql(self, at: float) -> list[Event]:
        if self._store == "sqlite":
            return [self._event(at, "lock", self._short(15))]
        kind = self._dice.choice(("kill", "stop", "cut"))
        if kind == "cut":
            client = self._dice.choice((*BROKERS, *WORKERS))
            seconds = self._short(30)
            return [self._event(at, "cut", seconds, link=f"{client}-sql", how=self._how())]
        return [self._event(at, kind, self._short(15), part="sql", what="all")]


# --- crawls ----------------------------------------------------------------------------------


def _crawls(dice: random.Random, seconds: float, many_ends: bool) -> list[Event]:
    """Create one crawl over all shared hosts, and others with the actions of operators."""
    pages = 8 if many_ends else max(8, int(seconds / (DELAY_SECONDS + 0.1) / 10))
    base = Graph(0, 0, SHARED_HOSTS, pages)
    events = [_create(base, "base", 0.0, 12)]
    key, at = 1, 4.0
    while at < seconds - 8:
        small = many_ends or dice.random() < 0.3
        hosts, size = dice.randint(2, 4 if small else 12), dice.randint(1, 3 if small else 10)
        first = dice.randrange(SHARED_HOSTS) if dice.random() < 0.6 else 100 + key * 20
        graph, name = Graph(key, first, hosts, size), f"c{key}"
        limit = dice.randint(5, 40) if dice.random() < 0.2 else 0
        events.append(_create(graph, name, at, dice.randint(1, 3), limit))
        if not limit:
            events += _operations(dice, graph, name, at, seconds, many_ends)
        key += 1
        at += dice.uniform(1.5, 5) if many_ends else dice.uniform(6, 14)
    return events


def _create(graph: Graph, name: str, at: float, seeds: int, limit: int = 0) -> Event:
    arguments: dict[str, Any] = {"crawl": name, "graph": graph.tag, "seeds": seeds}
    if limit:
        arguments["max_pages"] = limit
    return Event(round(at, 2), "create", 0, arguments)


def _with_extras(events: list[Event], seed: str, seconds: float) -> list[Event]:
    """Some crawls have sitemaps, requisites or traps, from a random generator of their own: so the
    draws from before these existed do not change. Parked URLs are often released."""
    releases = []
    for event in events:
        name = str(event.arguments["crawl"])
        if event.kind != "create" or not re.fullmatch(r"c\d+", name):
            continue
        dice = random.Random(f"options {seed} {name}")
        drawn = "".join(letter for letter, (_, share) in EXTRAS.items() if dice.random() < share)
        limited, release, after = dice.random() < 0.4, dice.random() < 0.5, dice.uniform(15, 45)
        graph = graph_of(f"/{event.arguments['graph']}/")
        assert graph is not None
        graph = mapped(graph.key) if "s" in drawn else replace(graph, extras=drawn)
        for one in events:
            if one.arguments["crawl"] == name and "graph" in one.arguments:
                one.arguments["graph"] = graph.tag
        if "t" not in graph.extras:
            continue
        if limited:
            event.arguments["shape_pages"] = 4
        if release:
            at = round(min(event.at + after, seconds - 0.5), 2)
            releases.append(Event(at, "release", 0, {"crawl": name}))
    return events + releases


def _with_periods(seed: str, seconds: float) -> list[Event]:
    """Two crawls that begin again, from a random generator of their own: one asks for all known
    URLs in each period, the other for the seeds. One has hosts of its own, the other shares them.
    They get more seeds, also known ones by force, and are paused."""
    dice = random.Random(f"periods {seed}")
    shared = dice.random() < 0.5
    events = []
    for number, depth in enumerate(("all", 0)):
        name, hosts = f"r{number}", dice.randint(3, 5)
        # no host from 8 to 26 asks for a login
        first = dice.randint(8, 20) if shared == bool(number) else PERIODS_FIRST + 10 * number
        graph = Graph(900 + number, first, hosts, dice.randint(2, 4), dice.choice(("", "", "q")))
        at = 1.0 + number
        create = _create(graph, name, at, dice.randint(1, hosts))
        create.arguments["recrawl"] = {"every": f"{dice.choice(PERIODS_SECONDS)}s", "depth": depth}
        events.append(create)
        while (at := at + dice.uniform(6, 30)) < seconds - 4:
            what: dict[str, Any] = {"crawl": name}
            kind = dice.choice(("seed", "seed", "force", "pause"))
            if kind == "pause":
                events.append(Event(round(at, 2), "pause", 0, what))
                at = min(at + dice.uniform(2, 8), seconds - 0.5)
                events.append(Event(round(at, 2), "resume", 0, what))
                continue
            leaves = [f"t/8{dice.randrange(10**6)}" for _ in range(dice.randint(1, 3))]
            if kind == "force":
                what["force"], leaves = True, ["p/0"]
            events.append(
                Event(round(at, 2), "seed", 0, {**what, "graph": graph.tag, "leaves": leaves})
            )
    return events + _while_on_way(dice, seconds)


def _while_on_way(dice: random.Random, seconds: float) -> list[Event]:
    """Return strokes that wait until known pages are on their way. Then their node goes back to an
    earlier copy, their node is killed, or a broker is killed."""
    events, at = [], dice.uniform(14, 18)
    while at < seconds - 3:
        node, until = dice.choice(NODES), {"until": "r0"}
        what = dice.choice(("older", "older", "node", "broker"))
        if what == "older" and dice.random() < 0.5:  # to the node that has them on their way
            where = {"node": node, "fresh": True, **until}
            events.append(Event(round(at, 2), "older", 0.3, where))
        elif what == "older":
            copied = round(at - dice.uniform(3, 10), 2)
            events.append(Event(copied, "copy", 0, {"node": node}))
            events.append(Event(round(at, 2), "older", 0.3, {"node": node, **until}))
        else:
            part = node if what == "node" else dice.choice(BROKERS)
            events.append(Event(round(at, 2), "kill", 0.3, {"part": part, "what": "all", **until}))
        at += dice.uniform(15, 30)
    return events


def options_of(graph: Graph) -> dict[str, str]:
    """Return the options of the crawl of a graph."""
    return {EXTRAS[letter][0]: "on" for letter in graph.extras}


def _operations(
    dice: random.Random, graph: Graph, name: str, at: float, seconds: float, many_ends: bool
) -> list[Event]:
    events = []

    def later(least: float, most: float) -> float:
        return round(min(at + dice.uniform(least, most), seconds - 0.5), 2)

    def add(when: float, kind: str, **more: Any) -> None:
        events.append(Event(when, kind, 0, {"crawl": name, **more}))

    for _ in range(dice.choice((0, 1, 2, 4)) * (3 if many_ends else 1)):
        # Leaves that no page links to: they are fetched if and only if the seed is kept.
        leaves = [f"t/9{dice.randrange(10**6)}" for _ in range(dice.randint(1, 20))]
        add(later(0.5, 25), "seed", graph=graph.tag, leaves=leaves)
    if dice.random() < 0.3:
        paths = [f"p/{n}" for n in range(min(3, graph.pages))]
        add(later(5, 30), "seed", graph=graph.tag, leaves=paths, force=True)
    if dice.random() < 0.4:
        paused = later(0.5, 15)
        add(paused, "pause")
        add(round(min(paused + dice.uniform(2, 25), seconds), 2), "resume")
    if dice.random() < 0.25:
        add(later(2, 40), "delete")
    if dice.random() < 0.25:
        add(later(5, 40), "requeue")
    return events
