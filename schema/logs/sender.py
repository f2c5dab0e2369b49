"""Sends a process's lines to a logger: one greenlet, at most one batch a second.

Lines wait in a :class:`Ring` until a logger has them on disk. The answer to each post says which
lines are on disk. If a logger fails, lines that it has taken but not written are sent again, to
another one. While no logger takes lines, or there are more than may be sent, the :class:`Spool`
keeps them. Lines in the spool are sent first, so that the lines of a process come in their order.

A logger ignores a line that it has already, so sending one again does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import msgspec
import zstandard
from gevent.event import Event

from greencrawl.schema import log as logs
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.logs.known_loggers import KnownLoggers
from greencrawl.schema.logs.logger_choice import ranked
from greencrawl.schema.logs.records import POST_BYTES, PostReply
from greencrawl.schema.logs.ring import RING_BYTES, Ring
from greencrawl.schema.logs.spool import SPOOL_BYTES, Batch, Spool
from greencrawl.schema.transport import KeepAlive, Lost, Reply
from greencrawl.schema.wire import from_json

log = logs.logger("logs")

EVERY_SECONDS = 1.0
"""Seconds between two batches."""
CALL_SECONDS = 5.0
"""How long a logger's answer is waited for."""
LAST_SECONDS = 2.0
"""How long it is waited for when the process ends."""
REST_SECONDS = 1.0
MOST_REST_SECONDS = 30.0
"""The longest pause after a logger failed; pauses double each time."""
ASK_SECONDS = 20.0
"""How long after the last post the logger is asked whether the lines are on disk."""
LEFT_SECONDS = 60.0
"""Seconds between two searches for the spools of dead processes."""
_PACKED = ("Content-Type: application/x-ndjson", "Content-Encoding: zstd")
_REFUSED = frozenset({400, 404, 405, 413, 415})
"""Statuses after which the same request must not be repeated."""


class Sender:
    """The sender; see the module's docstring. ``folder`` is the data folder; the other settings are
    a worker's.

    :meth:`begin` names this process, :meth:`tell` the loggers. Lines that come before these are
    known wait in the ring. While no logger is known, nothing is sent.
    """

    def __init__(
        self,
        folder: Path,
        token: str,
        ca: str = "",
        *,
        ring_bytes: int = RING_BYTES,
        spool_bytes: int = SPOOL_BYTES,
        every_seconds: float = EVERY_SECONDS,
        clock: Clock = monotonic,
        connect: Callable[[str, str], KeepAlive] = KeepAlive,
    ) -> None:
        self.ring = Ring(ring_bytes)
        self._base = folder / "spool"
        self._known = KnownLoggers(self._base)
        self._spool_bytes = spool_bytes
        self._every = every_seconds
        self._half = ring_bytes // 2
        self._token, self._ca = token, ca
        self._clock, self._connect = clock, connect
        self._connections: dict[str, KeepAlive] = {}
        self._resting: dict[str, tuple[float, float]] = {}
        """Logger → (until when, for how long) it is not tried."""
        self._spool: Spool | None = None
        self._left: Iterator[Spool] = iter(())
        self._found: Spool | None = None
        """The spool of a dead process, which is being sent."""
        self._member = ""
        self._incarnation = 0
        self._logger = ""
        self._takes = ""
        """The logger that took lines last, as it was logged."""
        self._nobody = False
        """True if it was logged that no logger answers."""
        self._sent = 0
        """``_logger`` has taken the lines up to this one."""
        self._asked = 0.0
        self._looked = -LEFT_SECONDS
        self._told = 0
        self._trouble = ""
        self._stopping = Event()
        self._there = Event()
        self._greenlet: gevent.Greenlet[..., Any] | None = None
        logs.attach(self.ring.append)

    # -- the process's own identity

    def begin(self, member: str, incarnation: int) -> None:
        """Name this process; it begins to send as soon as a logger is known."""
        self._member, self._incarnation = member, incarnation
        self._spool = Spool(self._base, member, incarnation, self._spool_bytes)
        if self._known.loggers:
            self._come(self._spool)
        self._greenlet = gevent.spawn(self._run)

    def tell(self, loggers: Iterable[str]) -> None:
        """Set the loggers that a broker names now."""
        given = tuple(loggers)
        if not self._known.tell(given):
            self._forget()
        elif self._spool is not None and not self._there.is_set():
            self._come(self._spool)

    @property
    def queued(self) -> int:
        """Return how many lines in memory no logger has on disk."""
        return len(self.ring) if self._there.is_set() else 0

    @property
    def dropped(self) -> int:
        """Return how many lines of this node were lost here for lack of room, since this process
        began."""
        return self.ring.dropped

    def stop(self) -> None:
        """Send the rest, or leave it in the spool for the next process."""
        self._stopping.set()
        if self._greenlet is not None:
            self._greenlet.join(LAST_SECONDS)
            self._greenlet.kill()
        if self._there.is_set() and self._spool is not None:
            self._last_words()
            self._spool.close()
        if self._found is not None:
            self._found.close()
        for connection in self._connections.values():
            connection.close()

    # -- the greenlet

    def _run(self) -> None:
        while not self._stopping.is_set():
            gevent.wait([self._there, self._stopping], count=1)
            while self._there.is_set() and not self._stopping.wait(self._every):
                try:
                    self._step()
                except OSError as error:  # an error of the spool's folder
                    self._say_trouble(str(error))
                # a bug must not end the sender: its error would not be sent, either
                except Exception:
                    log.exception("lines_not_sent")
                    self._stopping.wait(MOST_REST_SECONDS)

    def _step(self) -> None:
        spool = self._spool
        assert spool is not None
        logger = self._choose()
        if not logger:
            if len(self.ring):
                self.ring.empty()
        elif batch := spool.claim():
            self._send_spooled(logger, spool, batch)
        elif not self._send_ring(logger):
            self._send_left(logger)
        if self.ring.bytes > self._half:
            self.ring.empty()
        self._say_trouble(spool.trouble)
        if logger and logger not in self._resting:
            self._say_dropped()

    def _choose(self) -> str:
        """Return the logger to send to now, "" if none answers. It may have changed."""
        rested = [one for one in self._known.loggers if not self._rests(one)]
        chosen = next(iter(ranked(self._member, rested)), "")
        if chosen != self._logger:
            if self._logger in rested and self._sent >= self.ring.first:
                self._post(self._logger, self._sent + 1, [], flush=True)
            if not chosen and not self._nobody:
                log.warning("logger_not_reached", loggers=list(self._known.loggers))
                self._nobody = True
            self._logger = chosen
            self._sent = 0
        return chosen

    def _send_ring(self, logger: str) -> bool:
        """Send a batch of the ring; return whether there was anything to send, or to ask."""
        sent = max(self._sent, self.ring.first - 1)
        first, lines = self.ring.after(sent, POST_BYTES)
        full = self.ring.bytes > self._half // 2
        if not lines:
            waits = len(self.ring) and self._clock() - self._asked > ASK_SECONDS
            return bool(waits) and self._post(logger, first, [], flush=full)
        self._post(logger, first, lines, flush=full)
        return True

    def _send_spooled(self, logger: str, spool: Spool, batch: Batch) -> None:
        last = batch.first + len(batch.lines) - 1
        try:
            reply = self._call(logger, spool, batch.first, batch.lines, flush=True)
        except BaseException:  # we are ending: no later line may be sent before it
            spool.back(batch)
            raise
        if reply is not None and reply.kept >= last:
            spool.done(batch)
        else:
            spool.back(batch)

    def _send_left(self, logger: str) -> None:
        """Send a batch from the spools of this node's dead processes."""
        if self._found is None:
            self._found = next(self._left, None)
        if self._found is None:
            if self._clock() - self._looked > LEFT_SECONDS:
                self._looked = self._clock()
                self._left = Spool.left(self._base, self._spool_bytes)
        elif batch := self._found.claim():
            self._send_spooled(logger, self._found, batch)
        else:
            if lines := self._found.dropped:
                log.warning("log_lines_dropped", lines=lines, member=self._found.member)
                self._found.reset_dropped()
            self._found.close()
            self._found = None

    # -- calls

    def _post(self, logger: str, first: int, lines: list[str], *, flush: bool = False) -> bool:
        """Send lines of the ring; return whether the logger took them."""
        spool = self._spool
        assert spool is not None
        after = self._sent if self._sent >= self.ring.first else 0
        self._asked = self._clock()
        reply = self._call(logger, spool, first, lines, after=after, flush=flush)
        if reply is None:
            self._sent = 0
            return False
        self._sent = reply.taken
        self.ring.forget(reply.kept)
        return True

    def _call(
        self,
        logger: str,
        spool: Spool,
        first: int,
        lines: list[str],
        *,
        after: int = 0,
        flush: bool = False,
    ) -> PostReply | None:
        """Send one post; return None if it failed: then the logger is not tried for a while."""
        path = (
            f"/v1/logs?member={spool.member}&incarnation={spool.incarnation}&first={first}"
            f"&after={after}&flush={'true' if flush else 'false'}"
        )
        body = zstandard.ZstdCompressor(level=1).compress("\n".join(lines).encode())
        seconds = LAST_SECONDS if self._stopping.is_set() else CALL_SECONDS
        answer = self._connection(logger).send("POST", path, body, self._token, seconds, _PACKED)
        if isinstance(answer, Reply) and answer.status == 200:
            with suppress(msgspec.DecodeError):
                reply = from_json(answer.body, PostReply)
                self._resting.pop(logger, None)
                self._say_taken(logger)
                return reply
        self._rest(logger, answer)
        if isinstance(answer, Reply) and answer.status in _REFUSED:
            # These lines would be refused again, and no later line would ever be sent.
            self.ring.dropped += len(lines)
            last = first + len(lines) - 1
            return PostReply(taken=last, kept=last)
        return None

    def _rest(self, logger: str, answer: Reply | Lost) -> None:
        _, before = self._resting.get(logger, (0.0, 0.0))
        seconds = min(max(2 * before, REST_SECONDS), MOST_REST_SECONDS)
        self._resting[logger] = (self._clock() + seconds, seconds)
        if not before:
            why = answer.why if isinstance(answer, Lost) else f"it answered {answer.status}"
            log.info("logger_failed", logger=logger, reason=why)

    def _rests(self, logger: str) -> bool:
        until, _ = self._resting.get(logger, (0.0, 0.0))
        return until > self._clock()

    def _connection(self, logger: str) -> KeepAlive:
        if logger not in self._connections:
            self._connections[logger] = self._connect(logger, self._ca)
        return self._connections[logger]

    # -- ends

    def _come(self, spool: Spool) -> None:
        """Note that there is a logger: from now on no line may be lost."""
        self.ring.spill = spool.append
        logs.attach(self.ring.append)
        self._there.set()

    def _forget(self) -> None:
        """Note that there is no logger: lines go to standard error only."""
        self._there.clear()
        logs.attach(None)
        self.ring.clear()
        self._logger = self._takes = ""
        self._nobody = False

    def _last_words(self) -> None:
        spool = self._spool
        assert spool is not None
        with suppress(OSError, gevent.Timeout), gevent.Timeout(2 * LAST_SECONDS):
            if (logger := self._choose()) and not spool:
                first, lines = self.ring.after(max(self._sent, self.ring.first - 1), POST_BYTES)
                self._post(logger, first, lines, flush=True)
        if len(self.ring):
            self.ring.empty()

    def _say_taken(self, logger: str) -> None:
        """Log each change once: a repeated failure is not worth a line each time."""
        if logger == self._logger and (logger != self._takes or self._nobody):
            log.info("logger_chosen", logger=logger)
            self._takes, self._nobody = logger, False

    def _say_dropped(self) -> None:
        if self.dropped > self._told:
            log.warning("log_lines_dropped", lines=self.dropped - self._told)
            self._told = self.dropped
            if self._spool is not None:
                self._spool.reset_dropped()

    def _say_trouble(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("spool_not_written", reason=trouble, pid=os.getpid())
        self._trouble = trouble
