"""How many sessions of a worker each kind of host may use: slow hosts must not delay others.

A session is *slow* while one of its requests has been under way for longer than
:data:`SLOW_SECONDS`. Such a session needs little but memory, so it is not counted among the
greenlets. The session of an unknown host that has been silent for :data:`SILENT_SECONDS` is not
counted, either. Other hosts may take the places of such sessions, until the slow sessions are
:data:`SLOW_SHARE` times as many as the greenlets. Running sessions alone must not fill this limit.
So unknown hosts, and hosts that are known to be slow or to fail, count as slow from their start.
Hosts that are known to be slow or to fail may fill only half of the limit. Beyond its limit, a
session is handed back at once, and its host rests for a while, here and at every other worker.
Hosts known to be in good order never wait for slow hosts. An unknown host does not wait for other
unknown hosts that have sent nothing. The connection to the unknown host that is silent for longest
is closed; that host counts as failing, and its URLs go back without a failure.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import CloseItem, HostReport, PutOff, Session
from greencrawl.worker.session.held import HeldSession

SLOW_SECONDS = 2.0
"""A host whose answers take longer is slow."""
SILENT_SECONDS = 1.0
"""An unknown host that has been silent for this long delays no others.

From then on its session is not counted among the greenlets.
"""
SLOW_SHARE = 2
"""There are at most this many slow sessions for each greenlet."""
FRESH_SHARE = 0.5
"""The share of the greenlets for unknown hosts that replace silent ones."""
REST_SECONDS = 20.0
"""A host that found no room rests about this long: by then some hosts before it are finished.

An unknown host rests for less if few others wait.
"""
SLOWED_SECONDS = 1.0
"""A host whose delay exceeds the least one by this much has been slow, or has failed."""
_MOST_HOSTS = 10_000
_NO_ROOM = "it found no room: too many slow or unknown hosts are being fetched from"


def never(_: float) -> float:
    """Return 0: no time has passed since any moment."""
    return 0.0


class SlowHosts:
    """The slow sessions of one process. It has no lock: its methods never yield to the hub."""

    def __init__(self, greenlets: int) -> None:
        self.resize(greenlets)
        self._slow_hosts: OrderedDict[str, None] = OrderedDict()
        self._doubtful: set[HeldSession] = set()
        self._slow_sessions: set[HeldSession] = set()
        self._silent: set[HeldSession] = set()
        self._refused = False
        self._turned_away: deque[float] = deque()
        """When unknown hosts were handed back lately."""
        self.rest = REST_SECONDS
        """About how long the host rests that was handed back last."""

    def resize(self, greenlets: int) -> None:
        """Set the number of greenlets; see :meth:`end_beyond`."""
        self._greenlets = greenlets
        self._most = SLOW_SHARE * greenlets
        self._fresh = max(1, round(FRESH_SHARE * greenlets))

    def end_beyond(self, sessions: Iterable[HeldSession]) -> None:
        """End surplus sessions of each sort; the latest first."""
        going = [held for held in sessions if held.fetching and not held.ended]
        slow = [held for held in going if held in self._slow_sessions or held in self._silent]
        others = [held for held in going if held not in self._slow_sessions | self._silent]
        for held in [*slow[self._most :], *others[self._greenlets :]]:
            held.end_soon()

    @property
    def slow(self) -> int:
        """Return how many sessions are slow, or silent and unknown, as of the last :meth:`look`."""
        return len(self._slow_sessions | self._silent)

    def admits(self, held: HeldSession) -> bool:
        """Return whether a session may begin now; False once there are too many of its kind."""
        session = held.session
        known = session.host in self._slow_hosts or _is_slow(session)
        if not known and session.robots_known:
            return True
        most = self._most // 2 if known else self._most
        if len(self._doubtful | self._slow_sessions) >= most and (known or not self._cut_one()):
            self._refused = True
            self.rest = REST_SECONDS if known else self._wait_of_strangers()
            return False
        self._doubtful.add(held)
        return True

    def _wait_of_strangers(self) -> float:
        """Return how long one more unknown host rests: about as long as those before it take.

        Each of them shows within :data:`SLOW_SECONDS` whether it sends something.
        """
        now = monotonic()
        while self._turned_away and now - self._turned_away[0] > REST_SECONDS:
            self._turned_away.popleft()
        self._turned_away.append(now)
        turns = len(self._turned_away) / self._fresh
        return min(max(turns, 1.0) * SLOW_SECONDS * 1.25, REST_SECONDS)

    def _cut_one(self) -> bool:
        """Cut off the unknown host that is silent for longest; return False if there is none.

        Cut off no host, either, while :data:`FRESH_SHARE` of the greenlets have unknown hosts that
        are not slow yet: more of them would leave no greenlet to hosts in good order.
        """
        if len(self._doubtful - self._slow_sessions) >= self._fresh:
            return False
        silent = [
            (held.since, held.cut, held)
            for held in self._slow_sessions & self._doubtful
            if held.since is not None and held.cut is not None and held.ended in ("", "stop")
        ]
        for _, cut, held in sorted(silent, key=lambda one: one[0]):
            if cut():
                held.ended = "silent"
                return True
        return False

    def look(
        self, sessions: Iterable[HeldSession], now: float, blocked: Callable[[float], float] = never
    ) -> bool:
        """Find the sessions that are slow at ``now`` (monotonic clock); return True if they have
        changed.

        ``blocked`` returns for how long this process did other things since a moment. If a host
        found no room, slow sessions are to end after their present request.
        """
        before = self._slow_sessions, self._silent
        self._slow_sessions, self._silent = set(), set()
        for held in sessions:
            if held.since is None or now - held.since <= SILENT_SECONDS:
                continue
            waited = now - held.since - blocked(held.since)
            if waited > SLOW_SECONDS:
                self._slow_sessions.add(held)
            elif waited > SILENT_SECONDS and held in self._doubtful and held.cut is not None:
                self._silent.add(held)
        for held in self._slow_sessions - before[0]:
            self._note(held.session.host)
        if self._refused:
            for held in self._slow_sessions:
                held.ended = held.ended or "stop"
            self._refused = False
        return (self._slow_sessions, self._silent) != before

    def ended(self, held: HeldSession, close: CloseItem | None) -> None:
        """Note the end of a session; ``close`` has its report, None if that is not known."""
        self._doubtful.discard(held)
        self._slow_sessions.discard(held)
        self._silent.discard(held)
        if close is None:
            return
        report = close.report
        if report.failed or report.latency > SLOW_SECONDS:
            self._note(held.session.host)
        elif report.latency:  # it answered soon
            self._slow_hosts.pop(held.session.host, None)

    def _note(self, host: str) -> None:
        self._slow_hosts.pop(host, None)
        self._slow_hosts[host] = None
        if len(self._slow_hosts) > _MOST_HOSTS:
            self._slow_hosts.popitem(last=False)


def _is_slow(session: Session) -> bool:
    return session.failures > 0 or session.delay >= session.floor + SLOWED_SECONDS


def refusal(session: Session, seconds: float = REST_SECONDS) -> CloseItem:
    """Return the close of a session for which there is no room: without a request or a report."""
    rest = seconds * random.uniform(0.75, 1.5)
    own = session.delay if session.delay > session.floor else 0.0
    return CloseItem(
        session=session.session,
        token=session.token,
        report=HostReport(delay=own, block=rest, why=_NO_ROOM, put_off=PutOff.SLOW),
        release=tuple(task.number for task in session.tasks),
    )
