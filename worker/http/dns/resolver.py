"""Resolves host names and judges every answer; the only way from a name to a connection.

A name is first looked up in the cache and in the hosts file. Then name servers are asked for it, or
the system, if DNS cannot have the name or the settings say so. At most one look-up per name is
under way: all callers wait for it, and it ends when none is left. The result is kept in a bounded
table as long as it is valid.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gevent

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.records import Failure, FailureKind
from greencrawl.schema.text.variables import SYSTEM
from greencrawl.worker.http.addresses import Network, forbidden
from greencrawl.worker.http.dns.lanes import Lanes
from greencrawl.worker.http.dns.order import best_first
from greencrawl.worker.http.dns.servers import MOST_SECONDS, NameServers
from greencrawl.worker.http.dns.system import (
    HOSTS,
    LOOKUP_THREADS,
    SYSTEM_THREADS,
    Found,
    Lookup,
    Reread,
    Threads,
    hosts,
    is_local,
    known_here,
    system_lookup,
    unanswered,
)
from greencrawl.worker.metrics.table import SLOT
from greencrawl.worker.metrics.tallies import Tallies
from greencrawl.worker.session.caps import NoShare

_LOOKUPS, _LOOKUP_SECONDS = SLOT["dns_lookups"], SLOT["dns_lookup_seconds"]
MAX_NAMES = 10_000
"""At most this many names are kept; the least recently used are dropped first."""
MAX_ADDRESSES = 8
"""At most this many addresses of a name are kept, and tried."""
LOOKUP_SECONDS = 20.0
"""The longest look-up."""


class _Entry(NamedTuple):
    answer: tuple[str, ...] | Failure
    expires: float


class _Asking:
    """A look-up under way, and how many wait for it."""

    __slots__ = ("greenlet", "waiting")

    def __init__(self, greenlet: gevent.Greenlet[..., tuple[str, ...] | Failure | NoShare]) -> None:
        self.greenlet = greenlet
        self.waiting = 0


class Resolver:
    """The resolver of a process. ``servers`` are asked, or those of the system if there are none.

    If ``servers`` is ``system``, threads ask the system's resolver (``getaddrinfo``) instead. A
    ``lookup`` replaces all other sources except literal addresses; it runs in a thread.
    """

    def __init__(
        self,
        allow_networks: Sequence[Network] = (),
        lookup: Lookup | None = None,
        *,
        servers: Sequence[str] = (),
        hosts_file: Path = HOSTS,
        max_names: int = MAX_NAMES,
        tallies: Tallies | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._tallies = tallies or Tallies()
        self._allow = tuple(allow_networks)
        self._system = tuple(servers) == (SYSTEM,)
        threads = SYSTEM_THREADS if self._system else LOOKUP_THREADS
        self._threads = Threads(lookup or system_lookup, threads)
        self._all_by_threads = lookup is not None
        self._named = bool(servers) and not self._system
        self._servers = NameServers(servers if self._named else (), clock=clock)
        self._hosts = Reread(hosts_file, hosts, clock)
        self._lanes = Lanes(clock)
        self._max_names = max_names
        self._clock = clock
        self._known: OrderedDict[str, _Entry] = OrderedDict()
        self._under_way: dict[str, _Asking] = {}

    def resolve(self, name: str, timeout: float) -> tuple[str, ...] | Failure:
        """Return judged addresses of ``name`` (a host name or an IP literal), best first.

        Waits at most ``timeout`` seconds. Forbidden addresses are left out; when no other is left,
        the answer is ADDRESS_FORBIDDEN. Never raises for an answer of DNS; raises NoShare if too
        many look-ups of the name's domain, or slow ones, are under way.
        """
        entry = self._known.get(name)
        if entry is not None and entry.expires > self._clock():
            self._known.move_to_end(name)
            return entry.answer
        asking = self._under_way.get(name)
        if asking is None:
            # In a greenlet of its own, so that the waiting callers can be killed one by one.
            asking = self._under_way[name] = _Asking(gevent.spawn(self._ask, name))
        asking.waiting += 1
        try:
            asking.greenlet.join(timeout)
        finally:
            asking.waiting -= 1
            if not asking.waiting and not asking.greenlet.ready():
                self._end(name, asking)
        if not asking.greenlet.ready():
            return unanswered(name, f"no answer within {timeout:.1f} s")
        answer = asking.greenlet.get()
        if isinstance(answer, NoShare):
            raise answer
        if isinstance(answer, gevent.GreenletExit):
            return unanswered(name, "the look-up was ended")
        return answer

    def close(self) -> None:
        """End all look-ups; a thread ends after its current one."""
        for name, asking in list(self._under_way.items()):
            self._end(name, asking)
        gevent.spawn(self._threads.close)

    def _end(self, name: str, asking: _Asking) -> None:
        """End a look-up that no caller waits for, and free what it holds."""
        if self._under_way.get(name) is asking:
            del self._under_way[name]
        asking.greenlet.kill(block=False)

    def _ask(self, name: str) -> tuple[str, ...] | Failure | NoShare:
        me, began = gevent.getcurrent(), self._clock()
        try:
            found = self._find(name)
        except NoShare as error:
            return error
        finally:
            self._tallies.add(_LOOKUPS)
            self._tallies.add(_LOOKUP_SECONDS, self._clock() - began)
            asking = self._under_way.get(name)
            if asking is not None and asking.greenlet is me:
                del self._under_way[name]
        answer = self._judge(name, found.addresses)
        self._known[name] = _Entry(answer, self._clock() + found.seconds)
        self._known.move_to_end(name)
        while len(self._known) > self._max_names:
            self._known.popitem(last=False)
        return answer

    def _find(self, name: str) -> Found:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            pass  # it is a name
        else:
            return Found((name,), MOST_SECONDS)
        if self._all_by_threads:
            return self._threads.ask(name)
        found = known_here(name, self._hosts.value())
        if found is not None:
            return found
        if is_local(name) and not self._named:
            return self._threads.ask(name)
        place = self._lanes.enter(name)
        try:
            if self._system:
                return self._threads.ask(name)
            return self._servers.ask(name, LOOKUP_SECONDS, place.slow_at, place.turn_slow)
        finally:
            place.end()

    def _judge(self, name: str, answers: tuple[str, ...] | Failure) -> tuple[str, ...] | Failure:
        """Return the addresses that may be connected to, in the order to try them."""
        if isinstance(answers, Failure):
            return answers
        refused = {address: forbidden(address, self._allow) for address in answers}
        good = [address for address, why in refused.items() if why is None]
        if good:
            return tuple(best_first(good)[:MAX_ADDRESSES])
        some = list(refused.items())[:MAX_ADDRESSES]
        if name in refused:
            return Failure(FailureKind.ADDRESS_FORBIDDEN, f"{name} ({refused[name]})", requests=0)
        told = ", ".join(f"{address} ({why})" for address, why in some)
        return Failure(FailureKind.ADDRESS_FORBIDDEN, f"{name} is {told}", requests=0)
