"""``python -m bench.traps cost [PAGES …]``: how much CPU the judge takes for a page.

The same pages are read in one process with the judge and without, alternately, one session each.
They are read as a worker reads them: with sessions that begin and end, and with a new crawl for
each round, so that everything is new to it once. µs are CPU time of this thread. The share relates
to the CPU of a page in a crawl by the command: of all processes, without the judge and without
their start.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import random
import resource
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from bench.traps.crawl import Manner, run
from bench.traps.debian import Missing
from bench.traps.documents import DOCUMENTS, folder_of
from bench.traps.kinds.honest import Catalogue
from bench.traps.kinds.phpbb import PhpBB
from bench.traps.kinds.sites import Log, link
from greencrawl.schema import garbage
from greencrawl.schema.log import configure
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, StoredPage, Task
from greencrawl.worker.child import before_start
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import TooExpensive
from greencrawl.worker.extract.page import stops
from greencrawl.worker.kernels.http import read
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.traps import NO_JUDGE, Judge, Traps
from tests.support.site_server import Answer, Request, Site, SiteServer
from tests.support.sites import folder_site

HOST = "site.example"
ORIGIN = f"http://{HOST}"
SESSION = 32
"""Number of tasks of a session."""
SLOTS = 16
"""Connections of a crawl to its host: enough that nothing waits, since waiting would count, too."""
MENU, FRESH = 38, 2
"""Links of a synthetic page to known pages, and to new ones."""
MOST_SHARE = 0.03
"""The share of a page's CPU in a crawl that the judge may take."""


@dataclass(frozen=True)
class Cost:
    """The CPU for a page of one kind, in µs: ``reading`` to read it, ``judge`` for the judge.

    ``judge`` is the median of the rounds, with the ``least`` and the greatest value (``most``).
    ``crawl`` is the CPU for a page in a whole crawl; 0 if there was no crawl.
    """

    name: str
    pages: int
    reading: float
    judge: float
    least: float
    most: float
    crawl: float = 0.0

    @property
    def share(self) -> float:
        """Return the share of the judge in the CPU for a page: in a crawl, or without a crawl, in
        reading."""
        return self.judge / (self.crawl or self.reading)


def synthetic(pages: int) -> tuple[Site, str]:
    """Return a site of pages of 20 KB, each with words of its own, and 40 links, two of which are
    new."""
    chance = random.Random(7)
    words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 10))) for _ in range(2000)]

    def site(request: Request) -> Answer:
        number = request.target.removeprefix("/p/")
        if not number.isdigit():
            return Answer(404, b"<title>Not found</title>")
        own, first = random.Random(number), MENU + FRESH * int(number)
        targets = [*range(MENU), *range(first, first + FRESH)]
        main = "".join(
            f"<p>{' '.join(own.choices(words, k=65))} {link(f'/p/{n}', own.choice(words))}</p>\n"
            for n in targets
        )
        return Answer(body=f"<!doctype html><title>{number}</title><body>{main}".encode())

    return site, "/p/0"


def _documents(name: str) -> Callable[[int], tuple[Site, str]]:
    return lambda pages: (folder_site(folder_of(DOCUMENTS[name])), "/index.html")


def _log(site: Log) -> tuple[Site, str]:
    return site, site.site.start


KINDS: dict[str, Callable[[int], tuple[Site, str]]] = {
    "synthetic": synthetic,
    **{name: _documents(name) for name in DOCUMENTS},
    "catalogue": lambda pages: _log(Log(Catalogue(1))),
    "phpbb": lambda pages: _log(Log(PhpBB(1))),
}
"""Name → function that returns a site of that many pages, and its first URL.

For documentation it may raise Missing.
"""


def fetched(site: Site, start: str, most: int) -> list[tuple[Task, Fetched]]:
    """Return the first pages of a site, nearest first, as a worker has them: ``most`` of them at
    most."""
    context = context_of(_crawl(1, "off"))
    queue, seen = deque([Task(1, ORIGIN + start, 0, 0)]), {canonicalise(ORIGIN + start)}
    found: list[tuple[Task, Fetched]] = []
    while queue and len(found) < most:
        task = queue.popleft()
        answer = site(Request(HOST, task.url.removeprefix(ORIGIN), {}))
        kind = answer.headers.get("Content-Type", "")
        if answer.status != 200 or "html" not in kind:
            continue
        page = Fetched(task.url, 200, {"content-type": kind}, answer.body)
        found.append((task, page))
        for one in _read(context, task, page).links:
            if one.url not in seen:
                seen.add(one.url)
                queue.append(Task(1, one.url, one.depth, one.level))
    return found


def measured(name: str, pages: Sequence[tuple[Task, Fetched]], rounds: int, folder: Path) -> Cost:
    """Read ``pages`` with the judge and without, ``rounds`` times each, in turns."""
    traps = Traps(Novelty(folder / "shown"))
    gc.collect()
    gc.freeze()
    without, judging = [], []
    for number in range(-1, rounds):  # the first one warms up
        plain, judged = context_of(_crawl(number + 2, "off")), context_of(_crawl(number + 2, "on"))
        record, off, on = b"", 0, 0
        for turn, begin in enumerate(range(0, len(pages), SESSION)):
            session = pages[begin : begin + SESSION]
            for first in (turn % 2 == 0, turn % 2 == 1):
                if first:
                    off += _timed(plain, NO_JUDGE, session)
                else:
                    began = time.thread_time_ns()
                    judge = traps.judge(judged, HOST, record)
                    on += time.thread_time_ns() - began + _timed(judged, judge, session)
                    began = time.thread_time_ns()
                    record = judge.record() or record
                    on += time.thread_time_ns() - began
        if number >= 0:
            without.append(off / len(pages) / 1000)
            judging.append((on - off) / len(pages) / 1000)
    return Cost(
        name, len(pages), statistics.median(without), statistics.median(judging),
        min(judging), max(judging),
    )  # fmt: skip


def _timed(context: CrawlContext, judge: Judge, session: Sequence[tuple[Task, Fetched]]) -> int:
    """Return the ns of this thread's CPU for the pages of a session; rows are made as in the
    pipeline."""
    began = time.thread_time_ns()
    for task, page in session:
        parked = judge.verdict(task)  # read nevertheless, so that both do the same work
        page.sampled = judge.looks_at(task)
        reading = _read(context, task, page)
        row = StoredPage(
            crawl=1, fingerprint=1, url=task.url, final_url=task.url, status=200,
            depth=task.depth, body=page.body, digest=hashlib.sha256(page.body).digest()[:16],
            title=reading.title, text=reading.text, links=reading.links,
        )  # fmt: skip
        if parked is None:
            judge.note(task, row, reading)
    return time.thread_time_ns() - began


def _read(context: CrawlContext, task: Task, page: Fetched) -> Reading:
    """Read a page. If this takes too long, read it again, as a process of its own would do."""
    try:
        return read(context, task, page)
    except TooExpensive:
        return read(context, task, page, in_quarantine=True)


def crawled(site: Site, start: str, pages: int, rounds: int, folder: Path) -> float:
    """Return the µs of CPU for a page in crawls by the command without the judge: all processes,
    without their start, which is measured with crawls of one page.

    The median of ``rounds``.
    """
    found = []
    for number in range(rounds):
        spent = []
        for most in (pages, 1):
            with SiteServer(site) as server:
                before = _children()
                manner = Manner(most, "off", slots=SLOTS)
                run([server.url(start)], folder / f"{number}-{most}", manner)
                spent.append(_children() - before)
        found.append((spent[0] - spent[1]) / (pages - 1) * 1e6)
    return statistics.median(found) if found else 0.0


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _crawl(number: int, traps: str) -> Crawl:
    options = CrawlOptions(traps="on" if traps == "on" else "off")
    return Crawl(id=number, name="cost", state="active", options=options, roots=(HOST,))


HEAD = f"{'':4}{'pages':>7}{'read':>8}{'judge':>8}{'':>16}{'crawl':>8}{'share':>8}  CPU, µs a page"


def line(cost: Cost) -> str:
    """Return a row of the table."""
    verdict = "ok  " if cost.share <= MOST_SHARE else "    "
    between = f"({cost.least:.1f}–{cost.most:.1f})"
    crawl = f"{cost.crawl:.0f}" if cost.crawl else "-"
    return (
        f"{verdict}{cost.pages:>7}{cost.reading:>8.1f}{cost.judge:>8.1f}{between:>16}"
        f"{crawl:>8}{cost.share:>8.1%}  {cost.name}"
    )


def costs(names: Sequence[str], pages: int, rounds: int, crawls: int) -> Iterator[Cost]:
    """Measure kinds of pages, one after the other. Raises Missing."""
    for name in names:
        site, start = KINDS[name](pages)
        with tempfile.TemporaryDirectory(prefix="traps-cost-") as folder:
            found = fetched(site, start, pages)
            cost = measured(name, found, rounds, Path(folder))
            crawl = crawled(site, start, len(found), crawls, Path(folder))
        yield Cost(name, cost.pages, cost.reading, cost.judge, cost.least, cost.most, crawl)


def main(arguments: Sequence[str]) -> int:
    """Print the table; return the exit code: 1 if documentation is not available."""
    parser = argparse.ArgumentParser(prog="python -m bench.traps cost", description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="PAGES", choices=[[], *KINDS], help=", ".join(KINDS)
    )
    parser.add_argument("--pages", type=int, default=1000, help="of each kind at most")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--crawls", type=int, default=3, help="whole crawls of each; 0: none")
    given = parser.parse_args(arguments)
    configure("traps", "warning")
    before_start()
    garbage.started()
    if not stops():
        print("nothing was compiled: this is what the judge takes without it")
    print(HEAD, flush=True)
    try:
        names = given.kinds or ["synthetic", "postgresql", "python"]
        for cost in costs(names, given.pages, given.rounds, given.crawls):
            print(line(cost), flush=True)
    except Missing as error:
        print(error)
        return 1
    return 0
