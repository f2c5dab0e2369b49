"""The data for pictures of the Monitor: twenty crawls of some weeks with 100,000 pages, written
into the store by its own calls, each with the time at which it would have happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net.urls import fingerprint, host_of
from greencrawl.schema.records import (
    FINISHED,
    Attempt,
    Commit,
    Counted,
    Crawl,
    CrawlOptions,
    Final,
    HookRun,
    Recrawl,
    StoredPage,
)
from greencrawl.store import common
from greencrawl.store.base import Store

PAGES = 100_000
BATCH = 500
HOUR_MS = 3_600_000
Marks = Callable[[str], int]
"""Return the fingerprint of a URL in this store's frontier."""
DAY_MS = 24 * HOUR_MS
HOOK = "tests.support.picky_hook"
PLANTS = ("Fern", "Mint", "Basil", "Orchid", "Cactus", "Tea", "Willow", "Thyme", "Moss", "Lily")
AHEAD_MINUTES = 2
"""The time until which the nodes are at work."""
NEAR_MINUTES = 120
"""Within this time before the end there is a sample for each minute, and earlier one for each
hour."""
KINDS = (
    ("server_error", 500, "HTTP 500"),
    ("timeout", 0, "no complete answer within 30 s"),
    ("dns_missing", 0, ""),
    ("forbidden", 403, "HTTP 403"),
    ("refused", 0, "Connection refused"),
)
MESSAGES = ("KeyError: 'price'", "ValueError: could not convert string to float: 'ask us'")
SHAPES = ("/calendar/#/#/#", "/shop?sort=*&page=#", "/gallery/#/print", "/archive/#/#")
TEXT = (
    "{plant} likes half a day of light, and water when the soil is dry.\n\n"
    "Give it a pot with holes and feed it in spring. In winter it rests, and wants little."
)


class Scene(Struct, frozen=True):
    """A crawl: its share of the pages, its age, and its state now."""

    name: str
    share: int
    days: float
    state: str = "done"
    reason: str = FINISHED
    delay: float = 1.0
    hosts: int = 3


SCENES = (
    Scene("herbarium-2025", 14, 27),
    Scene("seed-catalogues", 9, 25),
    Scene("garden-forums", 12, 24),
    Scene("botany-papers", 6, 22, reason="max_pages"),
    Scene("park-guides", 3, 20),
    Scene("tea-houses", 2, 18),
    Scene("old-almanacs", 5, 16, reason="stopped"),
    Scene("pruning-videos", 1, 13),
    Scene("rare-orchids", 4, 12),
    Scene("weather-stations", 4, 11, state="resting"),
    Scene("flower-prices", 6, 9, state="resting"),
    Scene("soil-maps", 2, 8, state="paused"),
    Scene("beekeeping", 3, 6, state="paused"),
    Scene("gardens", 12, 5, state="active", delay=0.2, hosts=6),
    Scene("shops", 8, 4, state="active", delay=0.5, hosts=5),
    Scene("guides", 4, 3, state="active", delay=0.5),
    Scene("news", 3, 2, state="active", delay=1),
    Scene("nurseries", 1, 1, state="active", delay=2),
    Scene("forest-reports", 1, 0.3, state="active", delay=1),
    Scene("new-arrivals", 0, 0.02, state="active", delay=1),
)


def name_of(scene: Scene, number: int) -> str:
    """One of its hosts."""
    first = ("www", "blog", "shop", "docs", "forum", "archive")[number % 6]
    return f"{first}.{scene.name}.example"


def options_of(scene: Scene, port: int) -> CrawlOptions:
    """Return its seeds at ``port``; those of active crawls are crawled while the pictures are
    made."""
    seeds = tuple(f"http://{name_of(scene, n)}:{port}/" for n in range(scene.hosts))
    hook = HOOK if scene.name == "shops" else ""
    again = Recrawl(every=f"{scene.days + 1.5:.0f}d") if scene.state == "resting" else None
    return CrawlOptions(
        seeds=seeds, delay=scene.delay, contact="https://example.org/bot", sitemaps="off",
        traps="on", hook=hook, recrawl=again, exclude=(r"/login", r"[?&]print=1"),
    )  # fmt: skip


def paint(store: Store, port: int, pages: int = PAGES) -> list[Crawl]:
    """Write everything; this takes a minute for 100,000 pages."""
    identity = store.frontier()
    assert identity is not None, "no broker has begun here"

    def mark(url: str) -> int:
        return fingerprint(url, identity.secret, identity.canonicaliser)

    made = []
    whole = sum(scene.share for scene in SCENES)
    for scene in SCENES:
        rows = pages * scene.share // whole
        made.append(_paint(store, mark, scene, port, rows))
    return made


def _paint(store: Store, mark: Marks, scene: Scene, port: int, rows: int) -> Crawl:
    chance = random.Random(scene.name)
    now = epoch_ms()
    began = now - round(scene.days * DAY_MS)
    ended = now if scene.state in ("active", "paused") else began + round(scene.days * DAY_MS / 3)
    options = options_of(scene, port)
    with _at(began):
        crawl = store.put_crawl(scene.name, options, [host_of(url) for url in options.seeds])
        crawl = store.set_state(crawl.id, "active", version=crawl.version)
    pages = _pages(mark, scene, crawl, port, rows, (began, ended), chance)
    while batch := [page for page, _ in zip(pages, range(BATCH), strict=False)]:
        failures = [run for page in batch[::40] if (run := _hook_run(scene, page, chance))]
        store.commit(
            Commit(pages=batch, attempts=[_attempt(page) for page in batch[::50]], hooks=failures)
        )
    store.commit(Commit(finals=list(_finals(mark, scene, crawl, port, rows, ended, chance))))
    store.put_samples(list(_samples(scene, crawl, rows, (began, ended), chance)))
    with _at(ended):
        if scene.state == "resting":
            return store.rest(crawl.id, round((scene.days + 1.5) * DAY_MS), version=crawl.version)
        if scene.state != "active":
            reason = scene.reason if scene.state == "done" else ""
            state = "paused" if scene.state == "paused" else "done"
            return store.set_state(crawl.id, state, reason, version=crawl.version)
    return crawl


def _pages(
    mark: Marks,
    scene: Scene,
    crawl: Crawl,
    port: int,
    rows: int,
    span: tuple[int, int],
    chance: random.Random,
) -> Iterator[StoredPage]:
    for number in range(rows):
        plant = chance.choice(PLANTS)
        url = (
            f"http://{name_of(scene, number % scene.hosts)}:{port}/plants/{plant.lower()}/{number}"
        )
        text = TEXT.format(plant=plant)
        title = f"{plant}, plant {number}"
        body = f"<title>{title}</title><nav>Home Plants Shop</nav><h1>{plant}</h1><p>{text}</p>"
        at = span[0] + (span[1] - span[0]) * (number + 1) // (rows + 1)
        yield StoredPage(
            crawl=crawl.id, fingerprint=mark(url), url=url, status=200, title=title,
            text=text, body=body.encode(), fetched_ms=at, elapsed_ms=chance.randrange(20, 400),
            depth=1 + number % 5, language="en", encoding="utf-8",
            headers={"content-type": "text/html; charset=utf-8", "server": "nginx"},
        )  # fmt: skip


def _attempt(page: StoredPage) -> Attempt:
    return Attempt(
        crawl=page.crawl, fingerprint=page.fingerprint, url=page.url, code=503, kind="unavailable",
        errors=1, wait=60.0, detail="HTTP 503", at_ms=page.fetched_ms - 60_000,
        elapsed_ms=120, worker="w1-0",
    )  # fmt: skip


def _hook_run(scene: Scene, page: StoredPage, chance: random.Random) -> HookRun | None:
    if scene.name != "shops":
        return None
    return HookRun(
        crawl=page.crawl, fingerprint=page.fingerprint, url=page.url, at_ms=page.fetched_ms,
        failures={"on_page": chance.choices(MESSAGES, (3, 1))[0]},
    )  # fmt: skip


def _finals(
    mark: Marks,
    scene: Scene,
    crawl: Crawl,
    port: int,
    rows: int,
    ended: int,
    chance: random.Random,
) -> Iterator[Final]:
    def one(path: str, n: int, **more: object) -> Final:
        url = f"http://{name_of(scene, n % scene.hosts)}:{port}{path}"
        at = ended - chance.randrange(HOUR_MS)
        return Final(crawl=crawl.id, fingerprint=mark(url), url=url, at_ms=at, **more)  # type: ignore[arg-type]

    for n in range(rows // 60):
        kind, code, detail = chance.choices(KINDS, (8, 5, 3, 2, 1))[0]
        path = f"/plants/{chance.choice(PLANTS).lower()}/lost-{n}"
        yield one(path, n, state="dead", kind=kind, code=code, detail=detail)
    for n in range(rows // 100):
        yield one(f"/sold-out/{n}", n, state="gone", kind="gone", code=404)
    for n in range(rows // 30 if scene.state == "active" else 0):
        shape = chance.choices(SHAPES, (6, 3, 2, 1))[0]
        path = shape.replace("*", "price")
        for _ in range(shape.count("#")):
            path = path.replace("#", str(n), 1)
        told = "the last of 60 pages of this shape brought nothing new"
        yield one(path, n, state="parked", kind="trap", shape=shape, detail=told)


def _samples(
    scene: Scene, crawl: Crawl, rows: int, span: tuple[int, int], chance: random.Random
) -> Iterator[Counted]:
    """Return a crawl's samples as a broker notes them: one for each hour of its life, and one for
    each minute of the last two hours if it goes on. The last one has the counts of the store; Redis
    goes on from these."""
    active = scene.state == "active"
    first, last = span[0] // 60_000, span[1] // 60_000 + (AHEAD_MINUTES if active else 0)
    near = max(first, last - NEAR_MINUTES) if active else last
    hours = range(first, near, 60)
    more = []
    for minute in [*hours, *(range(near, last + 1) if near < last else ())]:
        share = rows / max(len(hours), 1) if minute < near else 60 * scene.hosts / scene.delay / 2
        more.append((minute, round(share * chance.uniform(0.8, 1.2))))
    pages = rows - sum(one for _, one in more)
    for minute, one in more:
        pages += one
        yield Counted(crawl=crawl.id, minute=minute, pages=pages, bytes=pages * 300)


@contextmanager
def _at(moment_ms: int) -> Iterator[None]:
    """Let the store use this time for everything that it notes by its clock."""
    kept: Callable[[], int] = common.epoch_ms
    common.epoch_ms = lambda: moment_ms
    try:
        yield
    finally:
        common.epoch_ms = kept
