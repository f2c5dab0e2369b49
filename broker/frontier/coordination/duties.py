"""The duties of this broker: work that one broker at a time does.

A duty is a row in the store with a holder, an epoch and an end. In each broker one greenlet renews
the duties that it has and takes free ones, in one short transaction every few seconds. Nothing
depends on the clocks of two machines. A holder that was suspended may not know that another broker
has taken its duty. But every write under a duty is checked against the epoch, in the store
(``Store.under``) and in Redis (``lua/shared/common.lua``), and raises DutyLost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import gevent
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import SAY_SECONDS, Trouble, logger
from greencrawl.schema.records import Duty
from greencrawl.store.base import DUTY_SECONDS, Store

log = logger("duties")

RENEW_SECONDS = DUTY_SECONDS / 3
"""Seconds between two transactions."""
ASK_SECONDS = 0.25
"""Seconds between two attempts of :meth:`Duties.take` at a duty that another holds."""

KEPT_SECONDS = 10.0
"""A duty that was given up a moment ago is logged as taken only when it was kept for this long."""
ENDED_SECONDS = 0.25
"""A caller that waits for a duty may see the end of its wait this much later."""

UPKEEP = "upkeep"
"""The store's clock, pending seeds, scans and the end of crawls."""
QUOTAS = "quotas"
"""Sharing out what may be leased under ``max_pages``."""
REFILL = "refill"
CALENDAR = "calendar"
"""Queueing pages that are due to be fetched again."""
PURGE = "purge"
RETENTION = "retention"
REPLAY = "replay"
"""The duty to give nodes that were away what they are owed."""
COORDINATOR = "coordinator"
"""Samples, alerts, members that are lost: see ``greencrawl.broker.tasks.coordinator``."""


def clock(node: str) -> str:
    """Return the name of the duty that sets a node's clock."""
    return f"clock:{node}"


class Duties:
    """The duties of one broker. ``start()`` and ``stop()`` it; :meth:`take` works without a start,
    too."""

    def __init__(self, store: Store, holder: str = "") -> None:
        """Begin without duties; ``holder`` is a name of this process alone, by default a random
        one."""
        self.holder = holder or secrets.token_hex(8)
        self._store = store
        self._wanted: dict[str, float] = {}
        """Duty → when it may be taken again."""
        self._held: dict[str, tuple[int, float]] = {}
        """Duty → its epoch, and until when it is held, by our own clock."""
        self._stood_for: set[str] = set()
        self._asked: dict[str, float] = {}
        self._duty_log = _DutyLog()
        self._failing: tuple[float, str] | None = None
        self._unanswered: float | None = None
        self.renewals = 0
        """How often the store answered a request to renew or give duties."""
        self.renewal_seconds = 0.0
        """How many seconds these requests took."""
        self._renewed = -inf
        self._changed = Event()
        self._greenlet: gevent.Greenlet[..., Any] | None = None

    # -- what is held

    def want(self, *names: str) -> None:
        """Take these duties whenever no other broker has them."""
        for name in names:
            self._wanted.setdefault(name, 0.0)

    def stand_for(self, name: str) -> None:
        """Renew this duty while it is held, but take it only by :meth:`take`.

        Another part decides which broker is to have it first.
        """
        self._stood_for.add(name)

    @property
    def failing(self) -> tuple[float, str] | None:
        """Return since when renewals fail, by :func:`monotonic`, and why; None if they succeed.

        A renewal under way counts from when it began.
        """
        if self._failing is None and self._unanswered is not None:
            return self._unanswered, "it gives no answer"
        return self._failing

    def get(self, name: str) -> Duty | None:
        """Return the duty, if this broker has it as far as it knows."""
        epoch, until = self._held.get(name, (0, 0.0))
        return Duty(name, epoch) if monotonic() < until else None

    def held(self) -> dict[str, int]:
        """Return duty → epoch, of those that this broker has as far as it knows."""
        now = monotonic()
        return {name: epoch for name, (epoch, until) in self._held.items() if now < until}

    @property
    def renewed_ago(self) -> float:
        """Return the seconds since the last renewal that the store took; infinite before the
        first."""
        return monotonic() - self._renewed

    def take(self, name: str) -> Duty | None:
        """Take the duty if it is free; want it from now on. Return it, or None if another broker
        has it.

        The store is asked at most every :data:`ASK_SECONDS`. Raises Unavailable.
        """
        found = self.get(name)
        if found is not None:
            return found
        self.want(name)
        now = monotonic()
        if now < self._wanted[name] or now < self._asked.get(name, 0.0):
            return None
        self._asked[name] = now + ASK_SECONDS
        self._renew([name])
        return self.get(name)

    def wait(self, name: str, seconds: float, ended: Callable[[], bool] = lambda: False) -> bool:
        """Wait up to ``seconds`` for the duty, or until ``ended``; return whether this broker has
        it.

        :meth:`start` must have been called.
        """
        if name not in self._wanted:
            with suppress(Unavailable):
                self.take(name)
        until = monotonic() + seconds
        while self.get(name) is None and not ended() and (left := until - monotonic()) > 0:
            self._changed.wait(min(left, ENDED_SECONDS))
        return self.get(name) is not None

    def lost(self, name: str) -> None:
        """Give up a duty after a write under it was refused: another broker has the duty.

        There is a second possible reason: the store was restored from an older copy, and Redis
        knows a higher epoch. Then the duty is still ours in the store. It is given back there, so
        that the next holder has a higher epoch.
        """
        if self._held.pop(name, None) is not None:
            with suppress(Unavailable):  # then it expires
                self._store.release_duties(self.holder, [name])

    def give_up(self, name: str, seconds: float) -> None:
        """Let another broker try what fails here: do not take the duty again for some seconds."""
        self._wanted[name] = monotonic() + seconds
        if self._held.pop(name, None) is not None:
            self._duty_log.given_up(name, seconds)
            with suppress(Unavailable):  # then it expires
                self._store.release_duties(self.holder, [name])

    # -- life

    def start(self) -> None:
        """Begin to take and renew. Idempotent."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Give all duties back."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
        held, self._held = list(self._held), {}
        if held:
            with suppress(Unavailable):  # then they expire
                self._store.release_duties(self.holder, held)

    def _run(self) -> None:
        trouble = Trouble(log, "duties_not_renewed", "duties_renewed", level="info")
        while True:
            try:
                self.renew()
                trouble.done()
            except Unavailable as error:
                trouble.failed(reason=str(error))
            except Exception:  # a bug must not leave the duties without a holder
                log.exception("duties_failed")
            gevent.sleep(RENEW_SECONDS)

    def renew(self) -> None:
        """Renew the duties of this broker, and take free ones. Raises Unavailable."""
        now = monotonic()
        self._renew(
            [
                name for name, after in self._wanted.items()
                if after <= now and (name not in self._stood_for or self.get(name) is not None)
            ]
        )  # fmt: skip

    def _renew(self, names: list[str]) -> None:
        if not names:
            return
        before = dict(self._held)
        until = monotonic() + DUTY_SECONDS  # counted from before the request
        self._unanswered = since = monotonic()
        try:
            found = self._store.take_duties(self.holder, names)
            self._failing = None
            self._renewed = monotonic()
            self.renewals += 1
            self.renewal_seconds += self._renewed - (until - DUTY_SECONDS)
        except Unavailable as error:
            self._failing = self._failing[0] if self._failing else since, str(error)
            raise
        finally:
            self._unanswered = None
        for name in names:
            if self._wanted[name] > monotonic():  # given up meanwhile
                continue
            held = self._held.get(name, (0, 0.0))
            if name in found:
                self._duty_log.held(name, found[name], new=held[0] != found[name])
                self._held[name] = max(held, (found[name], until))
            elif name in before and held == before[name]:  # no other greenlet has taken it since
                del self._held[name]
                log.info("duty_lost", duty=name)
        self._changed.set()
        self._changed.clear()


class _DutyLog:
    """Logs which duties are taken and given up. If a duty is given up and taken again and again
    because a Redis node is away, the log has one line a minute, and one more when the duty is
    kept."""

    def __init__(self) -> None:
        self._given_up: dict[str, float] = {}
        """Name → when it was last given up, logged or not."""
        self._said: dict[str, float] = {}
        self._taken: dict[str, float] = {}
        """Name → when it was taken, for duties whose taking was not logged."""

    def given_up(self, name: str, seconds: float) -> None:
        self._given_up[name] = now = monotonic()
        self._taken.pop(name, None)
        if now - self._said.get(name, -inf) >= SAY_SECONDS:
            self._said[name] = now
            log.info("duty_given_up", duty=name, seconds=seconds)

    def held(self, name: str, epoch: int, *, new: bool) -> None:
        now = monotonic()
        if new:
            self._taken[name] = now
        again = now - self._given_up.get(name, -inf) < SAY_SECONDS
        if name in self._taken and (not again or now - self._taken[name] >= KEPT_SECONDS):
            del self._taken[name]
            log.info("duty_taken", duty=name, epoch=epoch)
