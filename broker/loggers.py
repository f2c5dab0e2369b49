"""Finds the loggers, asks all of them at once, and merges their lines by time.

A logger answers with all of its lines up to a certain line. So the merged lines are complete up to
the earliest of these last lines. Lines of loggers that did not answer are missing; the answer names
these loggers. Two loggers have the same line if the answer of one was lost and the line was sent to
the other. Such a line is returned once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import gevent
import msgspec
from msgspec.structs import replace

from greencrawl.broker import answers
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.schema.logs.logger_choice import ranked
from greencrawl.schema.logs.records import (
    LoggerSilent,
    LogLine,
    LogsQuery,
    LogsReply,
    cursor,
    key_of,
    parameters,
)
from greencrawl.schema.records import Member
from greencrawl.schema.transport import KeepAlive, Reply
from greencrawl.schema.wire import from_json

LOOK_SECONDS = 3.0
"""How long the list of loggers is remembered."""
ASK_SECONDS = 5.0
"""How long a logger's answer is waited for."""
MOST_LOGGERS = 64

MemberList = Callable[[], Iterable[Member]]


class Loggers:
    """The loggers among the members. ``token`` and ``ca`` are used to ask them."""

    def __init__(
        self, members: MemberList, token: str = "", ca: str = "", clock: Clock = monotonic
    ) -> None:
        self._members = members
        self._clock = clock
        self.token = token
        self.ca = ca
        self._connections: dict[str, KeepAlive] = {}
        self._addresses: tuple[str, ...] = ()
        self._looked = -LOOK_SECONDS

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of loggers that have not left; the last known ones while the store
        is away."""
        if self._clock() - self._looked >= LOOK_SECONDS:
            self._looked = self._clock()
            with suppress(Unavailable):
                there = (one for one in self._members() if one.kind == "logger" and not one.left_ms)
                found = {one.address for one in there if one.address}
                self._addresses = tuple(sorted(found)[:MOST_LOGGERS])
        return self._addresses

    def of(self, member: str) -> tuple[str, ...]:
        """Return the loggers for a member; it sends to the first one."""
        found = self.addresses()
        return tuple(ranked(member, found)) if found else ()

    def logs(self, query: LogsQuery) -> LogsReply:
        """Return the lines of all loggers; see :class:`LogsReply`.

        Raises InvalidConfig for a query that they refuse.
        """
        asked = self.addresses()
        for gone in self._connections.keys() - set(asked):
            self._connections.pop(gone).close()
        asking = [gevent.spawn(self._ask, address, query) for address in asked]
        gevent.joinall(asking, timeout=2 * ASK_SECONDS)
        replies, silent = [], []
        for address, one in zip(asked, asking, strict=True):
            found = one.value if one.ready() else "no answer in time"
            one.kill(block=False)
            if isinstance(found, LogsReply):
                replies.append((address, found))
            elif isinstance(found, InvalidConfig):
                raise found
            else:
                silent.append(LoggerSilent(address, str(found)[:300]))
        merged = merge([reply for _, reply in replies], query.limit, newest=query.newest)
        return replace(
            merged, loggers=tuple(address for address, _ in replies), silent=tuple(silent)
        )

    def _ask(self, address: str, query: LogsQuery) -> LogsReply | InvalidConfig | str:
        """Return the answer of one logger, or why there is none."""
        if address not in self._connections:
            try:
                self._connections[address] = KeepAlive(address, self.ca)
            except GreencrawlError as error:
                return str(error)
        path = "/v1/logs" + parameters(query)
        answer = self._connections[address].send("GET", path, b"", self.token, ASK_SECONDS)
        if not isinstance(answer, Reply) or answer.status != 200:
            why = answers.why(answer)
            refused = isinstance(answer, Reply) and answer.status == 400
            return InvalidConfig([("query", why)]) if refused else why
        try:
            return from_json(answer.body, LogsReply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"not a logger's answer: {error}"


def merge(replies: Sequence[LogsReply], limit: int, *, newest: bool = False) -> LogsReply:
    """Merge the answers of several loggers into one of at most ``limit`` lines."""
    ends = [key_of(one.next) for one in replies if one.next]
    end = (max(ends) if newest else min(ends)) if ends else None
    lines: dict[tuple[str, int, int], LogLine] = {}
    for reply in replies:
        for line in reply.items:
            if end is None or (line.key >= end if newest else line.key <= end):
                lines.setdefault((line.member, line.incarnation, line.sequence), line)
    found = sorted(lines.values(), key=lambda line: line.key, reverse=newest)
    if len(found) > limit:
        found = found[:limit]
        end = found[-1].key
    items = tuple(reversed(found)) if newest else tuple(found)
    return LogsReply(items=items, next=cursor(end) if end is not None else "")
