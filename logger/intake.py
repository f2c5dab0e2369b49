"""Lines on their way to disk: taken from posts, kept in memory for at most a minute, written.

A sender keeps what is not on disk, so nothing is lost when this process dies. A post that comes
again adds nothing. If the disk is full, the lines in memory are dropped – their senders have them –
and each further post is tried at once, until one can be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import gevent
from gevent.lock import Semaphore

from greencrawl.logger.archive import Archive
from greencrawl.logger.lines import Line, read
from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.logs.records import PostReply

log = logger("intake")

FLUSH_SECONDS = 60.0
FLUSH_BYTES = 512 * 1024
"""A member's lines are written when the first has waited for this long, or when there are this
many."""
ALL_BYTES = 64 * 1024 * 1024
"""All members together may have this many bytes; beyond it each post is written at once."""
LOOK_SECONDS = 1.0
REST_SECONDS = 10.0
"""Seconds of rest after an unexpected error."""


class Full(GreencrawlError):
    """Raised when lines cannot be written: the sender keeps them, or sends them to another
    logger."""


class _Life:
    """Lines of a member's life that are taken and not on disk: successive, from ``first`` on."""

    def __init__(self, member: str, incarnation: int) -> None:
        self.member = member
        self.incarnation = incarnation
        self.first = 0
        self.lines: list[Line] = []
        self.bytes = 0
        self.since = 0.0
        self.writing = Semaphore()

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class Intake:
    """Takes lines; see the module's docstring. Writes to ``archive`` in threads."""

    def __init__(self, archive: Archive, clock: Clock = monotonic) -> None:
        self.archive = archive
        self._clock = clock
        self._lives: dict[tuple[str, int], _Life] = {}
        self.full = ""
        """Why the last lines could not be written; "" if they were."""
        self.taken_lines = 0
        self.repeated_lines = 0
        self.bytes = 0

    def take(
        self, member: str, incarnation: int, first: int, texts: list[bytes], after: int, flush: bool
    ) -> PostReply:
        """Take lines numbered from ``first`` on. Raises Full.

        Nothing is taken if lines up to ``after``, which were taken before, have been lost since.
        """
        with self._held(member, incarnation) as life:
            kept = self.archive.last(member, incarnation)
            taken = life.last if life.lines else kept
            if after > taken:
                return PostReply(taken=taken, kept=kept)
            new = texts[max(taken + 1 - first, 0) :]
            self.repeated_lines += len(texts) - len(new)
            if new:
                number = first + len(texts) - len(new)
                if life.lines and number != taken + 1:  # its sender dropped the lines in between
                    self._write(life)
                self._add(life, number, new)
            due = life.bytes >= FLUSH_BYTES or self.bytes >= ALL_BYTES
            if life.lines and (flush or due or self.full):
                self._write(life)
            kept = self.archive.last(member, incarnation)
            return PostReply(taken=life.last if life.lines else kept, kept=kept)

    def run(self) -> None:
        """Write lines that have waited for long enough, for ever."""
        while True:
            gevent.sleep(LOOK_SECONDS)
            try:
                self.flush_old()
            except Exception:  # a bug must not end it: all lines would stay in memory
                with suppress(OSError):  # our own log may go to the same disk
                    log.exception("flush_failed")
                gevent.sleep(REST_SECONDS)

    def flush_old(self) -> None:
        """Write lines that have waited for a minute."""
        self._flush(self._clock() - FLUSH_SECONDS)

    def flush(self) -> None:
        """Write all lines."""
        self._flush(self._clock())

    def waiting(self) -> Iterator[tuple[str, int, int, list[Line]]]:
        """Yield member, incarnation, first number and lines in memory of each life that has
        some."""
        for life in list(self._lives.values()):
            if life.lines:
                yield life.member, life.incarnation, life.first, list(life.lines)

    def _flush(self, since: float) -> None:
        for key, life in list(self._lives.items()):
            with life.writing:
                if life.lines and life.since <= since:
                    try:
                        self._write(life)
                    except Full:
                        continue
                if not life.lines and self._lives.get(key) is life:
                    del self._lives[key]

    @contextmanager
    def _held(self, member: str, incarnation: int) -> Iterator[_Life]:
        """Hold the life to which lines may be added: another may replace it while we wait."""
        key = member, incarnation
        while True:
            life = self._lives.setdefault(key, _Life(member, incarnation))
            with life.writing:
                if self._lives.get(key) is life:
                    yield life
                    return

    def _add(self, life: _Life, number: int, texts: list[bytes]) -> None:
        now = epoch_ms()
        if not life.lines:
            life.first, life.since = number, self._clock()
        lines = [self.archive.placed(read(text, now), now) for text in texts]
        life.lines += lines
        more = sum(len(line.text) for line in lines)
        life.bytes += more
        self.bytes += more
        self.taken_lines += len(lines)

    def _write(self, life: _Life) -> None:
        """Write a life's lines, or drop them. Raises Full."""
        try:
            error = gevent.get_hub().threadpool.apply(self._append, (life,))
        finally:
            self.bytes -= life.bytes
            life.lines, life.bytes = [], 0
        if error is None:
            if self.full:
                log.info("logs_written_again")
            self.full = ""
            return
        before, self.full = self.full, error.strerror or str(error)
        with suppress(OSError):  # our own log may go to the same disk
            if not before:
                log.warning("logs_not_written", reason=str(error))
        raise Full(f"the lines cannot be written: {self.full}")

    def _append(self, life: _Life) -> OSError | None:
        """Append in a thread; return an error, since the hub would print a raised one."""
        try:
            self.archive.append(life.member, life.incarnation, life.first, life.lines)
        except OSError as error:
            return error
        return None
