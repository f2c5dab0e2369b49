"""Bodies in WARC files: ``greencrawl.store.bodies.Bodies`` in a folder that processes share."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from gevent.monkey import get_original

from greencrawl.schema import crash_points
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import StoredPage
from greencrawl.store.bodies import Place, has_body
from greencrawl.store.errors import BodyAway, Closed
from greencrawl.store.warc import records
from greencrawl.store.warc.records import Damage, Origin, Record
from greencrawl.store.warc.segment import OPEN, Segment, Unsynced, repair, sync_folder

log = logger("store")

SEGMENT_BYTES = 1024**3
"""A file of this size is finished, and the next one begun."""

FOREIGN_SECONDS = 24 * 3600.0
"""After this long without a write, the writer of a file on another host counts as dead."""

_WRITE_BYTES = 1024 * 1024
_ORIGINS = 4096
_BEGINNINGS = 3
"""Tries to begin a new file."""
_HEAD_BYTES = 2048
_MOST_BYTES = 2**30 + 2**20  # the largest body (CrawlOptions.max_body_bytes) and its header
_NAME = re.compile(r"greencrawl-\d{17}-\d{5}-(?P<host>[A-Za-z0-9_-]+)-\d+\.warc\.gz")
_numbers = count(1)  # numbers of this process, which may have several stores open

Known = Mapping[tuple[int, bytes], Place]


class WarcFiles:
    """:class:`greencrawl.store.bodies.Bodies` in ``folder``.

    The folder is touched at the first append: a process that only reads creates and repairs
    nothing. Each process writes a file of its own, ``greencrawl-TIME-NUMBER-HOST-PID.warc.gz``, and
    many may do so in one folder. At the first append, files of writers that died on this host are
    finished.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._segment: Segment | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._info_bytes = 0
        self._origins: OrderedDict[tuple[int, bytes], Origin] = OrderedDict()
        self._process = os.getpid()
        self._prepared = False
        self._closed = False

    # -- writing

    def append(self, pages: Sequence[StoredPage], known: Known) -> list[Place]:
        """See :class:`greencrawl.store.bodies.Bodies`."""
        if self._closed or self._process != os.getpid():
            raise Closed(f"the files in {self.folder} are closed, or were opened elsewhere")
        try:
            with _short_switch_interval:
                self._prepare()
                places = self._append(pages, known)
                self._flush()
                if self._segment is not None:
                    self._segment.sync()
        except OSError as error:
            self._give_up(error)
            raise Unavailable(f"{error.strerror or error}: {self.folder}") from error
        except BaseException:
            self._drop_pending()
            raise
        return places

    def _append(self, pages: Sequence[StoredPage], known: Known) -> list[Place]:
        here: dict[tuple[int, bytes], tuple[Place, Origin]] = {}
        places = []
        for page in pages:
            key = (page.crawl, page.digest)
            met = here.get(key)
            if not page.body and not has_body(page):
                # Stored before, and committed again without its body: nothing was fetched.
                places.append(known.get(key) or (met[0] if met else NO_PLACE))
                continue
            origin = None
            if page.body and page.digest:
                origin = met[1] if met else self._origin(key, known)
            answer = records.revisit(page, origin) if origin else records.response(page)
            asked = records.asked(page, answer, page.request)
            place = self._put(answer, asked)
            if page.body and not origin:
                here[key] = place, records.origin_of(answer, page)
            places.append(place)
        for key, (_, origin) in here.items():
            self._remember(key, origin)
        return places

    def _origin(self, key: tuple[int, bytes], known: Known) -> Origin | None:
        """Return the record that holds a known body; None if it is missing: then the body is kept
        again."""
        place = known.get(key)
        if place is None:
            return None
        origin = self._origins.get(key)
        if origin is None:
            try:
                fields = records.beginning(self._bytes(place, _HEAD_BYTES))
                origin = Origin(
                    fields["warc-record-id"], fields["warc-target-uri"], fields["warc-date"]
                )
            except (BodyAway, Damage, KeyError) as error:
                log.warning("warc_body_not_referenced", file=place.file, reason=str(error))
                return None
            self._remember(key, origin)
        return origin

    def _remember(self, key: tuple[int, bytes], origin: Origin) -> None:
        self._origins[key] = origin
        self._origins.move_to_end(key)
        if len(self._origins) > _ORIGINS:
            self._origins.popitem(last=False)

    def _put(self, *group: Record) -> Place:
        """Queue records that belong together; return the place of the first."""
        packed = [records.member(record) for record in group]
        size = sum(map(len, packed))
        if (
            self._segment is not None
            and self._end() > self._info_bytes  # each file holds at least one page
            and self._end() + size > self._segment_bytes
        ):
            self._rotate()
        if self._segment is None:
            self._segment = self._begin()
        if not self._end():
            self._queue(records.member(records.warcinfo(self._segment.name, {"hostname": _host()})))
            self._info_bytes = self._pending_bytes
        place = Place(self._segment.name, self._end(), len(packed[0]))
        for part in packed:
            self._queue(part)
        return place

    def _queue(self, packed: bytes) -> None:
        if self._pending_bytes + len(packed) > _WRITE_BYTES:
            self._flush()  # a long record is written alone: see segment.TORN_BYTES
        self._pending.append(packed)
        self._pending_bytes += len(packed)

    def _end(self) -> int:
        assert self._segment is not None
        return self._segment.size + self._pending_bytes

    def _begin(self) -> Segment:
        for _ in range(_BEGINNINGS - 1):
            with suppress(FileNotFoundError):  # another process took the file for a dead writer's
                return self._made()
        return self._made()

    def _made(self) -> Segment:
        moment = epoch_ms()
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(moment // 1000))
        name = (
            f"greencrawl-{stamp}{moment % 1000:03d}-{next(_numbers):05d}-{_host()}-"
            f"{self._process}.warc.gz"
        )
        return Segment(self.folder, name)

    def _flush(self) -> None:
        """Write what is queued. Raises OSError."""
        if self._segment is None or not self._pending:
            return
        crash_points.point("warc.before_write")
        self._segment.write(b"".join(self._pending))
        crash_points.point("warc.after_write")
        self._drop_pending()

    def _rotate(self) -> None:
        self._flush()
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.sync()
            segment.finish()

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0

    def _give_up(self, error: OSError) -> None:
        """Leave a usable file behind: cut off what is perhaps not durable."""
        self._drop_pending()
        segment = self._segment
        if segment is None:
            return
        try:
            if isinstance(error, Unsynced):  # the kernel may forget what it could not write
                self._segment = None
                segment.finish()
            else:
                segment.cut()
        except OSError as second:  # the next start cuts and finishes it
            self._segment = None
            log.warning("warc_file_not_finished", file=segment.name, reason=str(second))

    def _prepare(self) -> None:
        """Make the folder, and finish what dead writers left; once only. Raises OSError."""
        if self._prepared:
            return
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
        finish_orphans(self.folder)
        self._prepared = True

    # -- reading

    def read(self, place: Place) -> bytes:
        """See :class:`greencrawl.store.bodies.Bodies`. May be called from any thread."""
        packed = self._bytes(place, place.length)
        if len(packed) < place.length:
            raise BodyAway(place.file, "cut off")
        try:
            return records.body_of(records.plain(packed, _MOST_BYTES))
        except Damage as error:
            raise BodyAway(place.file, str(error)) from error

    def _bytes(self, place: Place, most: int) -> bytes:
        """Return the first bytes of a record. Raises BodyAway."""
        if not place.file or "/" in place.file or "\0" in place.file:
            raise BodyAway(place.file, "no name of a file")
        if place.offset < 0 or not 0 < place.length <= _MOST_BYTES:
            raise BodyAway(place.file, "no place in a file")
        for name in (place.file, place.file + OPEN, place.file):  # a writer may finish it meanwhile
            try:
                with (self.folder / name).open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), min(most, place.length), place.offset)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise BodyAway(place.file, error.strerror or str(error)) from error
        raise BodyAway(place.file, "there is no such file")

    def close(self) -> None:
        """See :class:`greencrawl.store.bodies.Bodies`."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.finish()
            except OSError as error:
                log.warning("warc_file_not_finished", file=segment.name, reason=str(error))


NO_PLACE = Place("", 0, 0)
"""The place of a body that is not here and that the store does not know."""


def finish_orphans(folder: Path) -> None:
    """Finish files of writers that died: on this host, or elsewhere a day ago."""
    for path in sorted(folder.glob(f"*.warc.gz{OPEN}")):
        found = _NAME.fullmatch(path.name.removesuffix(OPEN))
        try:
            if found is None or (found["host"] != _host() and _fresh(path)):
                continue
            cut = repair(path)
        except OSError as error:
            log.warning("warc_file_not_finished", file=path.name, reason=str(error))
            continue
        if cut is not None:
            log.info("warc_file_finished", file=path.name, cut_bytes=cut)


def _fresh(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime < FOREIGN_SECONDS
    return True


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "-", socket.gethostname())[:60] or "host"


class _ShortSwitchInterval:
    """Lets threads get the GIL back sooner while it is entered.

    Hashing and deflating a page give up the GIL several times. While the hub is busy, it may take
    the switch interval (5 ms by default) to get it back each time; see
    ``greencrawl.store.sqlite.commits``. A trial wrote 1.2 to 1.5 times as many pages this way.
    """

    SECONDS = 0.0002

    def __init__(self) -> None:
        self._lock = get_original("threading", "Lock")()
        self._inside = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, self.SECONDS))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._usual)


_short_switch_interval = _ShortSwitchInterval()
