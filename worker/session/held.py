"""The host sessions that this process holds, from the lease to the last acknowledged result.

A session is *fetching* while its greenlet may send requests. After that it is still *held* until
its close and all its tasks' outcomes are acknowledged. A reconcile must name it until then, or the
broker would lease its finished tasks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import gevent
import greenlet

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import CloseItem, HostReport, ItemStatus, Session
from greencrawl.worker.process.inflight_table import InflightTable

End = Literal["", "stop", "stale", "silent"]


@dataclass(slots=True, eq=False)
class HeldSession:
    """One session.

    ``deadline`` is on ``greencrawl.schema.clock.monotonic``: no request may be sent after it.

    ``ended`` says how it must end. "stop": soon and properly. "stale": at once and without a close,
    since its tasks are not ours any more. "silent": its host is unknown and sends nothing while
    others wait for its place. ``cut`` ends the current request if no part of its answer has come,
    and returns whether the request was ended; it is None unless an unknown host is asked. ``since``
    is when its present wait began – a request, or a suspect that is read alone – or None; ``row``
    is its row in ``inflight``.
    """

    session: Session
    deadline: float
    fetching: bool = True
    closing: bool = False
    unsettled: int = 0
    ended: End = ""
    since: float | None = None
    cut: Callable[[], bool] | None = None
    inflight: InflightTable | None = None
    row: int | None = None
    resting: greenlet.greenlet | None = None
    """The greenlet that waits until the next request may be sent."""

    def pause(self, wait: Callable[[float | None], object], seconds: float | None) -> None:
        """Call ``wait`` for this long, unless it is interrupted before."""
        self.resting = gevent.getcurrent()
        try:
            wait(seconds)
            if self.resting is None:  # interrupted at the same moment: it is on its way
                gevent.sleep(seconds or 1.0)
        except Interrupted:
            pass
        finally:
            self.resting = None

    def interrupt(self) -> None:
        """End the session's pause, if it has one: it checks again whether to go on."""
        resting, self.resting = self.resting, None
        if resting is not None:
            gevent.get_hub().loop.run_callback(resting.throw, Interrupted())

    def end_soon(self) -> None:
        """Send no further request; unfetched tasks go back, and the host is free."""
        self.ended = self.ended or "stop"
        self.interrupt()

    def waiting(self, *, request: bool) -> Waiting:
        """Count the session as waiting while the body runs; ``request``: it waits for its host."""
        return Waiting(self, self.inflight if request and self.row is not None else None)

    @property
    def lost(self) -> bool:
        """Return whether another worker may hold the host: then this one sends no more requests and
        reports for it."""
        return self.ended == "stale"


class Interrupted(Exception):
    """Raised in the pause of a session, by :meth:`HeldSession.interrupt`."""


class Waiting:
    """The result of :meth:`HeldSession.waiting`: a class, since a generator would cost a page 6 µs
    more."""

    __slots__ = ("_before", "_held", "_inflight")

    def __init__(self, held: HeldSession, inflight: InflightTable | None) -> None:
        self._held = held
        self._inflight = inflight

    def __enter__(self) -> None:
        held = self._held
        if self._inflight is not None and held.row is not None:
            self._inflight.set_busy(held.row, True)
        self._before = held.since
        if held.since is None:
            held.since = monotonic()

    def __exit__(self, *_: object) -> None:
        held = self._held
        held.since = self._before
        if self._inflight is not None and held.row is not None:
            self._inflight.set_busy(held.row, False)


class Sessions:
    """All sessions of this process. It has no lock: its methods never yield to the hub."""

    def __init__(self, inflight: InflightTable | None = None) -> None:
        self._inflight = inflight
        self._held: dict[str, HeldSession] = {}
        self._fetching = 0

    @property
    def fetching(self) -> int:
        """Return how many sessions are fetching."""
        return self._fetching

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, session: Session, deadline: float) -> HeldSession | None:
        """Add a leased session; return None if it is held already (an answer that came twice)."""
        if session.token in self._held:
            return None
        held = HeldSession(session, deadline)
        if self._inflight is not None:
            held.inflight, held.row = self._inflight, self._inflight.take(session.token)
        self._held[session.token] = held
        self._fetching += 1
        return held

    def holding(self) -> list[HeldSession]:
        """Return the sessions that are held now, the longest held first."""
        return list(self._held.values())

    def submitted(self, held: HeldSession) -> None:
        """Note that a task's outcome is on its way to store and broker."""
        held.unsettled += 1

    def settled(self, token: str, status: ItemStatus) -> None:
        """Note the broker's answer to a task's outcome.

        "stale" says nothing about the session: an outcome whose answer was lost is sent twice, and
        the second time its task is not current. The next extend tells whether the session is stale.
        "gone" ends the session: its crawl was deleted, and the session is to be closed, so that its
        host is free for others.
        """
        held = self._held.get(token)
        if held is not None:
            held.unsettled -= 1
            self._note(held, "ok" if status == "stale" else status)

    def fetched(self, held: HeldSession, *, closing: bool) -> None:
        """Note that the session's greenlet is finished; ``closing`` if a close is on its way to the
        broker."""
        held.fetching = False
        held.closing = closing
        self._fetching -= 1
        self._drop_if_over(held)

    def closed(self, token: str) -> None:
        """Note the broker's answer to the close of a session."""
        held = self._held.get(token)
        if held is not None:
            held.closing = False
            self._drop_if_over(held)

    def extended(self, held: HeldSession, status: ItemStatus, deadline: float) -> None:
        """Note the broker's answer to an extend that was sent ``ttl`` before ``deadline``.

        "away" leaves the deadline as it is: the session ends at the deadline unless the node is
        back before.
        """
        if status == "away":
            return
        if status in ("ok", "stop"):
            held.deadline = max(held.deadline, deadline)
        self._note(held, status)

    def _note(self, held: HeldSession, status: ItemStatus) -> None:
        if status != "ok" and status != "away" and not held.lost:
            held.ended = "stop" if status == "gone" else status
        self._drop_if_over(held)

    def _drop_if_over(self, held: HeldSession) -> None:
        if not (held.fetching or held.closing or held.unsettled):
            self._held.pop(held.session.token, None)
            if self._inflight is not None and held.row is not None:
                self._inflight.free(held.row)
                held.row = None


def unused(session: Session) -> CloseItem:
    """Return the close of a session without a request and without a report of its host."""
    own = session.delay if session.delay > session.floor else 0.0
    release = tuple(task.number for task in session.tasks)
    report = HostReport(delay=own)
    return CloseItem(session=session.session, token=session.token, report=report, release=release)
