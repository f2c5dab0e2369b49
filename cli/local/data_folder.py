"""The lock of a data folder: a command holds it, and writes into it where its broker listens.

Two brokers must not run an embedded Redis in one folder, so ``crawl`` and ``up`` hold the lock.
Other commands read from the lock which broker to ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from gevent.event import Event

from greencrawl.schema import file_lock
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError

LOCK = "greencrawl.lock"
REDIS_LOCK = Path("redis") / "lock"
"""The lock of a broker with an embedded Redis (``greencrawl.broker.frontier.nodes.embedded``)."""
REDIS_SERVER_LOCK = Path("redis") / "server.lock"
"""The lock of that Redis itself, with its process id in it."""
ORPHAN_SECONDS = 60.0
"""After its command was killed, a broker ends within a second or two; a large Redis takes
longer."""
LOOK_SECONDS = 0.1


class FolderHolder(msgspec.Struct, frozen=True):
    """The command that holds a data folder: its process id, and its broker's address."""

    command: str
    pid: int
    broker: str


class FolderInUse(GreencrawlError):
    """Raised when another command holds the data folder."""

    def __init__(self, data: Path, other: FolderHolder | None) -> None:
        who = f"greencrawl {other.command} (process {other.pid})" if other else "another command"
        there = f", or GREENCRAWL_BROKER={other.broker} to crawl with that one" if other else ""
        super().__init__(
            f"{data} is in use by {who}; wait until it ends, give another folder with --data{there}"
        )


@contextmanager
def held(data: Path, command: str, broker: str) -> Iterator[None]:
    """Hold ``data`` (created if missing) while the block runs.

    Raises :class:`FolderInUse`, and :class:`GreencrawlError` when the folder cannot be written.
    """
    note = msgspec.json.encode(FolderHolder(command, os.getpid(), broker))
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = file_lock.take(data / LOCK, note)
    except BlockingIOError:
        raise FolderInUse(data, holder(data)) from None
    except OSError as error:
        why = f"cannot use the data folder {data}: {error.strerror}"
        raise GreencrawlError(f"{why}; give another with --data") from error
    try:
        yield
    finally:
        os.close(descriptor)


def holder(data: Path) -> FolderHolder | None:
    """Return the command that holds ``data`` now, or None."""
    note = file_lock.holder(data / LOCK)
    try:
        return None if note is None else msgspec.json.decode(note, type=FolderHolder)
    except msgspec.DecodeError:
        return None  # the command has not written its note yet


def in_use(data: Path) -> bool:
    """Return whether a command, or a broker with an embedded Redis, uses ``data`` now."""
    return any(file_lock.holder(data / lock) is not None for lock in (LOCK, REDIS_LOCK))


def await_broker(
    data: Path, stopping: Event, say: Callable[[str], None], seconds: float = ORPHAN_SECONDS
) -> None:
    """Wait until no other broker has the embedded Redis in ``data``, which the caller holds.

    The broker of a command that was killed first shuts its Redis down. ``say`` gets the reason of
    the wait, and its limit. Once ``stopping`` is set, the function returns in any case. Raises
    :class:`GreencrawlError` when that broker does not end.
    """
    path = data / REDIS_LOCK
    note = file_lock.holder(path)
    if note is None:
        return
    who = f" (process {note.decode('ascii', 'replace')})" if note else ""
    say(f"waiting for the broker of another command{who} to end, {seconds:g} s at most")
    limit = monotonic() + seconds
    while file_lock.holder(path) is not None:
        if stopping.wait(LOOK_SECONDS):
            return
        if monotonic() > limit:
            raise GreencrawlError(
                f"the broker of another command{who} has {data} and does not end: is it stopped? "
                f"End it, and run the same command again"
            )
