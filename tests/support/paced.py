"""Greenlets that go one step at a time, and a clock that a test turns.

A *paced* greenlet stops before each call of the store or of Redis until it is told to go on. So one
greenlet runs at a time, and a test draws the interleaving: other calls may come between any two. A
greenlet that is ended where it stands is like a process that died between two calls, or whose
answer was lost.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.event import Event

from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.service.service import Service
from greencrawl.schema import clock
from greencrawl.schema.records import Duty

STUCK_SECONDS = 30.0


class Paced:
    """One greenlet. :meth:`step` starts it."""

    def __init__(self, pace: Pace, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.owner: Any = None
        self.duty: Duty | None = None
        """The duty under which it runs, if any."""
        self.before = ""
        """The call of the store, or "redis", before which it stands."""
        self.result: Any = None
        self.error: Exception | None = None
        self.over = False
        self._go, self._stands = Event(), Event()
        self._work, self._pace = work, pace
        self.greenlet = gevent.spawn(self._run)
        pace.known[self.greenlet] = self

    def _run(self) -> None:
        try:
            self.stand()
            self.result = self._work()
        except Exception as error:  # noqa: BLE001 - raised in `step`; gevent would print it
            self.error = error
        finally:
            self.over = True
            self._stands.set()

    def stand(self) -> None:
        self._stands.set()
        self._go.wait()
        self._go.clear()

    def step(self, steps: int) -> bool:
        """Let up to this many calls run; return True if the greenlet has ended. Raises the
        exception of the greenlet."""
        for _ in range(steps):
            self._wait()
            if self.over:
                break
            self._stands.clear()
            self._go.set()
            self._wait()
        if self.error is not None:
            raise self.error
        return self.over

    def _wait(self) -> None:
        assert self._stands.wait(STUCK_SECONDS), f"{self.name} is stuck"

    def kill(self) -> None:
        self._wait()  # at a call, never within one
        self.greenlet.kill()


class Pace:
    """All paced greenlets of a test, and the clock that the test sets."""

    def __init__(self) -> None:
        self.known: dict[Any, Paced] = {}
        self.shift_ms = 0.0

    def begin(self, name: str, work: Callable[[], Any]) -> Paced:
        return Paced(self, name, work)

    def gate(self, before: str = "") -> None:
        """Stop here if the greenlet is paced; other greenlets pass."""
        paced = self.known.get(gevent.getcurrent())
        if paced is not None:
            paced.before = before
            paced.stand()

    def living(self) -> list[Paced]:
        """Return the paced greenlets that have not ended, in the order of their starts."""
        self.known = {g: paced for g, paced in self.known.items() if not paced.over}
        return list(self.known.values())

    # -- what is paced

    def node(self, node: Node) -> None:
        """Stop before each round trip to this server."""
        plain = node.connection

        @contextmanager
        def connection() -> Iterator[Any]:
            self.gate("redis")
            with plain() as held:
                yield held

        node.connection = connection  # type: ignore[method-assign]

    def service(self, service: Service) -> None:
        """Stop before seeds are gathered: a greenlet that is not paced admits them at once."""
        admit = service.admissions.admit

        def gated(*args: Any) -> Any:
            self.gate("admit")
            return admit(*args)

        service.admissions.admit = gated  # type: ignore[method-assign]

    def gevent(self) -> Any:
        """Return a replacement for the module where it spawns and sleeps: its greenlets are
        paced."""

        def spawn(work: Callable[..., Any], *args: Any) -> Any:
            return self.begin(work.__name__, lambda: work(*args)).greenlet

        return types.SimpleNamespace(spawn=spawn, sleep=lambda _: self.gate())

    # -- time

    def monotonic(self) -> float:
        return clock.monotonic() + self.shift_ms / 1000

    def epoch_ms(self) -> int:
        return clock.epoch_ms() + round(self.shift_ms)

    def now_ms(self) -> float:
        """Return the true time of the test."""
        return self.monotonic() * 1000


class PacedStore:
    """A store whose every call, and every chunk of a stream, is a step."""

    def __init__(self, pace: Pace, store: Any) -> None:
        self._pace, self._store = pace, store

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def paced(*args: Any, **more: Any) -> Any:
            self._pace.gate(name)
            found = call(*args, **more)
            return self._chunks(found) if isinstance(found, Iterator) else found

        return paced

    def under(self, duty: Any) -> PacedStore:
        return PacedStore(self._pace, self._store.under(duty))

    def _chunks(self, found: Iterator[Any]) -> Iterator[Any]:
        for chunk in found:
            yield chunk
            self._pace.gate()
