"""How each event of a schedule is done to the world, and ended."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.nemesis.parts import RedisPart
from tests.nemesis.periods import Tasks, note_tasks
from tests.nemesis.reading import is_told, sqlite_writer, unfinished
from tests.nemesis.schedule import DELAY_SECONDS, LIMITS, Event, options_of
from tests.nemesis.site import address, graph_of, has_login
from tests.nemesis.world import NODES, World

CALL_AGAIN_SECONDS = 1.0
CALL_TRIES = 4
FRESH_SECONDS = 1.5
"""The age of a copy that is made for a node that goes back to it at once."""
ON_WAY_LEAST, ON_WAY_SECONDS, ON_WAY_LOOK_SECONDS = 5, 20.0, 0.2
"""Some events should strike while known pages are on their way: they wait for this many, at most
for this long."""


@dataclass
class Done:
    """The result of an event: from ``began`` to ``over`` (0: not yet) something was broken."""

    event: Event
    began: float
    over: float = 0.0
    skipped: str = ""
    held: set[str] | None = field(default_factory=set)
    """Unfinished tasks in the state in which a node came back; None: they could not be read."""
    since: float = 0.0
    """The time of the state in which the node came back; 0 stands for ``began``."""
    holds_sql: bool = False
    """The frozen process was writing to SQLite, which has one writer: nobody else can write
    meanwhile."""


class Strokes:
    """Does events, each in a thread of its own, and notes their times."""

    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self.world = world
        self.done: list[Done] = []
        self._say = say
        self._threads: list[threading.Thread] = []
        self._halt = threading.Event()
        self._behind: dict[str, float] = {}
        """Node → the time of the state in which it came back, as long as it may not have got what
        it missed since."""

    def strike(self, event: Event) -> None:
        """Begin an event and return."""
        done = Done(event, time.monotonic())
        self.done.append(done)
        thread = threading.Thread(target=self._run, args=(done,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self, seconds: float) -> None:
        """End all running events now, and wait for that."""
        self._halt.set()
        limit = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))

    def empty(self, node: str, at: float) -> None:
        """Start a stopped node without data; this counts as an older copy."""
        part = self.world.master(node)
        done = Done(Event(at, "older", 0.0, {"node": node}), time.monotonic())
        done.since = self._behind[node] = -math.inf
        with part.lock:
            part.kill()
            part.wipe()
            part.start()
        done.over = time.monotonic()
        self.done.append(done)

    def _until_on_way(self, event: Event, name: str) -> None:
        """Wait until some known pages of a crawl are on their way; if the fault harms a node, wait
        until they are at that node."""
        given = event.arguments
        node = str(given.get("node") or given.get("part"))[:1]
        limit = time.monotonic() + ON_WAY_SECONDS
        while time.monotonic() < limit and not self._halt.wait(ON_WAY_LOOK_SECONDS):
            with suppress(redis.RedisError, OSError):
                ids = [row.id for row in self.world.sql().crawls() if row.name == name]
                for one in [node] if node in NODES else NODES:
                    found = Tasks()
                    for crawl in ids:
                        note_tasks(found, self.world.master(one).client, crawl)
                    if found.refetches.total() >= ON_WAY_LEAST:
                        return

    def _run(self, done: Done) -> None:
        event = done.event
        try:
            if until := event.arguments.get("until"):
                self._until_on_way(event, until)
                done.began = time.monotonic()
            getattr(self, f"_{event.kind}")(event, done)
        except (OSError, redis.RedisError, StopIteration) as error:
            done.skipped = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001
            done.skipped = f"{type(error).__name__}: {error}"
            self._say(f"! {event}: {done.skipped}")
        done.over = time.monotonic()

    def _hold(self, event: Event) -> None:
        self._halt.wait(event.seconds)

    def _part(self, name: str) -> Any:
        return self.world.master(name) if name in NODES else self.world.parts[name]

    def _state_of(self, node: str) -> float:
        """Return the time of a node's state: now, unless the node came back and has not got what it
        missed."""
        if is_told(self.world.master(node).client):
            self._behind.pop(node, None)
        return self._behind.get(node, time.monotonic())

    # -- faults

    def _kill(self, event: Event, done: Done) -> None:
        name = event.arguments["part"]
        part = self._part(name)
        if event.arguments.get("what") == "child" and len(part.family()) > 1:
            part.kill_child()
            return
        if isinstance(part, RedisPart) and part is self.world.master(node := name[:1]):
            known = self._state_of(node) if part.written() else -math.inf
            done.since = self._behind[node] = known
        part.kill()
        self._hold(event)
        part.start()

    def _twin(self, event: Event, done: Done) -> None:
        with self.world.twin(event.arguments["part"]):
            self._hold(event)

    def _stop(self, event: Event, done: Done) -> None:
        part = self._part(event.arguments["part"])
        part.freeze()
        try:
            if self.world.store == "sqlite":
                writer = sqlite_writer(self.world.sqlite)
                done.holds_sql = writer in {process.pid for process in part.family()}
            self._hold(event)
        finally:
            part.thaw()

    def _cut(self, event: Event, done: Done) -> None:
        link = event.arguments["link"]
        self.world.links.cut(link, event.arguments["how"])
        self._hold(event)
        self.world.links.mend(link)

    def _memory(self, event: Event, done: Done) -> None:
        self.world.full(event.arguments["node"])
        self._hold(event)
        self.world.roomy(event.arguments["node"])

    def _disk(self, event: Event, done: Done) -> None:
        place = event.arguments["place"]
        folder = self.world.master(place).folder if place in NODES else self.world.folder / place
        if folder not in self.world.disks:
            done.skipped = "no disk can be mounted here"
            return
        self.world.fill_disk(folder)
        self._hold(event)
        self.world.clear_disk(folder)

    def _clock(self, event: Event, done: Done) -> None:
        part = self.world.master(event.arguments["node"])
        if not part.clocked:
            done.skipped = "libfaketime is not installed"
            return
        part.set_clock(event.arguments["offset"])

    def _copy(self, event: Event, done: Done) -> None:
        node = event.arguments["node"]
        place = self.world.folder / f"copy-{node}.rdb"
        since = self._state_of(node)
        if self.world.master(node).copy(place):
            self.world.copies[node] = place, since
        else:
            done.skipped = "no copy could be made then"

    def _older(self, event: Event, done: Done) -> None:
        node = event.arguments["node"]
        if event.arguments.get("fresh"):
            self._copy(event, done)
            if done.skipped:  # there may be a copy, but of an older state
                return
            self._halt.wait(FRESH_SECONDS)
        if node not in self.world.copies:
            done.skipped = "no copy was made before"
            return
        place, done.since = self.world.copies[node]
        part = self.world.master(node)
        with part.lock:
            part.kill()
            self._behind[node] = done.since
            self._hold(event)
            part.restore(place)
            done.held = _held(part)

    def _promote(self, event: Event, done: Done) -> None:
        node = event.arguments["node"]
        known = self._state_of(node)
        old, heard = self.world.promote(node, event.arguments["minority"])
        done.since = self._behind[node] = min(known, heard)
        done.held = _held(self.world.master(node))
        self._hold(event)
        self.world.rejoin(node, old)

    def _lock(self, event: Event, done: Done) -> None:
        with self.world.sql_locked():
            self._hold(event)

    # -- operations

    def _call(self, op: str, event: Event, **given: Any) -> None:
        """Call one broker, then the other, a few times: an operator tries again."""
        brokers = list(self.world.api.brokers)
        crawl = event.arguments["crawl"]
        for attempt in range(CALL_TRIES):
            broker = brokers[(int(event.at * 10) + attempt) % len(brokers)]
            call = self.world.api.call(broker, op, crawl, **given)
            if call.status not in (0, 429, 500, 503) or self._halt.wait(CALL_AGAIN_SECONDS):
                return

    def _create(self, event: Event, done: Done) -> None:
        graph = graph_of(f"/{event.arguments['graph']}/")
        assert graph is not None
        port = self.world.target_port
        logins = {n for n in map(graph.host, range(graph.hosts)) if has_login(n)}
        origins = {n: f"http://{address(n)}:{port}" for n in sorted(logins)}
        options: dict[str, Any] = {
            "scope": "any",
            "delay": DELAY_SECONDS,
            "sitemaps": "off",
            "traps": "off",
            **options_of(graph),
            **{name: event.arguments[name] for name in LIMITS if name in event.arguments},
            "auth": [
                {
                    "kind": "form",
                    "name": f"site{number}",
                    "hosts": [origin],
                    "login_url": f"{origin}/login",
                }
                for number, origin in origins.items()
            ],
        }
        urls = graph.seeds(event.arguments["seeds"], port)
        self._call("create", event, urls=urls, options=options)

    def _seed(self, event: Event, done: Done) -> None:
        graph = graph_of(f"/{event.arguments['graph']}/")
        assert graph is not None
        leaves = event.arguments["leaves"]
        urls = [
            graph.url(i % graph.hosts, leaf, self.world.target_port)
            for i, leaf in enumerate(leaves)
        ]
        self._call("seed", event, urls=urls, force=event.arguments.get("force", False))

    def _pause(self, event: Event, done: Done) -> None:
        self._call("pause", event)

    def _resume(self, event: Event, done: Done) -> None:
        self._call("resume", event)

    def _delete(self, event: Event, done: Done) -> None:
        self._call("delete", event)

    def _requeue(self, event: Event, done: Done) -> None:
        self._call("requeue", event)

    def _release(self, event: Event, done: Done) -> None:
        self._call("release", event)


def _held(part: RedisPart) -> set[str] | None:
    """Return the unfinished tasks of a node; no session opens there for some seconds yet."""
    try:
        return unfinished(part.client)
    except (redis.RedisError, OSError):
        return None
