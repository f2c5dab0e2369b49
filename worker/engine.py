"""One worker process: a greenlet for each host session, and a few for the whole process.

The lease loop asks for as many sessions as greenlets are free, and starts them. An extender
(``greencrawl.worker.session.extending``) extends all of them. Outboxes and the writer carry results
away. The heartbeat shows the supervisor that the hub runs. The engine waits for brokers that are
away. After a lost answer the engine reconciles before it leases again; otherwise a host could wait
for the end of a lease that no worker knows of. A worker that is told of a later incarnation of
itself leases nothing: another process uses its name.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import gevent
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import (
    CloseItem,
    LeaseReply,
    LeaseRequest,
    ReconcileRequest,
    Refusal,
    Session,
)
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.process import heap
from greencrawl.worker.process.crash_record import CrashRecord
from greencrawl.worker.process.inflight_table import InflightTable
from greencrawl.worker.session.backoff import delays
from greencrawl.worker.session.extending import Extender
from greencrawl.worker.session.held import HeldSession, Sessions, unused
from greencrawl.worker.session.slow_hosts import SlowHosts, never, refusal

log = logger("worker")

WAIT_SECONDS = 20.0
PAUSE_SECONDS = 0.005
"""Seconds between two leases, so that hosts that fall due together come in one answer."""
OWED_SECONDS = 5.0
"""Seconds before the engine reconciles again because a node was away."""
LOOK_AROUND_SECONDS = 0.25
"""Seconds between two checks of which hosts are slow (``greencrawl.worker.session.slow_hosts``)."""
LOOK_SECONDS = 1.0
POSTPONED_SECONDS = 5.0
"""How long a stopping worker waits for the Redis node of its last messages."""
SUPERSEDED_SECONDS = 1.0, 5.0
"""The first and the longest pause of a superseded worker."""
AWAY_LOOKS = 3
"""After this many checks in a row without a ready broker, a stopping worker no longer waits."""


@dataclass(frozen=True)
class Limits:
    """The limits of a process.

    The broker knows it by ``worker`` and ``incarnation``; times in seconds.
    """

    worker: str
    incarnation: int
    greenlets: int
    lease_seconds: float
    beat_seconds: float = 1.0
    tasks_per_session: int = 32


class Engine:
    """The engine; see the module's docstring. :meth:`run` is the life of the process."""

    def __init__(
        self,
        limits: Limits,
        broker: BrokerClient,
        runner: Pipeline,
        sessions: Sessions,
        writer: Writer,
        outboxes: Sequence[Outbox[Any]],
        closing: Outbox[CloseItem],
        crash_record: CrashRecord,
        *,
        inflight: InflightTable | None = None,
        dead: tuple[int, ...] = (),
        dead_for: Callable[[], float] = lambda: 0.0,
        refusals: Callable[[], tuple[Refusal, ...]] = tuple,
        blocked: Callable[[float], float] = never,
        stopping: Event,
        clock: Clock = monotonic,
    ) -> None:
        self._limits = limits
        self._broker = broker
        self._runner = runner
        self._sessions = sessions
        self._writer = writer
        self._outboxes = outboxes
        self._closing = closing
        self._crash_record = crash_record
        self._inflight = inflight
        self._dead = dead
        """Earlier lives of this worker that are over."""
        self._dead_for = dead_for
        self._refusals = refusals
        self._blocked = blocked
        self._stopping = stopping
        self._clock = clock
        self._sequence = 0
        self._owed_at = math.inf
        """When to reconcile again, since a node was away the last time."""
        self._idle: tuple[str, ...] = ()
        """Sessions of dead processes that had no request under way, until all nodes have got this
        list."""
        self._freed = Event()
        self._greenlets = limits.greenlets
        self._resting = False
        """True if nothing is leased because an operator ordered it."""
        self._slow_hosts = SlowHosts(limits.greenlets)
        self._extender = Extender(broker, sessions, limits.lease_seconds, clock)
        self._failed = False
        self._superseded = False
        """True if another process has this worker's id, by the last answer of a broker."""

    def spawn(self, body: Callable[..., object], *args: object) -> gevent.Greenlet[..., Any]:
        """Start a greenlet that must not fail; if it does, the process ends with status 1."""
        return gevent.spawn(self._guarded, body, *args)

    def _guarded(self, body: Callable[..., object], *args: object) -> None:
        try:
            body(*args)
        except Exception:
            log.exception("worker_failed", part=getattr(body, "__qualname__", str(body)))
            self._failed = True
            self._stopping.set()

    def keep(self, *, greenlets: int, paused: bool, drain: bool) -> None:
        """Work with this many greenlets; lease nothing if ``paused`` or ``drain``.

        Surplus sessions end after their open request, and their unfetched tasks go back without a
        failure. With ``drain``, all sessions are surplus.
        """
        self._greenlets, self._resting = greenlets, paused or drain
        self._slow_hosts.resize(greenlets)
        if drain:
            for held in self._sessions.holding():
                held.end_soon()
        else:
            self._slow_hosts.end_beyond(self._sessions.holding())
        self._freed.set()

    @property
    def greenlets(self) -> int:
        """Return how many hosts may be fetched from at once."""
        return self._greenlets

    def run(self, grace_seconds: float) -> int:
        """Work until ``stopping`` is set, then drain; return the process's exit status.

        Draining: no further request is sent. Answers under way are read, stored and settled.
        Unfetched tasks are released, and sessions are closed. This takes at most ``grace_seconds``,
        and lasts only while a broker answers: brokers may be stopping as well.
        """
        services = [self.spawn(self._beat), self.spawn(self._writer.run)]
        services += [self.spawn(outbox.run) for outbox in self._outboxes]
        leasing = self.spawn(self._lease_loop)
        services += [self.spawn(self._extender.run), self.spawn(self._look_around)]
        services.append(self.spawn(heap.keep_small))
        self._stopping.wait()
        leasing.kill()
        for held in self._sessions.holding():
            held.interrupt()
        if not self._failed:
            ends = [gevent.spawn(self._drain), gevent.spawn(self._until_away)]
            gevent.wait(ends, grace_seconds, count=1)
            if ends[0].ready():
                ends[0].get()
                log.info("worker_stopped")
            elif self._nothing_left():
                log.info("worker_stopped", reason="no broker answers")
            else:  # the broker reaps the rest; their tasks are fetched again
                log.warning("sessions_not_released", held=len(self._sessions))
            gevent.killall(ends)
        gevent.killall(services)
        return 1 if self._failed else 0

    def _drain(self) -> None:
        while self._sessions.fetching:
            self._freed.wait()
            self._freed.clear()
        self._writer.join()
        for outbox in self._outboxes:
            outbox.join()
        for outbox in self._outboxes:
            outbox.join(postponed_seconds=POSTPONED_SECONDS)
        # After this, a lease on its way opens no session, and the worker's name is free.
        self._reconcile(leaving=True)

    def _nothing_left(self) -> bool:
        """Return whether brokers have received all results of this process."""
        if len(self._sessions) or not self._writer.join(0):
            return False
        return all(outbox.join(0) for outbox in self._outboxes)

    def _until_away(self) -> None:
        """Return when several checks found no broker ready, with its Redis and store."""
        missed = 0
        while missed < AWAY_LOOKS:
            try:
                ready = gevent.with_timeout(LOOK_SECONDS, self._broker.ready, timeout_value=False)
            except Refused:
                ready = True  # a broker that refuses is there
            missed = 0 if ready else missed + 1
            gevent.sleep(LOOK_SECONDS)

    # -- leasing

    def _lease_loop(self) -> None:
        self._reconcile(idle=self._inflight.left() if self._inflight else ())
        if self._inflight is not None:
            self._inflight.begin()
        self._crash_record.set_ready()
        backoff = delays()
        while True:
            free = self._free()
            if free <= 0:
                self._freed.clear()
                self._freed.wait()
                continue
            if self._clock() >= self._owed_at:  # at this point none of our leases is on its way
                self._reconcile()
            sent, greenlets = self._clock(), self._greenlets
            try:
                reply = self._lease(free)
            except (Unavailable, Refused) as error:
                log.warning("sessions_not_leased", reason=str(error))
                gevent.sleep(next(backoff))
                self._reconcile()
                continue
            backoff = delays()
            if reply.superseded:
                self._reconcile()
                continue
            fewer = self._greenlets < greenlets  # it was ordered while the lease was on its way
            for session in reply.sessions:
                unwanted = self._resting or (fewer and self._free() <= 0)
                self._start(session, sent + reply.waited + session.ttl, unwanted)
            if reply.lost:
                self._owed_at = min(self._owed_at, self._clock() + OWED_SECONDS)
            gevent.sleep(PAUSE_SECONDS)

    def _free(self) -> int:
        """Return how many greenlets are free; sessions of slow hosts do not count."""
        if self._resting:
            return 0
        return self._greenlets - self._sessions.fetching + self._slow_hosts.slow

    def _look_around(self) -> None:
        while True:
            gevent.sleep(LOOK_AROUND_SECONDS)
            if self._slow_hosts.look(self._sessions.holding(), self._clock(), self._blocked):
                self._freed.set()

    def _lease(self, free: int) -> LeaseReply:
        refused = self._refusals()
        self._sequence += 1
        return self._broker.lease(
            LeaseRequest(
                worker=self._limits.worker,
                incarnation=self._limits.incarnation,
                sequence=self._sequence,
                max_sessions=min(free, 1000),
                tasks_per_session=self._limits.tasks_per_session,
                ttl=self._limits.lease_seconds,
                wait=WAIT_SECONDS,
                refuses=refused,
                host=socket.gethostname()[:255] if refused else "",
            )
        )

    def _reconcile(self, idle: tuple[str, ...] = (), *, leaving: bool = False) -> None:
        """Report the held sessions, so that brokers release all other sessions of this process and
        of dead processes.

        It waits for a broker, and for as long as another worker uses this one's name. ``idle``:
        sessions of an earlier process without a request under way. A node that is away gets the
        report later; the other nodes do not wait for it.
        """
        self._idle = self._idle or idle
        rests, older_broker = delays(*SUPERSEDED_SECONDS), False
        for count, delay in enumerate(delays()):
            self._sequence += 1
            request = ReconcileRequest(
                worker=self._limits.worker,
                incarnation=self._limits.incarnation,
                sequence=self._sequence,
                holding=tuple(held.session.token for held in self._sessions.holding()),
                dead=self._dead,
                idle=self._idle,
                dead_for=min(self._dead_for(), 86_400.0),
                leaving=leaving,
            )
            if older_broker:  # an older broker does not know these fields
                request = replace(request, dead=(), dead_for=0.0, leaving=False)
            try:
                reply = self._broker.reconcile(request)
            except (Unavailable, Refused) as error:
                older_broker = isinstance(error, Refused) and error.status == HTTPStatus.BAD_REQUEST
                if count == 0:
                    log.warning("sessions_not_reconciled", reason=str(error))
                gevent.sleep(delay)
                continue
            if reply.superseded:
                if not self._superseded:
                    self._superseded = True
                    log.error("worker_id_taken", **self._told(reply.superseded))
                if self._stopping.wait(next(rests)):
                    return
                continue
            if self._superseded:
                self._superseded = False
                log.info("worker_id_regained", worker=self._limits.worker)
            if reply.sessions:
                log.info("sessions_released", sessions=reply.sessions, tasks=reply.tasks)
            if reply.away:
                self._owed_at = self._clock() + OWED_SECONDS
            else:
                self._owed_at, self._idle = math.inf, ()
            return

    def _told(self, newer: int) -> dict[str, str | int]:
        return {
            "worker": self._limits.worker,
            "incarnation": self._limits.incarnation,
            "by": newer,
            "why": "a process that started later uses the same worker id: nothing is leased here",
            "do": "set GREENCRAWL_WORKER_ID to a name of its own on each worker",
        }

    # -- sessions

    def _start(self, session: Session, deadline: float, unwanted: bool) -> None:
        held = self._sessions.hold(session, deadline)
        if held is None:
            return
        if unwanted:
            self._end(held, unused(session))
        elif self._slow_hosts.admits(held):
            self.spawn(self._session, held)
        else:
            self._end(held, refusal(session, self._slow_hosts.rest))

    def _session(self, held: HeldSession) -> None:
        close: CloseItem | None = None
        try:
            close = self._runner.run(held)
        finally:
            self._slow_hosts.ended(held, close)
            self._end(held, close)

    def _end(self, held: HeldSession, close: CloseItem | None) -> None:
        self._sessions.fetched(held, closing=close is not None)
        if close is not None:
            self._closing.put(close)
        self._freed.set()

    def _beat(self) -> None:
        while True:
            self._crash_record.beat()
            gevent.sleep(self._limits.beat_seconds)
