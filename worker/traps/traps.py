"""Judges URLs: which are parked instead of fetched, and which links come last.

There is one for a process; the pipeline asks it about each task (:meth:`Traps.verdict`) and reports
each page to it (:meth:`Traps.note`). Its knowledge of a host goes with the host's session in a
packed record; its known text stays here. See docs/traps.md.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

from greencrawl.schema.records import EVERY_SHAPE, Crawl, StoredPage, Task, TaskKind
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps import record as records
from greencrawl.worker.traps.hosts import DONE, HostTraps, why
from greencrawl.worker.traps.known import Known, known
from greencrawl.worker.traps.learning import Learner
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.parameters import key_met, plain_of
from greencrawl.worker.traps.queries import plain, query_of
from greencrawl.worker.traps.shapes import LONGEST, Shape, Shaper
from greencrawl.worker.traps.yields import KNOWN_AFTER, POOR_SECTION, Yields

MOST = 40_000
"""About how many strings all hosts of a process keep: 8 MB.

The least recently used host makes room.
"""
_LEAST = 4
"""Pages of a host before a record is handed on."""
_REPACK = 1.5
"""A host without traps hands its record on when it has this many times more pages."""


_YOUNG, _REPACK_LEARNT = 256, 0.125
"""When a host without parked URLs hands on what it has learnt: a number of pages, and a share.

Until the host has that number of pages, it hands its record on whenever it has learnt something.
Then it does so only if its pages have grown by that share.
"""


class Parked(NamedTuple):
    """Why a URL is not fetched now, and its shape."""

    shape: str
    detail: str


class Traps:
    """All hosts of one process."""

    def __init__(self, novelty: Novelty | None = None, most: int = MOST) -> None:
        """Build the object; ``novelty``: what was shown, if other processes share it."""
        self._novelty = novelty or Novelty()
        self._most = most
        self._hosts: OrderedDict[tuple[int, str], HostTraps] = OrderedDict()
        self._kept = 0

    @cached_property
    def _known(self) -> Known:
        """Read the file when a crawl first parks URLs. This takes 5 ms and 0.2 MB."""
        return known()

    @cached_property
    def learner(self) -> Learner:
        """Return the part that learns from pages."""
        return Learner(self._novelty, self._known)

    def judge(self, context: CrawlContext, host: str, record: bytes) -> Judge:
        """Return the judge of a session's tasks; ``record`` came with the session."""
        state = self.open(context.crawl, host, record)
        return NO_JUDGE if state is None else Judge(self, state, context)

    # -- sessions

    def open(self, crawl: Crawl, host: str, record: bytes) -> HostTraps | None:
        """Return what is known of a session's host; None if the crawl parks nothing.

        ``record`` is what other sessions have handed on, b"" if there is none.
        """
        options = crawl.options
        judges = options.traps == "on" or options.host_pages or options.shape_pages
        if not judges or EVERY_SHAPE in crawl.released:
            return None
        key = crawl.id, host
        state = self._hosts.get(key)
        if state is None:
            salt = crc32(f"{crawl.id} {crawl.created_ms}".encode()) << 32 | crc32(host.encode())
            state = HostTraps(salt, Shaper(), Yields())
            self._hosts[key] = state
        else:
            self._hosts.move_to_end(key)
        if len(state.released) != len(crawl.released):
            state.released = frozenset(crawl.released)
        if record and records.pages_of(record) > max(state.packed, state.yields.pages):
            self._take_over(state, record)
        return state

    def close(self, state: HostTraps, crawl: Crawl) -> bytes:
        """Return the record to hand on at the end of a session; b"" if it says nothing new."""
        sums = state.yields
        self._make_room(state)
        due = sums.pages > max(_REPACK * state.packed, state.packed + 20)
        counts = crawl.options.host_pages and sums.pages > state.packed
        more = sums.pages - state.packed >= _REPACK_LEARNT * state.packed
        learnt = state.learnt and (more or sums.pages < _YOUNG)
        if not (((state.changed or learnt) and sums.pages >= _LEAST) or due or counts):
            return b""
        state.changed = state.learnt = False
        state.packed = sums.pages
        return records.pack(sums, state.shaper.full(), state.software, state.asks)

    def _take_over(self, state: HostTraps, record: bytes) -> None:
        found = records.unpack(record)
        if found is None:
            return
        state.yields = found.yields
        state.shaper.learn(found.full)
        state.asks = state.asks or found.asks
        state.software = found.software if found.software in self._known.software else 0
        state.packed = found.yields.pages
        if found.yields.templates:
            tags = list(found.yields.templates)
            for i in range(0, len(tags), 120):
                piece = b"".join(tag.to_bytes(4, "little") for tag in tags[i : i + 120])
                self._novelty.look(b"\0\0\0" + piece, state.salt)

    def _make_room(self, state: HostTraps) -> None:
        """Forget the least recently used hosts, so that all keep within the limit."""
        size = state.size
        self._kept += size - state.counted
        state.counted = size
        while self._kept > self._most and len(self._hosts) > 1:
            _, old = self._hosts.popitem(last=False)
            self._kept -= old.counted
            old.counted = 0

    # -- tasks

    def verdict(self, state: HostTraps, crawl: Crawl, task: Task) -> Parked | None:
        """Say why a task is not to be fetched now, or None: then it counts as fetched."""
        sums = state.yields
        if task.is_seed:
            sums.pages += 1
            return None
        options = crawl.options
        shape = state.shape(task.url)
        if state.released and shape.name in state.released:
            sums.pages += 1
            return None
        parked = None
        if options.traps == "on":
            parked = self._parked(state, shape, task.url)
        if parked is None and options.host_pages and sums.pages >= options.host_pages:
            parked = _beyond_host_pages(state, options.host_pages, task.url)
        if parked is None and options.shape_pages:
            found = sums.sum_of(shape.name)
            if found is not None and found.pages >= options.shape_pages:
                detail = f"{options.shape_pages:,} URLs of this shape were fetched (shape_pages)"
                parked = Parked(shape.name, detail)
        if parked is None:
            sums.pages += 1
        return parked

    def sitemap_verdict(self, state: HostTraps, crawl: Crawl, task: Task) -> Parked | None:
        """Say why a sitemap is not to be fetched now, or None: then it counts as fetched.

        No shape is judged; the second half of ``host_pages`` is for pages alone.
        """
        most, parked = crawl.options.host_pages, None
        if most and task.depth and state.yields.pages >= (most + 1) // 2:
            parked = _beyond_host_pages(state, (most + 1) // 2, task.url, "half of host_pages")
        if most and parked is None:
            state.yields.pages += 1
        return parked

    def _parked(self, state: HostTraps, shape: Shape, url: str) -> Parked | None:
        sums = state.yields
        found = sums.sum_of(shape.name)
        if found is not None and found.is_parked:
            state.changed = True
            if not sums.due(found):
                return Parked(shape.name, why(found, shape))
            return None
        if (
            (found is None or found.pages < KNOWN_AFTER)
            and sums.against(shape.section) >= POOR_SECTION
            and shape.section.count("/") > 2 + shape.section.endswith("/")
        ):
            return self._in_poor_section(state, shape)
        if found is None or found.pages < KNOWN_AFTER:
            asked = query_of(shape.name)
            if asked and sums.against(asked) >= POOR_SECTION:
                origin = url[: url.index("/", 8)]
                return self._in_poor_section(state, shape, f"{origin}/{{…}}{asked[1:]}")
        if state.software:
            names = self._known.names(shape.params, url, state.software)
            if names:
                made = self._known.software[state.software].name
                detail = f"{made}: {names} leads to another view of a page, a form or a list"
                return Parked(shape.name, detail)
        bare = plain(url) if state.shaper.sessions else url
        if bare != url and self._novelty.met(bare, state.salt + DONE):
            return self._of_session(state, shape, url)
        if sums.parameters:
            return self._variant(state, shape, bare)
        return None

    def _of_session(self, state: HostTraps, shape: Shape, url: str) -> Parked | None:
        """Park a URL that was fetched with the id of another session, or without one.

        It is not parked if it was fetched with this id: that process may have died.
        """
        if self._novelty.met(url, state.salt + DONE):
            return None
        found = state.yields.begin(shape.name, shape.section, 0.0)
        state.changed = True
        if state.yields.due(found):
            return None
        return Parked(shape.name, "the same page was fetched with the id of another session")

    def _in_poor_section(self, state: HostTraps, shape: Shape, name: str = "") -> Parked | None:
        """Park unknown shapes in a section where nothing yields, all of them as one shape."""
        section = shape.section
        if not name:
            name = f"{section}/{{…}}"
            if section.endswith("?"):
                name = f"{section}{{…}}" if section.count("?") == 1 else f"{section[:-1]}&{{…}}"
        if name[:LONGEST] in state.released:
            return None
        whole = state.yields.begin(name[:LONGEST], section, 0.0)
        state.changed = True
        if state.yields.due(whole):
            return None
        return Parked(name[:LONGEST], "nothing in this part of the host has brought anything new")

    def _variant(self, state: HostTraps, shape: Shape, url: str) -> Parked | None:
        """Say whether the task's URL differs from a known one only by parameters that make no
        difference.

        A URL that was fetched itself does not count: its process may have died.
        """
        if self._novelty.met(url, state.salt + DONE):
            return None
        plain, names = plain_of(state, self._novelty, shape, url)
        key = "" if plain else key_met(state, self._novelty, shape, url)
        if not plain and not key:
            return None
        found = state.yields.begin(shape.name, shape.section, 0.0)
        state.changed = True
        if state.yields.due(found):
            return None
        if key:
            return Parked(shape.name, f"the page with {key:.60} was fetched under another URL")
        return Parked(shape.name, f"the same page without {names} is fetched; {plain}")

    # -- pages

    def note(
        self,
        state: HostTraps,
        crawl: Crawl,
        task: Task,
        row: StoredPage,
        reading: Reading | None = None,
    ) -> None:
        """Learn from a page, or a redirect; its links of poor shapes come last afterwards."""
        if crawl.options.traps == "on":
            self.learner.note(state, task, row, reading)
        else:  # its shapes are counted in any case
            shape = state.shape(task.url)
            state.yields.begin(shape.name, shape.section, 0.0).pages += 1

    def pass_by(self, state: HostTraps, shape: Shape, task: Task, row: StoredPage) -> None:
        """Do :meth:`note` for a page of a settled shape that need not be judged."""
        state.pass_by(self._novelty, shape, task.url, row.links)


class Judge:
    """:class:`Traps` for one session; :data:`NO_JUDGE` parks nothing."""

    __slots__ = (
        "_context", "_crawl", "_limited", "_lists", "_looks", "_quick", "_settled", "_state",
        "_traps",
    )  # fmt: skip

    def __init__(self, traps: Traps, state: HostTraps, context: CrawlContext) -> None:
        self._traps = traps
        self._state = state
        self._context = context
        self._crawl = context.crawl
        self._lists = bool(context.listings)
        options = context.options
        self._limited = bool(options.host_pages or options.shape_pages)
        self._quick = options.traps == "on" and not (self._limited or state.released)
        self._settled: Shape | None = None
        self._looks = True

    def verdict(self, task: Task) -> Parked | None:
        """Run :meth:`Traps.verdict`.

        A page of a user's own list, a requisite, and a stored page are always fetched: they do not
        count for a limit. URLs in a list of a source are fetched up to the limits.
        """
        self._settled, self._looks = None, True
        if task.kind is not TaskKind.PAGE:  # only a few tasks
            if task.kind is TaskKind.REFETCH:  # it is stored: what it brings is known
                return None
            if task.kind.is_sitemap:
                return self._traps.sitemap_verdict(self._state, self._crawl, task)
            if not task.kind.is_page:
                return None
        if self._lists:
            if self._context.listing(task.url) is not None:
                return None
            if task.depth == 1 and not self._limited:  # URLs of lists have this depth
                self._state.yields.pages += 1
                return None
        if self._quick and task.depth:
            self._settled = self._state.settled_shape(task.url)
            if self._settled is not None:
                self._state.yields.pages += 1
                self._looks = not self._state.passes(self._settled)
                return None
        return self._traps.verdict(self._state, self._crawl, task)

    def looks_at(self, task: Task) -> bool:
        """Return whether samples of the page of ``task``, the last fetched one, are needed."""
        return self._looks and task.kind is not TaskKind.REFETCH

    def spare(self, task: Task) -> None:
        """Do not count a task that robots.txt forbids after all."""
        if task.kind.is_sitemap:
            counted = self._crawl.options.host_pages > 0
        else:
            known = task.kind is TaskKind.REFETCH
            counted = task.kind.is_page and not known and self._context.listing(task.url) is None
        if counted:
            self._state.yields.pages -= 1

    def note(self, task: Task, row: StoredPage, reading: Reading | None = None) -> None:
        """Run :meth:`Traps.note`.

        Sitemaps and requisites say nothing of their host's pages, nor does a page that is fetched
        again, which brings little that is new.
        """
        if task.kind is TaskKind.REFETCH or not task.kind.is_page:
            return
        settled, self._settled = self._settled, None
        if not self._looks and settled is not None and reading is not None:
            self._traps.pass_by(self._state, settled, task, row)
        elif settled is not None and reading is not None:
            self._traps.learner.glance(self._state, settled, task, row, reading)
        elif not (self._lists and self._context.listing(task.url) is not None):
            self._traps.note(self._state, self._crawl, task, row, reading)

    def record(self) -> bytes:
        """Run :meth:`Traps.close`."""
        return self._traps.close(self._state, self._crawl)


class _NoJudge(Judge):
    __slots__ = ()

    def __init__(self) -> None:
        self._looks = True

    def verdict(self, task: Task) -> Parked | None:
        return None

    def spare(self, task: Task) -> None:
        pass

    def note(self, task: Task, row: StoredPage, reading: Reading | None = None) -> None:
        pass

    def record(self) -> bytes:
        return b""


NO_JUDGE: Judge = _NoJudge()


def _beyond_host_pages(
    state: HostTraps, fetched: int, url: str, which: str = "host_pages"
) -> Parked | None:
    """Park a URL of a host if this many were ``fetched``; return None once that was released."""
    shape = f"{url[: url.index('/', 8)]}/{{all}}"
    if shape in state.released:
        return None
    return Parked(shape, f"{fetched:,} URLs of this host were fetched ({which})")
