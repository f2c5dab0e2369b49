"""Runs the steps that use the user's code, libxml or an old pattern, at a point where a failure
counts for a task.

Meanwhile the crash record names the page, so that the supervisor can tell whose fault a death was.
A suspect is read in a process of its own (``greencrawl.worker.process.quarantine``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Protocol

import gevent
from gevent.lock import BoundedSemaphore

from greencrawl.schema.records import Failure, FailureKind, Fetched, Task
from greencrawl.schema.records.auth import Form, Own
from greencrawl.worker.auth.base import Grant, Kind, Verdict
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.extract import TooExpensive, is_doubtful, stops
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.http import HTTP, granted
from greencrawl.worker.kernels.judged import JudgedVisit
from greencrawl.worker.kernels.own import OwnKernel
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.sitemap import Sitemap
from greencrawl.worker.kernels.visit import TaskVisit
from greencrawl.worker.link_checker import as_page
from greencrawl.worker.process.costly import REST, CostlyHosts, dense, unpacking
from greencrawl.worker.process.crash_record import CrashRecord, Parsing, Suspect
from greencrawl.worker.process.quarantine import DiedInQuarantine
from greencrawl.worker.process.steps import Budget
from greencrawl.worker.process.turns import TookTooLong, in_turns
from greencrawl.worker.session.fetcher import Visit

_LONG_BYTES = 32 * 1024
_LARGE_BYTES = 1024 * 1024
_GZIP, _GZIP_MAGIC = 31, b"\x1f\x8b"
SITEMAP_SECONDS = 5.0
"""A sitemap may take this many CPU seconds; one of 50 MB with 50,000 URLs takes two."""


def _pack(visit: Visit, fetched: Fetched) -> None:
    """Pack a large body; sitemaps can be read from a packed body, too.

    A body may wait long for its turn, and meanwhile all fetching sessions would wait for its
    memory.
    """
    if len(fetched.body) <= _LARGE_BYTES or fetched.body.startswith(_GZIP_MAGIC):
        return
    size = len(fetched.body)
    fetched.body = gevent.get_hub().threadpool.apply(_gzipped, (fetched.body,))
    fetched.packed = size
    visit.repacked(len(fetched.body))


def _gzipped(body: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=_GZIP)
    return packer.compress(body) + packer.flush()


class Reader(Protocol):
    """The part of ``greencrawl.worker.process.quarantine.Quarantine`` that is used here.

    Each of its methods raises DiedInQuarantine when the task killed or hung that process, NoProcess
    when the process does not start, and RaisedInQuarantine with an unforeseen error there.
    """

    def read(
        self, context: CrawlContext, task: Task, fetched: Fetched, kernel: str = HTTP.name
    ) -> Reading:
        """Read a page there, by the kernel of that name."""

    def fetch(
        self,
        context: CrawlContext,
        visit: TaskVisit,
        task: Task,
        kernel: str,
        headers: Mapping[str, str],
    ) -> Fetched | Failure:
        """Ask for a page by the user's own kernel of that name, which runs there."""

    def request_headers(
        self, context: CrawlContext, task: Task, headers: dict[str, str]
    ) -> dict[str, str]:
        """Return the headers that the user's ``request`` makes of ``headers``.

        Also raises HookError.
        """

    def excluded_by(self, context: CrawlContext, task: Task, url: str, link: bool) -> str | None:
        """Run ``Rules.judge`` of the crawl; ``link`` as there."""

    def verdict(
        self, context: CrawlContext, task: Task, entry: str, fetched: Fetched, grant: Grant | None
    ) -> Verdict | Failure:
        """Return the verdict on an answer of the crawl's ``auth`` entry of that name."""


class Guarded:
    """The guarded calls of one worker process. Safe for many greenlets: guarded bodies take turns.

    For a suspect, methods raise DiedInQuarantine, NoProcess and RaisedInQuarantine, as
    :class:`Reader` does.
    """

    def __init__(
        self, crash_record: CrashRecord, quarantine: Reader, fetching: Reader | None = None
    ) -> None:
        """Build the object.

        ``fetching`` is the process in which kernels ask for suspects. It should not be
        ``quarantine``, because that process may have to judge the answers that kernels get.
        """
        self._crash_record = crash_record
        self._quarantine = quarantine
        self._fetching = fetching or quarantine
        self._costly = CostlyHosts()
        self._sitemap = BoundedSemaphore(1)

    def excluded_by(self, visit: Visit, task: Task, url: str, *, link: bool = False) -> str | None:
        """Judge the task's URL, the target of its redirect, or a ``link`` by the crawl's rules.

        An old crawl's pattern that backtracks for ever hangs the process. Failures by such a
        pattern count like failures of a hook.
        """
        rules = visit.context.rules
        if not visit.context.backtracks:
            return rules.judge(task, url, link)
        if task.suspect:
            with visit.held.waiting(request=False):
                return self._quarantine.excluded_by(visit.context, task, url, link)
        with self._crash_record.parsing(_suspect(visit, task)):
            return rules.judge(task, url, link)

    def as_page(self, visit: Visit, task: Task) -> Task:
        """Return the task of a requisite with an answer in HTML, for example of an ``object``, as
        the task of a page, if the crawl's rules allow the page."""
        page = as_page(task)
        return task if self.excluded_by(visit, page, page.url) else page

    def request_headers(self, visit: Visit, task: Task, headers: dict[str, str]) -> dict[str, str]:
        """Return headers by the user's own function. Raises HookError."""
        if task.suspect:
            with visit.held.waiting(request=False):
                return self._quarantine.request_headers(visit.context, task, headers)
        with self._crash_record.parsing(_suspect(visit, task)):
            return visit.context.hooks.request_headers(task, headers)

    def verdict(
        self, visit: Visit, task: Task, kind: Kind, fetched: Fetched, grant: Grant | None
    ) -> Verdict | Failure:
        """Return the verdict of ``kind`` on an answer; raises what its ``judge`` raises."""
        if not isinstance(kind.entry, Form | Own):  # only these read pages, or run user's code
            return kind.judge(fetched, grant)
        if not task.suspect:
            try:
                with self._crash_record.parsing(_suspect(visit, task)):
                    return kind.judge(fetched, grant)
            except TooExpensive as error:
                if error.spent:
                    self._bill(visit, fetched, error.spent)
        with visit.held.waiting(request=False):
            return self._quarantine.verdict(visit.context, task, kind.entry.name, fetched, grant)

    def fetch(
        self, kernel: Kernel, asking: TaskVisit, visit: Visit, headers: Mapping[str, str]
    ) -> Fetched | Failure:
        """Run ``Kernel.fetch``.

        The crash record names a user's own kernel, except while it waits for an answer. Raises
        VisitOver and LeaseExpired.
        """
        task = asking.task
        if not isinstance(asking, JudgedVisit):
            return kernel.fetch(asking, task, headers)
        try:
            if task.suspect:
                with visit.held.waiting(request=False):
                    answer = self._fetching.fetch(visit.context, asking, task, kernel.name, headers)
            else:
                asking.mark = mark = _Mark(self._crash_record.parsing(_suspect(visit, task)))
                mark.enter()
                try:
                    answer = kernel.fetch(asking, task, headers)
                finally:
                    mark.leave()
        finally:
            asking.end()
            visit.let_go()
        visit.hold(len(answer.body) if isinstance(answer, Fetched) else 0)
        return answer

    def read(self, visit: Visit, task: Task, fetched: Fetched, kernel: Kernel = HTTP) -> Reading:
        """Run ``Kernel.read``.

        An answer that takes too long is read alone, and counts against its host, unless the user's
        own kernel takes long.
        """
        if isinstance(kernel, Sitemap):
            return self._read_in_steps(visit, task, fetched, kernel)
        doubtful = kernel is HTTP and not stops() and is_doubtful(fetched.body)
        packed = dense(fetched)
        if packed or task.suspect or doubtful or self._costly.suspects(visit.host, fetched.address):
            reading = self._read_in_quarantine(visit, task, fetched, 0.0, kernel)
            reading.dense = packed
            return reading
        try:
            with self._crash_record.parsing(_suspect(visit, task)):
                reading = kernel.read(visit.context, task, fetched)
        except TooExpensive as error:
            return self._read_in_quarantine(visit, task, fetched, error.spent, kernel)
        if reading.cpu and reading.cpu > granted(fetched):
            self._charge(visit, fetched, reading, granted(fetched))
        return reading

    def _read_in_steps(
        self, visit: Visit, task: Task, fetched: Fetched, kernel: Sitemap
    ) -> Reading:
        """Read a sitemap or feed, with turns for others.

        One long sitemap is read at a time, which saves memory. If the crawl's patterns may
        backtrack for ever, the quarantine reads the sitemap. Sitemaps that take too long count
        against their host. ``fetched`` is reduced to the parts that are kept of a page.
        """
        if task.suspect or visit.context.backtracks:
            with visit.held.waiting(request=False):
                reading = self._quarantine.read(visit.context, task, fetched, kernel.name)
        else:
            _pack(visit, fetched)
            budget = Budget(SITEMAP_SECONDS)
            steps = kernel.steps(visit.context, task, fetched, budget)
            suspect = _suspect(visit, task)
            size = max(len(fetched.body), fetched.packed)
            with self._sitemap if size > _LONG_BYTES else nullcontext():
                try:
                    guard = partial(self._crash_record.parsing, suspect)
                    reading, took = in_turns(steps, budget, guard)
                except TookTooLong as error:
                    reading, took = kernel.without(task, str(error)), error.seconds
            reading.cpu = took
        most = kernel.granted(fetched, reading)
        if reading.cpu > most:
            self._charge(visit, fetched, reading, most)
        self.unpack(visit, fetched)
        return reading

    def unpack(self, visit: Visit, fetched: Fetched) -> None:
        """Reduce a body to the parts that are kept of a page."""
        fetched.unpack(visit.context.options.max_body_bytes)
        visit.repacked(len(fetched.body))

    def unpacked(self, visit: Visit, answer: Fetched | Failure) -> str:
        """Charge the host if undoing an answer's content-encodings took too much.

        Returns why, "" if it did not.
        """
        if not answer.unpacking:  # nearly all answers
            return ""
        said = unpacking(answer)
        if said:
            self._bill(visit, answer, answer.unpacking, said=said)
        return said

    def _read_in_quarantine(
        self, visit: Visit, task: Task, fetched: Fetched, spent: float, kernel: Kernel
    ) -> Reading:
        """Let the quarantine read an answer; this process has spent ``spent`` seconds of CPU on
        it."""
        try:
            with visit.held.waiting(request=False):
                reading = self._quarantine.read(visit.context, task, fetched, kernel.name)
        except DiedInQuarantine as error:
            # Time of the user's functions does not count against the host.
            own = isinstance(kernel, OwnKernel) or visit.context.hooks.wanted
            if error.seconds and not own:
                spent += error.seconds
                self._charge(visit, fetched, Reading(cpu=spent), granted(fetched))
            raise
        reading.cpu += spent
        if reading.cpu > granted(fetched):
            self._charge(visit, fetched, reading, granted(fetched))
        else:
            self._costly.cheap(visit.host, fetched.address)
        return reading

    def _charge(self, visit: Visit, fetched: Fetched, reading: Reading, most: float) -> None:
        """Charge the host of a page that took more CPU than its grant, ``most``: the host rests."""
        cpu = reading.cpu
        reading.costly = f"reading it took {cpu:.2f} s of CPU, and {most:.2f} s were granted"
        self._bill(visit, fetched, cpu, most)

    def _bill(
        self, visit: Visit, answer: Fetched | Failure, cpu: float, most: float = 0.0, said: str = ""
    ) -> None:
        visit.rest_for(REST * cpu)
        address = answer.address if isinstance(answer, Fetched) else ""
        why = self._costly.charge(visit.host, address, cpu, most)
        if why:
            visit.fail(str(FailureKind.COSTLY), 0.0, f"{why}; of the last, {said}" if said else why)


class _Mark:
    """Puts the name of a task into the crash record, and removes it again."""

    def __init__(self, parsing: Parsing) -> None:
        self._parsing = parsing
        self._inside = False

    def enter(self) -> None:
        self._parsing.__enter__()
        self._inside = True

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._parsing.__exit__()


def _suspect(visit: Visit, task: Task) -> Suspect:
    session = visit.held.session
    return Suspect(
        session.session,
        session.token,
        task.number,
        session.crawl,
        task.url,
        task.depth,
        task.level,
        task.errors,
    )
