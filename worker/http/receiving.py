"""Reads an answer: in time, at a least rate, and within the memory of the process."""

from __future__ import annotations

from time import thread_time

import gevent
from gevent.lock import BoundedSemaphore

from greencrawl.schema.clock import Clock
from greencrawl.schema.records import Failure, FailureKind
from greencrawl.worker.http.codings import Decoded, decode, encoded_cap
from greencrawl.worker.http.connections import READ_BYTES, Connection
from greencrawl.worker.http.packing import GZIP_MAGIC, MAX_CAME_BYTES, SMALL_BYTES, packed
from greencrawl.worker.http.response import Answer
from greencrawl.worker.session.memory_budget import LITTLE_BYTES, MemoryBudget, Part, Preempted

LEAST_RATE = 1024
"""Bytes of a body that must come each second, on average."""
RATE_SECONDS = 20.0
"""The least rate holds from this many seconds after the end of the head."""

_FREE_READS = 2
"""The first reads of an answer, which do not check the clock."""
_LONG_READ = 8192
_DEAR_SECONDS_PER_BYTE = 6e-9
"""A read that takes more CPU seconds for each byte is mostly framing."""
_SHARE = 0.1
"""Reads that are mostly framing may take this share of a core, all together."""
_READS_BETWEEN_YIELDS = 4
_YIELD_SECONDS = 0.0001


class Receiver:
    """Reads all answers of a process.

    A body that brings less than ``least_rate`` bytes a second after ``rate_seconds`` is cut off.
    """

    def __init__(
        self, memory_budget: MemoryBudget, least_rate: float, rate_seconds: float, clock: Clock
    ) -> None:
        self._memory_budget = memory_budget
        self._least_rate = least_rate
        self._rate_seconds = rate_seconds
        self._clock = clock
        self._expensive = BoundedSemaphore(1)
        self._packing = BoundedSemaphore(1)

    def read(
        self,
        connection: Connection,
        until: float,
        max_body_bytes: int,
        answer: Answer,
        part: Part,
        pack: bool = False,
    ) -> Failure | None:
        """Read until the answer is complete, its limit is reached, or it breaks.

        ``pack`` as for :meth:`decode`. Raises TimeoutError when the request's time is over, or the
        body comes too slowly, OSError when the connection is lost, Preempted, and MemoryTimeout.
        """
        memory_budget, reads, begun = self._memory_budget, 0, 0.0
        while True:
            if part.cut:
                raise Preempted
            most = READ_BYTES
            if part.held >= part.granted or memory_budget.taken >= memory_budget.most:
                if part.ended:
                    raise Preempted
                part.wait_for_room(until + connection.excused)
                most = READ_BYTES if answer.received else LITTLE_BYTES
            now = self._clock() - connection.excused
            if now >= until:
                raise TimeoutError
            limit = until
            if begun:
                seconds = max(self._rate_seconds, len(answer.body) / self._least_rate)
                limit = min(until, begun + part.paused + seconds)
                if now >= limit:
                    raise TimeoutError(self._too_slow(len(answer.body), now - begun - part.paused))
            try:
                data = connection.receive(limit, most)
            except TimeoutError as error:
                if error.errno is not None:  # the connection itself timed out
                    raise
                continue
            if data is None:
                continue
            framed = reads >= _FREE_READS and len(data) >= _LONG_READ and not answer.plain
            began = thread_time() if framed else 0.0
            answer.take(data)
            if framed and (spent := thread_time() - began) > _DEAR_SECONDS_PER_BYTE * len(data):
                with self._expensive:
                    connection.pause(spent / _SHARE)
            if answer.violation:
                return Failure(FailureKind.PROTOCOL, answer.violation, code=answer.status)
            if answer.complete:
                return None
            if not data:
                detail = f"closed after {answer.received} bytes, before the end of the answer"
                return Failure(FailureKind.RESET, detail, code=answer.status)
            if answer.head_done and _beyond_cap(answer, max_body_bytes, pack):
                return None
            if answer.head_done:
                begun = begun or now
                part.hold(max(part.held, len(answer.body)), answer.missing)
            else:
                part.hold(answer.received, 0)
            reads += 1
            if reads % _READS_BETWEEN_YIELDS == 0:
                # Receiving does not switch greenlets while data is there, so a fast peer without an
                # end would keep the whole process to itself. sleep(0) would let other greenlets
                # run, but no timer and no socket become ready.
                connection.pause(_YIELD_SECONDS)

    def _too_slow(self, size: int, seconds: float) -> str:
        return (
            f"{size} bytes of a body in {seconds:.1f} s: "
            f"the least is {self._least_rate:g} bytes a second"
        )

    def decode(
        self, until: float, cap: int, answer: Answer, part: Part, pack: bool = False
    ) -> Decoded:
        """Undo content-encodings.

        A body that becomes large waits until there is memory, or is gzipped meanwhile if the caller
        can ``pack`` it. Raises MemoryTimeout.
        """
        if pack and 200 <= answer.status < 300:
            return self._packed(cap, answer)
        data, coding = bytes(answer.body), answer.headers.get("content-encoding", "")
        memory_budget, complete = self._memory_budget, answer.complete
        if coding and memory_budget.taken >= memory_budget.most:
            small = memory_budget.small
            decoded = decode(data, coding, min(cap, small), complete=complete)
            if cap <= small or not (decoded.truncated or decoded.error):
                return decoded
            del decoded  # otherwise all waiting requests would keep what they have just decoded
            part.grant(0)
            part.hold(len(data), cap)
            part.wait_for_room(until)
        return decode(data, coding, cap, complete=complete)

    def _packed(self, cap: int, answer: Answer) -> Decoded:
        """Decode small bodies, and pack all others: one at a time, in a thread."""
        coding = answer.headers.get("content-encoding", "")
        if coding or len(answer.body) <= SMALL_BYTES:
            data = bytes(answer.body)
            small = decode(data, coding, min(cap, SMALL_BYTES), complete=answer.complete)
            if cap <= SMALL_BYTES or not (small.truncated or small.error):
                return small
        with self._packing:
            pool = gevent.get_hub().threadpool
            given = (answer.body, coding, cap)
            found: Decoded = pool.apply(packed, given, {"complete": answer.complete})
            return found


def put_aside(answer: Answer, part: Part) -> Failure:
    """Return the failure of a request that ended because others waited for its memory or place."""
    if part.cut:
        detail = "it had sent nothing, and others waited for its place"
        return Failure(FailureKind.TIMEOUT, detail)
    detail = (
        f"ended after {part.held} bytes: others waited for the memory, and it came too slowly "
        "for what it held"
    )
    return Failure(FailureKind.TIMEOUT, detail, code=answer.status)


def _beyond_cap(answer: Answer, max_body_bytes: int, pack: bool) -> bool:
    cap, encoded = max_body_bytes, "content-encoding" in answer.headers
    if encoded:
        cap = encoded_cap(cap)
    if pack and (encoded or answer.body.startswith(GZIP_MAGIC)):
        cap = min(cap, MAX_CAME_BYTES)
    # The second limit is for framing that outweighs its content: chunks of one byte, trailers.
    return len(answer.body) > cap or answer.received > 2 * cap + 2**20
