"""Crawls of sites that are functions, breadth first, with the judge and without a network.

``python -m tests.worker.traps.simulation [NAME …]`` prints the requests by kind of page.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from urllib.parse import urljoin
from zlib import crc32

from greencrawl.schema.log import configure
from greencrawl.schema.records import LEVELS, Admission, Crawl, CrawlOptions, StoredPage, Task
from greencrawl.worker.crawls import context_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps.novelty import Novelty, samples_of
from greencrawl.worker.traps.traps import Judge, Traps
from tests.worker.traps import pages, thin
from tests.worker.traps.pages import ORIGIN, Site, split

HOST = "site.example"
SESSION = 16


@dataclass
class Run:
    """The result of a crawl."""

    kinds: Counter[str] = field(default_factory=Counter)
    fetched: list[tuple[str, str]] = field(default_factory=list)
    parked: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0

    @property
    def traps(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind.startswith("trap"))

    @property
    def share(self) -> float:
        return self.traps / max(sum(self.kinds.values()), 1)

    def wanted(self) -> set[str]:
        return {url for kind, url in self.fetched if not kind.startswith("trap")}


def samples(url: str, blocks: list[str], images: tuple[str, ...]) -> bytes:
    if compiled is None:
        return samples_of("\n".join(blocks), url)
    found: bytes = compiled.sample("\n".join(blocks).encode(), url)
    tags = b"".join(crc32(image.encode()).to_bytes(4, "little") for image in images)
    return found[:1] + bytes((len(images),)) + found[2:3] + tags + found[3:]


def crawl(
    site: Site,
    budget: int = 5000,
    *,
    workers: int = 1,
    slots: int = 1,
    session: int = SESSION,
    near: bool = True,
    options: CrawlOptions | None = None,
    released: tuple[str, ...] = (),
    twice: bool = False,
    shown: Novelty | None = None,
    created_ms: int = 0,
) -> Run:
    """Fetch at most ``budget`` URLs in ``slots`` sessions at a time, which take turns.

    Workers share what was shown if they are ``near``.

    If ``twice``, each page is fetched again, as after a loss.
    """
    run = Run()
    began = time.process_time()
    row = Crawl(
        id=1,
        name="c",
        state="active",
        options=options or CrawlOptions(traps="on"),
        released=released,
        created_ms=created_ms,
    )
    context = context_of(row)
    shown = shown or Novelty(None, 1 << 18, 1 << 17)
    traps = [Traps(shown if near else Novelty(None, 1 << 18, 1 << 17)) for _ in range(workers)]
    waiting: list[deque[Admission]] = [deque() for _ in range(LEVELS)]
    seen: set[str] = set()
    bodies: Counter[str] = Counter()

    def admit(link: Admission) -> None:
        if link.url not in seen and link.depth <= 50:
            seen.add(link.url)
            waiting[link.level].append(link)

    def fetch(judge: Judge, link: Admission) -> None:
        task = Task(1, link.url, link.depth, link.level)
        parked = judge.verdict(task)
        if parked is not None:
            run.parked[parked.shape] += 1
            run.why[parked.shape] = parked.detail
            return
        answer = None
        with suppress(IndexError, KeyError, ValueError):
            answer = site(*split(link.url))
        if answer is None:
            run.kinds["404"] += 1
            return
        body = "\n".join(answer.blocks)
        kind = answer.kind
        bodies[kind + body] += 1
        if kind == "good member" and bodies[kind + body] > 1:
            kind = "trap sessions"
        run.kinds[kind] += 1
        run.fetched.append((kind, link.url))
        urls = dict.fromkeys(urljoin(link.url, one) for one in answer.links)
        below = link.depth + 1
        text = " ".join(answer.blocks)
        page = StoredPage(
            crawl=1, fingerprint=1, url=link.url, status=200, text=text, title=answer.title,
            body=f'<meta name="generator" content="{answer.generator}">'.encode(),
            links=[Admission(url, below, min(below, LEVELS - 1)) for url in urls],
        )  # fmt: skip
        reading = Reading(text=text, canonical=answer.canonical)
        if judge.looks_at(task):
            reading.samples = samples(link.url, answer.blocks, answer.images)
        for _ in range(1 + twice):
            judge.note(task, page, reading)
        for admission in page.links:
            admit(admission)

    admit(Admission(f"{ORIGIN}/"))
    record, turn = b"", 0
    running: deque[tuple[Judge, deque[Admission]]] = deque()
    while sum(run.kinds.values()) < budget:
        while any(waiting) and len(running) < slots:
            judge = traps[turn % workers].judge(context, HOST, record)
            turn += 1
            leased = deque(islice(chain.from_iterable(waiting), session))
            for link in leased:
                waiting[link.level].popleft()
            running.append((judge, leased))
        if not running:
            break
        judge, leased = running.popleft()
        fetch(judge, leased.popleft())
        if leased:
            running.append((judge, leased))
        else:
            record = judge.record() or record
            run.records.append(record)
    run.left = sum(map(len, waiting)) + sum(len(leased) for _, leased in running)
    run.seconds = time.process_time() - began
    return run


SITES: dict[str, Site] = {
    "six traps": pages.six_traps(300),
    "six traps, small": pages.six_traps(60),
    "six traps, zh": pages.six_traps(300, "zh"),
    "six traps, th": pages.six_traps(300, "th"),
    "wiki": pages.wiki(),
    "wiki, no mark": pages.wiki(marked=False),
    "board": pages.board(),
    "discussions": pages.discussions(),
    "shop": pages.shop(),
    "reference": pages.reference(),
    "manual": pages.manual(),
    "archive": pages.archive(),
    "catalogue": pages.catalogue(),
    "forum": pages.forum(),
    "forum, zh": pages.forum(language="zh"),
    "photos": pages.photos(),
    "weather": pages.weather(),
    "screws": pages.screws(),
    "screws, prices": pages.screws(figures=1),
    "days": pages.days(chain=False),
    "days, chain": pages.days(),
    "six traps, clock": pages.with_clock(pages.six_traps(300)),
    **thin.HONEST,
    **thin.NAMELESS,
}


def main(names: list[str]) -> None:
    workers, slots, session = 1, 1, SESSION
    verbose = False
    chosen = []
    for name in names:
        if name.startswith("-w"):
            workers = int(name[2:])
        elif name.startswith("-c"):
            slots = int(name[2:])
        elif name.startswith("-s"):
            session = int(name[2:])
        elif name == "-v":
            verbose = True
        else:
            chosen.append(name)
    for name in chosen or SITES:
        site = SITES[name]
        run = crawl(site, 3000, workers=workers, slots=slots, session=session)
        without = crawl(site, 8000, options=CrawlOptions(traps="off"))
        lost = without.wanted() - run.wanted()
        print(
            f"{name:18} requests {sum(run.kinds.values()):5}  on traps {run.traps:4} "
            f"({run.share:4.0%})  wanted {len(run.wanted()):5}  lost {len(lost):4}  "
            f"parked {run.parked.total():5}  record {max(map(len, run.records or [b''])):4}  "
            f"{run.seconds:4.1f} s"
        )
        if verbose:
            print("   ", dict(run.kinds.most_common()))
            print("   ", sorted(lost)[:6])
            for shape, count in run.parked.most_common(14):
                print(f"    {count:5} {shape}: {run.why[shape]}")


if __name__ == "__main__":
    configure("simulation", "warning")
    main(sys.argv[1:])
