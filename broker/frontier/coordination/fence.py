"""No session is opened or extended unless the store answered lately.

A broker may be cut off from the store and still reach a Redis that was replaced. Then the store
knows a higher epoch of that node, and another broker serves its hosts from the new server. So a
broker that opens or extends a session must have read the epochs within :data:`CONTACT_SECONDS`,
counted from when the query was sent. A node that was taken over rests until the forgotten sessions
have ended, and then for :data:`CONTACT_SECONDS` plus the error of a script's expected time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gevent

from greencrawl.broker.frontier.nodes.clock import TOLERANCE_MS
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Stamp

log = logger("frontier")

CONTACT_SECONDS = 10.0
RENEW_SHARE = 0.3
"""After this share of :data:`CONTACT_SECONDS` the store is asked again, if there is work."""
WAIT_SECONDS = 2.0
"""How long a call waits for the store's answer."""


class StoreSilent(Unavailable):
    """Raised when the store did not answer lately: actions that need its answer do not happen."""


class StoreContact:
    """The epochs in the store's last answer. ``told`` is called with each answer."""

    def __init__(
        self,
        ask: Callable[[], Stamp],
        told: Callable[[Stamp], None],
        seconds: float = CONTACT_SECONDS,
    ) -> None:
        self._ask = ask
        self._told = told
        self._seconds = seconds
        self._sent: float | None = None
        """When the query with the last answer was sent."""
        self._epochs: Mapping[str, int] = {}
        self._asking: gevent.Greenlet[..., Any] | None = None

    @property
    def margin_ms(self) -> int:
        """Return for how long sessions may still be opened under an old epoch after the epoch was
        raised."""
        return round(self._seconds * 1000) + TOLERANCE_MS

    def epoch(self, node: str) -> int:
        """Return the node's epoch. Raises StoreSilent if the store does not answer."""
        self.check()
        return self._epochs.get(node, 0)

    def check(self) -> None:
        """Raise StoreSilent if the store does not answer."""
        if not self.heard() and self._asking is not None:
            self._asking.join(WAIT_SECONDS)
        if self._age() >= self._seconds:
            raise StoreSilent("the store does not answer: no session is opened or kept without it")

    def heard(self) -> bool:
        """Return whether the store answered lately; if that is a while ago, ask it in the
        background.

        While it does not answer, this broker's calls must not count as signs of life.
        """
        age = self._age()
        due = age >= self._seconds * RENEW_SHARE
        if due and (self._asking is None or self._asking.ready()):
            self._asking = gevent.spawn(self._renew)
        return age < self._seconds

    def _age(self) -> float:
        return float("inf") if self._sent is None else monotonic() - self._sent

    def _renew(self) -> None:
        sent = monotonic()
        try:
            stamp = self._ask()
            self._epochs, self._sent = stamp.epochs, sent
            self._told(stamp)
        except Unavailable as error:
            log.info("epochs_not_read", reason=str(error))
        except Exception:  # a bug must not look like an outage
            log.exception("epochs_not_read")

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.kill()
