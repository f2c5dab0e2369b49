"""Extends the leases of a process's sessions in time."""

from __future__ import annotations

from collections.abc import Sequence

import gevent

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.clock import Clock
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import ExtendItem, ExtendRequest
from greencrawl.worker.session.backoff import delays
from greencrawl.worker.session.held import HeldSession, Sessions

log = logger("worker")

_EXTEND_BATCH = 1000


class Extender:
    """Extends all of ``sessions``, each time for ``lease_seconds``."""

    def __init__(
        self, broker: BrokerClient, sessions: Sessions, lease_seconds: float, clock: Clock
    ) -> None:
        self._broker = broker
        self._sessions = sessions
        self._lease_seconds = lease_seconds
        self._clock = clock

    def run(self) -> None:
        """Extend all held sessions every third of a lease, for ever; a greenlet runs this.

        If this fails for a session, its deadline protects it. Sessions whose node was away are
        tried again sooner, and alone.
        """
        backoff = delays()
        third = wait = self._lease_seconds / 3
        all_at = self._clock() + third
        silent = False
        missed: list[HeldSession] = []
        while True:
            gevent.sleep(wait)
            everything = self._clock() >= all_at or not missed
            try:
                missed = self._extend(self._sessions.holding() if everything else missed)
            except (Unavailable, Refused) as error:
                if not silent:
                    log.warning("sessions_not_extended", reason=str(error))
                silent, all_at, wait = True, 0.0, min(next(backoff), third)
                continue
            silent = False
            if everything:
                all_at = self._clock() + third
            if missed:
                wait = min(next(backoff), third)
            else:
                backoff, wait = delays(), all_at - self._clock()

    def _extend(self, some: Sequence[HeldSession]) -> list[HeldSession]:
        """Extend some; return those whose node is away."""
        all_held = [held for held in some if not held.lost]
        missed: list[HeldSession] = []
        for start in range(0, len(all_held), _EXTEND_BATCH):
            batch = all_held[start : start + _EXTEND_BATCH]
            items = tuple(
                ExtendItem(session=held.session.session, token=held.session.token) for held in batch
            )
            sent = self._clock()
            reply = self._broker.extend(ExtendRequest(items, self._lease_seconds))
            deadline = sent + self._lease_seconds
            for held, status in zip(batch, reply.results, strict=True):
                self._sessions.extended(held, status, deadline)
                if status == "away":
                    missed.append(held)
        return missed
