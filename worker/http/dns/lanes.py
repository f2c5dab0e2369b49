"""Limits on concurrent look-ups: a share for each domain, and a lane for slow ones.

Only host sessions ask for names, so there are never more look-ups than sessions. Still one zone
could take all sessions: the author of a link decides which name is looked up. So a registrable
domain has at most :data:`DOMAIN_LOOKUPS` under way; further ones wait for a moment. A look-up that
takes longer than :data:`SLOW_SECONDS` also needs one of :data:`SLOW_LOOKUPS` places, whatever its
domain is. Only the recursive server knows the server of a zone, and a thousand domains may have the
same. A look-up that finds no place raises NoShare: its session goes back without a failure, with
the time at which it is due again. Quick look-ups never wait for slow ones.
"""

from __future__ import annotations

from collections.abc import Callable

from gevent.event import Event

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.net.urls import registrable_domain
from greencrawl.schema.records import PutOff
from greencrawl.worker.session.caps import NoShare

DOMAIN_LOOKUPS = 8
SLOW_LOOKUPS = 64
SLOW_SECONDS = 1.0
CROWDED_SECONDS = 0.3
"""A look-up is slow after this long, if it began when there was no place for slow ones.

If the recursive server finds the answer later, it can give it at the next turn of the look-up.
"""
PATIENCE_SECONDS = 1.0
"""How long a look-up waits for the share of its domain; after that its session goes back."""
LONGEST_TURN_SECONDS = 300.0
MOST_DOMAINS = 10_000

_GUESS_SECONDS = 0.05
_SLOW_GUESS_SECONDS = 5.0
"""The assumed time until a place becomes free, before any has become free."""
_NEWEST = 0.3
"""Weight of the newest look-up in the mean duration."""


class Lane:
    """A number of places, and how long they are taken. It has no lock: only :meth:`wait` yields."""

    __slots__ = ("_places", "_seconds", "_turn", "_waiting", "taken")

    def __init__(self, places: int, seconds: float = _GUESS_SECONDS) -> None:
        self._places = places
        self._seconds = seconds
        self._turn = 0.0
        self._waiting: list[Event] = []
        self.taken = 0

    @property
    def full(self) -> bool:
        """Return whether there is no free place."""
        return self.taken >= self._places

    def take(self) -> bool:
        """Take a place if there is one."""
        if self.full:
            return False
        self.taken += 1
        return True

    def wait(self, seconds: float) -> bool:
        """Take the first place that becomes free within this long; return False if that is
        unlikely."""
        if self.take():
            return True
        if len(self._waiting) >= max(1.0, self._places * seconds / self._seconds):
            return False
        mine = Event()
        self._waiting.append(mine)
        try:
            mine.wait(seconds)
        except BaseException:
            if mine.is_set():
                self._pass_on()
            raise
        finally:
            if not mine.is_set():
                self._waiting.remove(mine)
        return mine.is_set()

    def leave(self, took: float) -> None:
        """Free a place that was taken for this long."""
        self._seconds += _NEWEST * (max(took, 0.001) - self._seconds)
        self._pass_on()

    def lasts(self, seconds: float) -> None:
        """Note that a place has been held, or waited for, for this long."""
        self._seconds = max(self._seconds, seconds)

    def next_turn(self, now: float) -> float:
        """Return the seconds until a look-up that found no place has its turn; turns come one by
        one."""
        self._turn = max(self._turn, now + self._seconds) + self._seconds / self._places
        return min(self._turn - now, LONGEST_TURN_SECONDS)

    def idle(self, now: float) -> bool:
        """Return whether all places are free and no turn is pending."""
        return not self.taken and self._turn <= now

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.pop(0).set()
        else:
            self.taken -= 1


class Place:
    """The permission to look up one name, until :meth:`end`."""

    __slots__ = ("_began", "_clock", "_domain", "_forget", "_lane", "_slow", "_slow_since")

    def __init__(
        self, domain: str, lane: Lane, slow: Lane, forget: Callable[[str], object], clock: Clock
    ) -> None:
        self._domain, self._lane, self._slow = domain, lane, slow
        self._forget, self._clock = forget, clock
        self._began = clock()
        self._slow_since: float | None = None

    @property
    def slow_at(self) -> float:
        """Return when the look-up counts as slow."""
        return self._began + (CROWDED_SECONDS if self._slow.full else SLOW_SECONDS)

    def turn_slow(self) -> None:
        """Count the look-up as slow. Raises NoShare if too many look-ups are slow; :meth:`end` must
        still be called."""
        if self._slow_since is not None:
            return
        now = self._clock()
        self._lane.lasts(now - self._began)
        if not self._slow.take():
            why = f"{SLOW_LOOKUPS} look-ups of DNS that take long are under way"
            raise NoShare(self._domain, self._slow.next_turn(now), why, PutOff.LOOK_UP)
        self._slow_since = now

    def end(self) -> None:
        """End the look-up."""
        now = self._clock()
        self._lane.leave(now - self._began)
        if self._lane.idle(now):
            self._forget(self._domain)
        if self._slow_since is not None:
            self._slow.leave(now - self._slow_since)


class Lanes:
    """The look-ups of one process."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._slow = Lane(SLOW_LOOKUPS, _SLOW_GUESS_SECONDS)
        self._domains: dict[str, Lane] = {}

    @property
    def slow(self) -> int:
        """Return how many slow look-ups are under way."""
        return self._slow.taken

    def enter(self, name: str) -> Place:
        """Wait for a place of the name's domain. Raises NoShare."""
        domain = _domain(name)
        lane = self._domains.get(domain)
        if lane is None:
            self._forget_some()
            lane = self._domains[domain] = Lane(DOMAIN_LOOKUPS)
        if not lane.wait(PATIENCE_SECONDS):
            lane.lasts(PATIENCE_SECONDS)
            why = f"{DOMAIN_LOOKUPS} look-ups of its names are under way, and take long"
            raise NoShare(domain, lane.next_turn(self._clock()), why, PutOff.LOOK_UP)
        return Place(domain, lane, self._slow, self._forget, self._clock)

    def _forget(self, domain: str) -> None:
        self._domains.pop(domain, None)

    def _forget_some(self) -> None:
        """Drop unused turns, the oldest first, so that there are never too many."""
        for domain in list(self._domains) if len(self._domains) >= MOST_DOMAINS else ():
            if not self._domains[domain].taken:
                del self._domains[domain]
                return


def _domain(name: str) -> str:
    """Return the registrable domain of a name; under an unknown suffix, its last two labels."""
    found = registrable_domain(name)
    return found if found != name else ".".join(name.rsplit(".", 2)[-2:])
