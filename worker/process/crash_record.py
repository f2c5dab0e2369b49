"""A page of memory that a worker process shares with its supervisor, and that outlives both.

The child writes its heartbeat and, while a page is being parsed, *which* page that is. When the
child dies or hangs, the supervisor reads there whom to charge. The file is a plain ``mmap``: other
processes see a write at once, and it survives SIGKILL. It does not survive a power cut, after which
no task may count a failure.

Layout (little-endian): beats u64 · ready u8 · cause u8 · set u8 · pad u8 · length u32 · payload. At
the end is the moment (f64) at which the last process was found dead.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from greencrawl.schema.records import FailureKind, Session

if TYPE_CHECKING:  # the supervisor has no gevent
    from greencrawl.worker.process.blocked import Blocked

SIZE = 16_384
_HEAD = struct.Struct("<QBBBxI")
_BEATS = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
_DIED = struct.Struct("<d")
_DIED_AT = SIZE - _DIED.size
_READY, _CAUSE, _SET, _LENGTH_AT = 8, 9, 10, 12
_CAUSES: tuple[FailureKind | None, ...] = (None, FailureKind.PROCESS_DEATH, FailureKind.STALLED)


class Suspect(Struct, frozen=True, array_like=True):
    """The task whose page is being parsed, with all that is needed to charge it."""

    session: str
    token: str
    task: int
    crawl: int
    url: str
    depth: int
    level: int
    errors: int

    def of_session(self) -> Session:
        """Return the session that held it, as far as it is known."""
        return Session(
            session=self.session,
            token=self.token,
            crawl=self.crawl,
            revision=0,
            host=self.session.partition("/")[2],
            ttl=0.0,
            delay=0.0,
            floor=0.0,
            robots_known=True,
            tasks=(),
        )


class Lock(Protocol):
    """Lets one page at a time be parsed: a lock of threads, or gevent's own."""

    def acquire(self) -> object:
        """Wait until the lock is free, and hold it."""

    def release(self) -> object:
        """Give the lock back."""


class CrashRecord:
    """One child's shared page; the child writes, the supervisor reads.

    Raises OSError when the file cannot be made.
    """

    def __init__(
        self, path: Path, lock: Lock | None = None, blocked: Blocked | None = None
    ) -> None:
        """Open the record.

        Pages are parsed under ``lock``. The default is a lock of threads, which is slower if gevent
        has patched it. ``blocked`` notes how long each body took.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # a hole in the file on a full disk would cause SIGBUS
            os.posix_fallocate(descriptor, 0, SIZE)
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._beats = 0
        self._parses = 0
        self._page = 0  # number of the page being parsed, 0 between pages
        self._beaten_page = 0
        self._lock = threading.Lock() if lock is None else lock
        self._blocked = blocked
        self._encode = msgspec.msgpack.Encoder().encode

    # -- the child

    def beat(self) -> None:
        """Show that the process makes progress: the hub runs, and no page is parsed for ever.

        While one page is being parsed, only the first call beats. If a user's hook waits
        (``time.sleep``, a request without an answer), the hub runs, but no other page can be
        parsed.
        """
        if self._page and self._page == self._beaten_page:
            return
        self._beaten_page = self._page
        self._beats += 1
        _BEATS.pack_into(self._map, 0, self._beats)

    def set_ready(self) -> None:
        """Show that the child has started: a death from now on is no failed start."""
        self._map[_READY] = 1

    def parsing(self, suspect: Suspect) -> Parsing:
        """Name ``suspect`` for as long as the body runs; one body at a time in a process.

        Bodies are read one after the other because a user's hook may yield to the hub: with two at
        once, nobody could say which of them killed the process.
        """
        return Parsing(self, suspect, self._blocked)

    def _begin(self, suspect: Suspect) -> None:
        encoded = self._encode(suspect)  # this may raise, so it comes before the lock
        payload = _LENGTH.pack(len(encoded)) + encoded
        end = _LENGTH_AT + len(payload)
        self._lock.acquire()
        self._parses += 1
        self._page = self._parses
        if end <= _DIED_AT:  # otherwise (a URL beyond every limit) the page is parsed unnamed
            self._map[_LENGTH_AT:end] = payload
            self._map[_SET] = 1

    def _end(self) -> None:
        self._map[_SET] = 0
        self._page = 0
        self._lock.release()

    # -- the supervisor, and the next child

    @property
    def beats(self) -> int:
        """Return the heartbeats so far; if the number does not change for long, the hub hangs."""
        return int(_BEATS.unpack_from(self._map)[0])

    @property
    def ready(self) -> bool:
        """Return whether the child has started: see :meth:`set_ready`."""
        return bool(self._map[_READY])

    def suspect(self) -> Suspect | None:
        """Return the task being parsed now (or when the process died); None between pages."""
        _, _, _, marked, length = _HEAD.unpack_from(self._map)
        if not marked:
            return None
        payload = self._map[_HEAD.size : _HEAD.size + length]
        return msgspec.msgpack.decode(payload, type=Suspect)

    def note_death(self, cause: FailureKind) -> Suspect | None:
        """Write down why the child is gone, for its successor; return the suspect, if any.

        Without a suspect nothing is written: no task will count a failure.
        """
        suspect = self.suspect()
        self._map[_CAUSE] = _CAUSES.index(cause) if suspect else 0
        return suspect

    def verdict(self) -> tuple[FailureKind, Suspect] | None:
        """Return what :meth:`note_death` wrote, until :meth:`clear`."""
        cause, suspect = _CAUSES[self._map[_CAUSE]], self.suspect()
        return (cause, suspect) if cause and suspect else None

    @property
    def died(self) -> float:
        """Return when the previous process was found dead, by ``time.monotonic``; 0: not known."""
        return float(_DIED.unpack_from(self._map, _DIED_AT)[0])

    def rearm(self, died: float = 0.0) -> None:
        """Prepare for a new child: heartbeat and readiness start again, a verdict stays.

        ``died``: when the previous child was found dead, by ``time.monotonic``; 0: not known.

        A suspect without a verdict is forgotten: its process died together with the supervisor,
        which the page did not cause.
        """
        _BEATS.pack_into(self._map, 0, 0)
        _DIED.pack_into(self._map, _DIED_AT, died)
        self._map[_READY] = 0
        if self.verdict() is None:
            self.clear()

    def clear(self) -> None:
        """Forget suspect and verdict."""
        self._map[_SET] = 0
        self._map[_CAUSE] = 0

    def close(self) -> None:
        """Unmap the page; the file stays."""
        self._map.close()


class Parsing:
    """A body of :meth:`CrashRecord.parsing`. It is a class for speed, since each page uses it."""

    __slots__ = ("_begun", "_blocked", "_crash_record", "_suspect")

    def __init__(
        self, crash_record: CrashRecord, suspect: Suspect, blocked: Blocked | None
    ) -> None:
        self._crash_record = crash_record
        self._suspect = suspect
        self._blocked = blocked

    def __enter__(self) -> None:
        self._crash_record._begin(self._suspect)
        if self._blocked is not None:
            self._begun = self._blocked.begin()

    def __exit__(self, *_: object) -> None:
        if self._blocked is not None:
            self._blocked.end(self._begun)
        self._crash_record._end()
