"""Exports of any size, in constant memory, that continue where they were interrupted.

An export to FILE writes ``FILE.part`` and, about once a second, ``FILE.part.state``: the length of
the part after a whole record, and the store's cursor there. To continue, it cuts the part to that
length. FILE appears when the export is complete.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from greencrawl.schema import crash_points, wire
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Crawl, Final, PageFilter, StoredPage
from greencrawl.store.base import Store
from greencrawl.store.errors import BodyAway
from greencrawl.store.export.formats import Format

CHECKPOINT_SECONDS = 1.0
_WRITE_BYTES = 256 * 1024
_SINGLY = 100
"""After a page whose body is away, this many pages are read one by one."""

Watch = Callable[["Position"], None]


class OptionsDiffer(GreencrawlError):
    """Raised when the part of an earlier export was made with other options."""

    def __init__(self, part: Path, names: list[str]) -> None:
        super().__init__(
            f"{part} was begun with another {', '.join(names)}: to continue, give the same "
            f"options; to begin anew, add --restart"
        )


class Wanted(Struct, frozen=True, kw_only=True):
    """The exported part of a crawl. ``pages_only`` leaves out URLs without a page."""

    crawl: Crawl
    pages: PageFilter = PageFilter()
    pages_only: bool = False


class Position(Struct):
    """How far an export is: the part's length in bytes, and what it holds."""

    length: int = 0
    phase: str = "pages"
    cursor: str = ""
    pages: int = 0
    """Pages that have a record in the export."""
    finals: int = 0
    no_body: int = 0
    """Pages without a body although it was wanted: it was not kept or could not be read."""

    @property
    def rows(self) -> int:
        """Return the number of records so far: pages and final states."""
        return self.pages + self.finals


class _State(Struct):
    """The contents of ``FILE.part.state``.

    ``options`` are the options as they were typed; ``since_ms`` is the moment that a relative time
    meant. ``columns`` are the columns of a table, found at the start of the export.
    """

    options: dict[str, Any]
    since_ms: int
    position: Position
    version: int = 1
    columns: tuple[str, ...] = ()


def export(store: Store, wanted: Wanted, format_: Format, out: BinaryIO) -> Position:
    """Write the whole export to ``out``. Raises Unavailable, and what ``out`` raises."""
    position = Position()
    out.write(format_.begin())
    for data in _records(store, wanted, format_, position):
        out.write(data)
        position.length += len(data)
    return position


def pieces(store: Store, wanted: Wanted, format_: Format) -> Iterator[bytes]:
    """Yield the whole export, a record at a time. Raises Unavailable."""
    yield format_.begin()
    yield from _records(store, wanted, format_, Position())


class Resumable:
    """An export to ``path`` that the same command continues.

    ``options`` are the command's options as JSON values. A part with other options is refused
    (OptionsDiffer) unless ``restart``. Use it as a context manager. Raises GreencrawlError when the
    files cannot be written or another process writes them.
    """

    def __init__(
        self, path: Path, options: dict[str, Any], since_ms: int, *, restart: bool = False
    ) -> None:
        self.path = path
        self.part = path.with_name(f"{path.name}.part")
        self._state_path = path.with_name(f"{path.name}.part.state")
        self._new_state_path = path.with_name(f"{path.name}.part.state.new")
        self._options = options
        self._file = self._open()
        try:
            state = None if restart else self._state()
            self.resumed = state is not None and state.position.length > 0
            """True if an earlier run is continued."""
            self.since_ms = state.since_ms if state else since_ms
            """The start of the exported time; an export that is continued keeps it."""
            self.position = state.position if state else Position()
            self.columns = state.columns if state else ()
            """Columns of a table that are found at its start: set them before :meth:`run`."""
            if state is None:  # otherwise a crash would bring the old state back
                self._state_path.unlink(missing_ok=True)
            self._file.truncate(self.position.length)
            self._file.seek(self.position.length)
        except BaseException:
            self._file.close()
            raise
        self._safe = msgspec.structs.replace(self.position)
        self._checked = time.monotonic()

    def __enter__(self) -> Resumable:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _open(self) -> FileIO:
        try:
            number = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            folder = self.part.parent
            why = error.strerror if folder.is_dir() else f"there is no folder {folder}"
            raise GreencrawlError(f"cannot write {self.part}: {why}") from error
        file = FileIO(number, "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.part.stat().st_ino == os.fstat(number).st_ino:
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()
        raise GreencrawlError(f"another process writes {self.part}")

    def _state(self) -> _State | None:
        """Return the state of an earlier run, or None if there is nothing to continue."""
        try:
            state = wire.from_json(self._state_path.read_bytes(), _State)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise GreencrawlError(
                f"cannot read {self._state_path} ({error}); --restart begins anew"
            ) from error
        if state.options != self._options:
            names = {*state.options, *self._options}
            differing = [n for n in names if state.options.get(n) != self._options.get(n)]
            raise OptionsDiffer(self.part, sorted(differing))
        if os.fstat(self._file.fileno()).st_size < state.position.length:
            return None  # the part was taken away
        return state

    def run(self, store: Store, wanted: Wanted, format_: Format, watch: Watch) -> Position:
        """Write what is missing, and rename the part to its final name.

        ``watch`` is called now and then with the position. After any exception – an interrupt,
        Unavailable, GreencrawlError for a full disk – the same command continues.
        """
        try:
            self._write_all(store, wanted, format_, watch)
            os.fsync(self._file.fileno())
            crash_points.point("export.before_rename")
            self.part.replace(self.path)
            self._state_path.unlink(missing_ok=True)
            self._new_state_path.unlink(missing_ok=True)  # left by a run that was killed
        except OSError as error:
            self._stop()
            raise GreencrawlError(
                f"cannot write {self.path}: {error.strerror}; the same command goes on"
            ) from error
        except BaseException:
            self._stop()
            raise
        return self.position

    def _write_all(self, store: Store, wanted: Wanted, format_: Format, watch: Watch) -> None:
        position = self.position
        waiting: list[bytes] = []
        size = 0
        if not position.length:
            waiting.append(format_.begin())
        for data in _records(store, wanted, format_, position):
            waiting.append(data)
            size += len(data)
            due = time.monotonic() - self._checked >= CHECKPOINT_SECONDS
            if size >= _WRITE_BYTES or due:
                self._flush(waiting)
                size = 0
                watch(self.position)
            if due:
                self._checkpoint()
        self._flush(waiting)
        watch(self.position)

    def _flush(self, waiting: list[bytes]) -> None:
        """Write whole records; a half-written record after an interrupt is not counted."""
        data = b"".join(waiting)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        crash_points.point("export.written")
        reached = msgspec.structs.replace(self.position, length=self._safe.length + len(data))
        self._safe = reached
        self.position.length = reached.length
        waiting.clear()

    def _checkpoint(self) -> None:
        """Make the position durable. Raises OSError."""
        os.fsync(self._file.fileno())
        state = _State(self._options, self.since_ms, self._safe, columns=self.columns)
        with self._new_state_path.open("wb") as file:
            file.write(wire.to_json(state))
            file.flush()
            os.fsync(file.fileno())
        crash_points.point("export.checkpoint")
        self._new_state_path.replace(self._state_path)
        self._checked = time.monotonic()

    def _stop(self) -> None:
        """Cut the part to its last whole record and note that; an older state would do as well."""
        self.position = self._safe
        with suppress(OSError):
            self._file.truncate(self._safe.length)
            self._checkpoint()


def _records(store: Store, wanted: Wanted, format_: Format, position: Position) -> Iterator[bytes]:
    """Yield records from ``position`` on; ``position`` moves to the end of each record."""
    crawl = wanted.crawl.id
    if position.phase == "pages":
        for cursor, page in _pages(store, wanted, format_, position.cursor):
            data = format_.page(page)
            position.cursor = cursor
            position.pages += bool(data)
            position.no_body += format_.lacks_body(page)
            yield data
        position.phase, position.cursor = "finals", ""
    if wanted.pages_only or not format_.finals:
        return
    for cursor, final in store.finals(crawl, wanted.pages.since_ms, after=position.cursor):
        position.cursor = cursor
        if not _is_wanted(final, wanted.pages):
            continue
        data = format_.final(final)
        position.finals += 1
        yield data


def _pages(
    store: Store, wanted: Wanted, format_: Format, after: str
) -> Iterator[tuple[str, StoredPage]]:
    """Yield pages after a cursor; a page whose body is away comes without it."""
    crawl, pages, at = wanted.crawl.id, wanted.pages, after
    while True:
        try:
            for cursor, page in store.pages(crawl, pages, detail=format_.detail, after=at):
                at = cursor
                yield cursor, page
            return
        except BodyAway:
            for cursor, page in islice(store.pages(crawl, pages, detail="text", after=at), _SINGLY):
                at = cursor
                yield cursor, with_body(store, page)


def with_body(store: Store, page: StoredPage) -> StoredPage:
    """Return the page with its body; without it if the body is away."""
    try:
        return store.page(page.crawl, page.fingerprint) or page
    except BodyAway:
        return page


def _is_wanted(final: Final, pages: PageFilter) -> bool:
    low, high = pages.status
    return low <= final.code <= high and (not pages.host or host_of(final.url) == pages.host)
