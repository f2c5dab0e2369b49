"""A Redis node that did not answer is not called until it answers again.

The first call without an answer takes its whole time-out, and so do all calls that are under way at
that moment. From then on calls fail at once, and one greenlet asks in the background.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import gevent

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import Trouble, logger

log = logger("frontier")

FIRST_SECONDS, MOST_SECONDS = 0.05, 1.0
"""Seconds between two requests to a node that is away: they double from the first to the last."""


_troubles: dict[str, Trouble] = {}
"""By the address of a node, as it is shown. A process that cannot start makes its nodes anew with
each try, and logs no more lines for that."""


class Away(Unavailable):
    """Raised when a node did not answer lately: nothing was sent to it."""


class Breaker:
    """The breaker of one node.

    ``answers`` is called in the background, and raises Unavailable while the node is away. It must
    be a bound method: so a node that nobody uses any more is not asked for ever.
    """

    def __init__(self, shown: str, answers: Callable[[], None]) -> None:
        self._shown = shown
        self._trouble = _troubles.setdefault(
            shown, Trouble(log, "node_disconnected", "node_reconnected")
        )
        self._answers = weakref.WeakMethod(answers)
        self._asking: gevent.Greenlet[..., None] | None = None
        self.since_ms = 0
        """Unix ms of the first call that failed; 0 while the node answers."""
        self.why = ""

    def check(self) -> None:
        """Raise Away while the node is away."""
        if self.since_ms:
            raise Away(self.why)

    def trip(self, why: str) -> bool:
        """Note a call without an answer; return False if the node was away already."""
        if self.since_ms:
            return False
        self.since_ms, self.why = epoch_ms(), why
        self._trouble.failed(node=self._shown, reason=why)
        self._asking = gevent.spawn(_ask_until_back, weakref.ref(self))
        return True

    def connected(self) -> None:
        """Note a connection to the node, of whomever."""
        self._trouble.done(node=self._shown)

    def ask(self) -> bool:
        """Ask the node once; return whether it is back."""
        answers = self._answers()
        if answers is None:
            return True
        try:
            answers()
        except Unavailable as error:
            self.why = str(error)
            self._trouble.failed(node=self._shown, reason=self.why)
            return False
        self.since_ms, self.why = 0, ""
        return True

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.kill()


def _ask_until_back(known: weakref.ref[Breaker]) -> None:
    pause = FIRST_SECONDS
    while True:
        gevent.sleep(pause)
        pause = min(pause * 2, MOST_SECONDS)
        breaker = known()
        if breaker is None or breaker.ask():
            return
        del breaker
