"""Decides which call gets which host next: one leasing greenlet per broker.

For each partition and crawl it keeps when the earliest host is due (crawl 0: when ``maintain`` has
work). It sleeps until the first of these moments, and hands what it leases to the waiting calls.
The call with most room gets only as many partitions as make it about equal to the others that wait.
Calls that were served a moment ago and will ask again count, too: otherwise, while one of them
reads its answer, all due hosts would go to another. After a second without a lease, a new call
waits a moment for others, so that processes that start together share what is due. A call whose
caller has died gets nothing. Crawls share by weight.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import gevent
from gevent.event import Event

from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.waiting import DueTimes, Key, Returning, Turns, Waiter, level_part
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import Trouble, logger
from greencrawl.schema.records import Crawl, LeaseReply, LeaseRequest
from greencrawl.schema.wire import to_msgpack

log = logger("leasing")

SESSION_LIFE_SECONDS = 1800.0
"""The longest life of a session, however often it is extended."""
MAINTAIN_MOST = 32
SESSIONS_A_CALL = 32
"""One script opens at most this many sessions: a partition may have thousands of hosts."""
SUPERSEDED_SECONDS = 1.0
"""How long the answer to a superseded worker is delayed, so that it does not ask without pause.

The same holds for a worker that seems to have gone.
"""
AWAY_RECHECK_SECONDS = 0.5
REFUSED_RECHECK_SECONDS = 0.5
"""Seconds between two checks whether a waiting call takes a crawl that earlier calls refused."""
NO_LEASE_SECONDS, CALLS_SECONDS = 1.0, 0.1
"""If no lease was given for ``NO_LEASE_SECONDS``, the next call waits for up to ``CALLS_SECONDS``,
so that other calls can share what is due."""


class Calls(Protocol):
    """Runs a script on several partitions: {partition: arguments} → {partition: reply}.

    ``partial``: leave out partitions whose node is away; raise Unavailable only if all nodes are.
    """

    def __call__(
        self, script: str, calls: dict[int, bytes], *, partial: bool = False
    ) -> dict[int, list[Any]]: ...


class Leasing:
    """The due times, the waiting calls, and the fair order among crawls."""

    def __init__(
        self,
        calls: Calls,
        clock_ms: Callable[[int], float],
        crawl: Callable[[int], Crawl | None],
        opened: Callable[[int], None],
        longest_request_seconds: float,
        left_out: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Build the object; ``left_out`` returns whether a partition's node is away while others
        serve."""
        self._calls = calls
        self._clock_ms = clock_ms
        self._crawl = crawl
        self._opened = opened
        self._left_out = left_out
        self._longest_ms = round(longest_request_seconds * 1000)
        self._hosts = DueTimes()
        self._upkeep = DueTimes()
        self._waiters: deque[Waiter] = deque()
        self._returning = Returning()
        self._given = self._wait_until = -inf
        """When something was last leased, and until when calls wait to be served together."""
        self._changed = Event()
        self._turns = Turns()

    # -- what is due

    def note(self, partition: int, crawl: int, ms: float) -> None:
        """Note that something of (partition, crawl) is due at logical ``ms``; 0: nothing is.

        The earlier of this and the known time is kept: one look too many is harmless, and a message
        that overtakes an older answer is not lost.
        """
        if ms:
            self._note((partition, crawl), monotonic() + (ms - self._clock_ms(partition)) / 1000)

    def _postpone(self, key: Key, seconds: float) -> None:
        self._note(key, monotonic() + seconds)

    def _note(self, key: Key, at: float) -> None:
        if (self._hosts if key[1] else self._upkeep).note(key, at):
            self._changed.set()

    # -- the calls that wait

    @property
    def waiting(self) -> int:
        """Return how many lease calls wait now."""
        return len(self._waiters)

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Open sessions for a worker, waiting up to ``request.wait`` seconds for the first.

        Raises Unavailable if Redis went away in between. Then sessions may have been opened; the
        worker's next reconcile releases them.
        """
        waiter = Waiter(request)
        self._returning.back(request.worker)
        self._waiters.append(waiter)
        self._changed.set()
        try:
            if not waiter.done.wait(request.wait) and waiter.serving:
                waiter.done.wait()  # one look at Redis: see _serve
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        if waiter.error is not None:
            raise waiter.error
        if (waiter.superseded or waiter.gone) and not waiter.sessions:
            gevent.sleep(min(request.wait, SUPERSEDED_SECONDS))
        waited = waiter.opened - waiter.arrived
        return LeaseReply(tuple(waiter.sessions), waited, waiter.lost, waiter.superseded)

    def run(self) -> None:
        """Lease for ever; the leasing greenlet runs this."""
        pause, trouble = 0.1, Trouble(log, "leasing_delayed", "leasing_resumed")
        while True:
            self._changed.clear()
            try:
                self._maintain()
                while self._waiters and self._serve():
                    pass
            except Unavailable as error:
                trouble.failed(reason=str(error))
            except Exception:  # a bug must not stop all leasing for good
                log.exception("leasing_failed")
            else:
                trouble.done()
                pause = 0.1
                self._sleep()
                continue
            gevent.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _sleep(self) -> None:
        """Sleep until something is due, or something changed."""
        moments = [self._upkeep.first(), self._hosts.first() if self._waiters else None]
        first = min((at for at in moments if at is not None), default=None)
        self._changed.wait(None if first is None else max(first - monotonic(), 0))

    def _maintain(self) -> None:
        keys = self._upkeep.take()
        if not keys:
            return
        args = to_msgpack([MAINTAIN_MOST])
        try:
            replies = self._calls("maintain", {p: args for p, _ in keys}, partial=True)
            for p, (_, _, _, maintain_at) in replies.items():
                self.note(p, 0, maintain_at)
        except BaseException:
            for key in keys:
                self._postpone(key, 1.0)
            raise
        for key in keys:
            if key[0] not in replies:  # its node is away
                self._postpone(key, 1.0)

    # -- serving

    def _serve(self) -> bool:
        """Serve a waiting call with what is due now; return False if nothing is.

        Each key that was taken is noted again, even after an error: one look too many is harmless,
        one too few leaves a host waiting for ever.
        """
        keys = self._hosts.take()
        try:
            return self._serve_from(keys)
        except BaseException:
            for key in keys:
                self._postpone(key, AWAY_RECHECK_SECONDS)
            raise

    def _serve_from(self, keys: list[Key]) -> bool:
        by_partition: dict[int, list[Crawl]] = {}
        for key in keys:
            p, crawl_id = key
            if self._left_out(p):
                self._postpone(key, AWAY_RECHECK_SECONDS)
                continue
            crawl = self._crawl(crawl_id)
            if crawl is not None:
                by_partition.setdefault(p, []).append(crawl)
        if not by_partition:
            return False
        for one in [one for one in self._waiters if not one.is_there()]:
            log.info("caller_lost", worker=one.request.worker)
            one.gone = True
            self._settle(one)
        if not self._waiters:  # all have given up while the store or Redis was asked
            self._postpone_all(by_partition, 0.0)
            return False
        wait = self._wait_for_calls(len(by_partition))
        if wait > 0:
            self._postpone_all(by_partition, wait)
            return False
        waiter, by_partition = self._first_taker(by_partition)
        if waiter is None:
            return False
        waiter.serving = True
        try:
            most = self._level(waiter, len(by_partition))
            if not most:
                waiter.serving = False
                self._postpone_all(by_partition, self._returning.seconds())
                return False
            calls, asked = self._share(waiter, by_partition, most)
            opened = self._given = monotonic()
            replies = self._open(calls)
            waiter.lost = waiter.lost or len(replies) < len(calls)
            self._collect(waiter, replies, asked)
        except BaseException as error:
            waiter.error = error if isinstance(error, Unavailable) else Unavailable(repr(error))
            self._settle(waiter)
            raise
        self._postpone_all({p: due for p, due in by_partition.items() if p not in calls}, 0.0)
        away = {p: due for p, due in by_partition.items() if p in calls and p not in replies}
        self._postpone_all(away, AWAY_RECHECK_SECONDS)
        old = any(reply[0] == b"OLD" for reply in replies.values())
        if waiter.sessions or old or monotonic() >= waiter.until:
            waiter.opened = opened
            self._settle(waiter)
        else:
            waiter.serving = False
        return True

    def _wait_for_calls(self, due: int) -> float:
        """Return for how many seconds due partitions are kept for calls that may come."""
        now = monotonic()
        if due < 2 or now - self._given < NO_LEASE_SECONDS:
            return 0.0
        if max(waiter.request.max_sessions for waiter in self._waiters) < due:
            return 0.0  # enough is left for the next call
        if now - max(waiter.arrived for waiter in self._waiters) >= CALLS_SECONDS:
            return 0.0
        if min(waiter.until for waiter in self._waiters) - now < 2 * CALLS_SECONDS:
            return 0.0
        if now - self._wait_until > NO_LEASE_SECONDS:
            self._wait_until = now + CALLS_SECONDS
        return self._wait_until - now

    def _first_taker(
        self, due: dict[int, list[Crawl]]
    ) -> tuple[Waiter | None, dict[int, list[Crawl]]]:
        """Return the waiting call with most room that takes something of what is due, and what it
        takes.

        The rest is for the next call. Crawls that no call takes, since no worker can import their
        hook, wait.
        """
        most = self._most_free_sessions()
        for waiter in sorted(self._waiters, key=lambda one: -one.free_sessions(most)):
            if not waiter.request.refuses:
                return waiter, due
            taken = {p: [c for c in crawls if waiter.takes(c)] for p, crawls in due.items()}
            taken = {p: crawls for p, crawls in taken.items() if crawls}
            if not taken:
                continue
            left = {p: [c for c in crawls if not waiter.takes(c)] for p, crawls in due.items()}
            self._postpone_all(left, 0.0)
            return waiter, taken
        self._postpone_all(due, REFUSED_RECHECK_SECONDS)
        return None, {}

    def _postpone_all(self, due: dict[int, list[Crawl]], seconds: float) -> None:
        for p, crawls in due.items():
            for crawl in crawls:
                self._postpone((p, crawl.id), seconds)

    def _settle(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if waiter.sessions:
            self._returning.served(waiter.request, len(waiter.sessions))
        waiter.done.set()

    def _level(self, waiter: Waiter, due: int) -> int:
        """Return how many of the due partitions go to the call; 0: they are kept for a call that is
        about to come back."""
        most = self._most_free_sessions()
        waiting = [
            one.free_sessions(most)
            for one in self._waiters
            # a call that refuses crawls may refuse all that are due
            if one is not waiter and not one.request.refuses
        ]
        others = waiting + self._returning.free_sessions()
        if others and not waiter.is_fresh():
            return 1  # its worker soon asks again, and then reports its room
        return min(waiter.request.max_sessions, level_part(due, waiter.free_sessions(most), others))

    def _most_free_sessions(self) -> int:
        said = [one.request.max_sessions for one in self._waiters]
        return max(said + self._returning.free_sessions(), default=0)

    def _share(
        self, waiter: Waiter, due: dict[int, list[Crawl]], most: int
    ) -> tuple[dict[int, list[Any]], dict[int, list[int]]]:
        """Split the wanted sessions over ``most`` partitions, and over crawls by weight."""
        partitions, request = list(due), waiter.request
        wanted = request.max_sessions
        if len(partitions) > most:
            start = secrets.randbelow(len(partitions))
            partitions = (partitions[start:] + partitions[:start])[:most]
        base, extra = divmod(wanted, len(partitions))
        shares = self._turns.share(
            {p: min(base + (i < extra), SESSIONS_A_CALL) for i, p in enumerate(partitions)},
            due,
            request.tasks_per_session,
        )
        calls: dict[int, list[Any]] = {}
        asked: dict[int, list[int]] = {}
        for p, share in shares.items():
            rows: list[Any] = []
            for crawl_id, sessions in share.items():
                tokens = [secrets.token_hex(8) for _ in range(sessions)]
                rows.append([crawl_id, sessions, *tokens])
            asked[p] = list(share)
            calls[p] = [
                request.worker, request.incarnation, request.sequence, round(request.ttl * 1000),
                round(SESSION_LIFE_SECONDS * 1000), self._longest_ms, request.tasks_per_session,
                0, *rows,
            ]  # fmt: skip
        return calls, asked

    def _open(self, calls: dict[int, list[Any]]) -> dict[int, list[Any]]:
        """Open sessions under the chosen tokens; after a lost answer, ask once again under the same
        ones.

        Partitions on nodes that are away are left out; if all are away, it raises Unavailable. If a
        session was opened there without an answer, its deadline or the worker's next reconcile
        releases it.
        """
        try:
            found = self._calls(
                "open", {p: to_msgpack(args) for p, args in calls.items()}, partial=True
            )
            lost = calls.keys() - found.keys()
            if not lost:
                return found
        except Unavailable:
            found, lost = {}, set(calls)
        again = {p: to_msgpack([*calls[p][:7], 1, *calls[p][8:]]) for p in lost}
        try:
            return found | self._calls("open", again, partial=True)
        except Unavailable:
            if not found:
                raise
            return found

    def _collect(
        self, waiter: Waiter, replies: dict[int, list[Any]], asked: dict[int, list[int]]
    ) -> None:
        for p, reply in replies.items():
            if reply[0] == b"OLD":
                waiter.superseded = max(waiter.superseded, reply[2])
                for crawl_id in asked[p]:
                    self._postpone((p, crawl_id), 0.0)
                continue
            _, sessions, nexts, maintain_at = reply
            for row in sessions:
                session = part.session_of(p, waiter.request.ttl, row)
                waiter.sessions.append(session)
                self._turns.charge(session.crawl, len(session.tasks), self._crawl(session.crawl))
                self._opened(session.crawl)
            for crawl_id, due in zip(asked[p], nexts, strict=True):
                self.note(p, crawl_id, due)
            self.note(p, 0, maintain_at)
