"""A process of a worker as a member: it reports, and follows orders.

One call to a broker does both: it waits there until there are new orders, and is repeated. While
that broker is silent, the next one is called, too, and the first answer counts. The last orders
hold while no broker answers, and at the next start, from a file
(``greencrawl.worker.orders.kept``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import gevent
from gevent import Greenlet
from msgspec.structs import replace

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import MemberReply, MemberRequest, NodeOptions
from greencrawl.worker.orders.kept import KeptOrders, OrdersFile
from greencrawl.worker.orders.ordered import OrderedProcess
from greencrawl.worker.session.backoff import delays

log = logger("orders")

WAIT_SECONDS = 15.0
"""A call waits for at most this many seconds: so a report is never older."""
DRAIN_SECONDS = 0.5
"""A call waits for at most this many seconds while the process hands back its sessions, because
people wait for that."""
SETTLE_SECONDS = 5.0
"""For this long after an order it reports often, while it has more sessions than it may."""
UNKNOWN_SECONDS = 30.0
"""Seconds before a broker of an earlier version, which does not know the call, is asked again."""
LEAVE_SECONDS = 2.0
"""Seconds for the last report of a process that ends."""
CHECK_SECONDS = 2.0
"""Seconds between two checks, during a call, whether its broker answers anything at all."""
SILENT_SECONDS = 0.5
"""A broker is silent if it has not said for this long that it is alive."""

Answer: TypeAlias = MemberReply | Unavailable | Refused


class Follower:
    """A greenlet calls ``run``. ``start`` first takes over the orders in the file."""

    def __init__(
        self,
        request: MemberRequest,
        brokers: Sequence[BrokerClient],
        file: OrdersFile,
        process: OrderedProcess,
        *,
        clock: Clock = monotonic,
    ) -> None:
        """Build the object; each of ``brokers`` is the client of one broker."""
        self._request = request
        self._brokers = brokers
        self._first = 0
        """Number of the broker that is called first: the one that answered last."""
        self._file = file
        self._process = process
        self._clock = clock
        self._options = NodeOptions()
        self._ordered = -SETTLE_SECONDS
        """When an order last changed something."""
        self._told = self._telling = (clock(), 0, 0)
        """Moment, requests and pages: first of the last report that arrived, then of the present
        report, which may be lost."""

    def start(self) -> None:
        """Take over the last orders of this worker."""
        kept = self._file.read()
        self._request = replace(self._request, revision=kept.revision)
        self._options = kept.options
        self._process.keep(kept.options)

    def run(self) -> None:
        """Follow for ever."""
        backoff, silent = delays(), False
        wait = 0.0
        while True:
            try:
                reply = self._call(self._asked(wait))
                if reply.crawls:
                    self._process.change(reply.crawls)
            except (Unavailable, Refused) as error:
                if not silent:
                    log.info("orders_not_received", reason=str(error))
                silent = True
                gevent.sleep(UNKNOWN_SECONDS if isinstance(error, Refused) else next(backoff))
                wait = 0.0
                continue
            backoff, silent = delays(), False
            if reply.superseded:  # another process uses this name, and follows for both
                gevent.sleep(WAIT_SECONDS)
                continue
            soon = self._take(reply) or self._hands_back()
            wait = DRAIN_SECONDS if soon else WAIT_SECONDS

    def _call(self, request: MemberRequest) -> MemberReply:
        """Return the first answer of a broker. Raises Unavailable if there is none, and Refused."""
        count = len(self._brokers)
        order = [(self._first + step) % count for step in range(count)]
        calls: dict[int, Greenlet[..., Answer]] = {}
        lost: Unavailable | None = None
        try:
            while calls or order:
                if not calls or (order and self._silent(next(reversed(calls)))):
                    number = order.pop(0)
                    calls[number] = gevent.spawn(self._answer, number, request)
                wait = CHECK_SECONDS if order else None
                for call in gevent.wait(list(calls.values()), wait, 1):
                    number = next(one for one, made in calls.items() if made is call)
                    del calls[number]
                    answer = call.get()
                    if isinstance(answer, Unavailable):
                        lost = answer
                        order += [number] if calls else []  # it may be back before the others are
                        continue
                    self._first = number
                    if isinstance(answer, Refused):
                        raise answer
                    return answer
        finally:
            gevent.killall(list(calls.values()))
        assert lost is not None
        raise lost

    def _answer(self, number: int, request: MemberRequest) -> Answer:
        try:
            return self._brokers[number].follow(request)
        except (Unavailable, Refused) as error:
            return error

    def _silent(self, number: int) -> bool:
        """Return whether this broker does not even say that it is alive."""
        ask = self._brokers[number].trouble
        return gevent.with_timeout(SILENT_SECONDS, ask, "/healthz", timeout_value="silent") != ""

    def _hands_back(self) -> bool:
        """Return whether sessions end by an order, as far as the process has reported."""
        facts = self._request.facts
        settling = self._clock() - self._ordered < SETTLE_SECONDS
        return bool(self._options.drain and facts.held) or (
            settling and facts.sessions > facts.greenlets
        )

    def leave(self) -> None:
        """Send the last report, if there is a broker to receive it."""
        last = replace(self._asked(0.0), leaving=True, why="stopped")
        with suppress(Unavailable, Refused):
            gevent.with_timeout(LEAVE_SECONDS, self._call, last, timeout_value=None)

    def _asked(self, wait: float) -> MemberRequest:
        facts, now = self._process.facts(self._options), self._clock()
        before, requests, pages = self._told
        seconds = now - before
        if seconds > 0:
            facts = replace(
                facts,
                requests_per_second=round((facts.requests - requests) / seconds, 2),
                pages_per_second=round((facts.pages - pages) / seconds, 2),
            )
        self._telling = now, facts.requests, facts.pages
        self._request = replace(self._request, facts=facts, wait=wait)
        return self._request

    def _take(self, reply: MemberReply) -> bool:
        """Take over a reply; return whether it orders something else."""
        self._told = self._telling
        self._process.tell(reply.log_to)
        other = reply.revision != self._request.revision or reply.options != self._options
        if other:
            log.info("orders_received", revision=reply.revision, **_said(reply.options))
            self._options, self._ordered = reply.options, self._clock()
            self._file.write(KeptOrders(reply.revision, reply.options))
            self._process.keep(reply.options)
        self._request = replace(self._request, revision=reply.revision, crawls=reply.next)
        return other


def _said(options: NodeOptions) -> dict[str, object]:
    given = {name: getattr(options, name) for name in options.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None}
