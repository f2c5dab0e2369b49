"""The first page: all crawls, the workers, and what needs attention."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.broker.service.watching import open_alerts
from greencrawl.monitor.page_request import Data, PageRequest, View
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import WITHHELD, Crawl, CrawlStats


class Row(Struct, frozen=True):
    """A crawl of the list; ``stats`` is None if Redis does not answer."""

    crawl: Crawl
    stats: CrawlStats | None
    rate: float | None

    @property
    def failures(self) -> int:
        """Return how many outcomes are failures, of all kinds."""
        return sum(failures_of(self.stats).values()) if self.stats is not None else 0


def failures_of(stats: CrawlStats) -> dict[str, int]:
    """Return failures by kind, the commonest first: of URLs, or if these were not counted, of
    tries."""
    found = stats.final_states
    if found is None:
        found = {kind: n for kind, n in stats.failures.items() if n and kind not in WITHHELD}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def part(request: PageRequest) -> Data:
    """Return all data of the page."""
    figures = request.figures
    crawls = figures.crawls()
    whys: list[str] = []
    counters: dict[str, CrawlStats] = {}
    try:
        counters = figures.counters(crawls)
    except Unavailable as error:
        whys.append(str(error))
    rows = [_row(request, crawl, counters.get(crawl.name)) for crawl in reversed(crawls)]
    rows.sort(key=lambda row: _ORDER[row.crawl.state])
    known = [row.stats for row in rows if row.stats is not None]
    rates = [row.rate for row in rows if row.rate is not None and row.crawl.state == "active"]
    system = None
    try:
        system = figures.system()
    except Unavailable as error:
        whys.append(str(error))
    away = system.away if system is not None else ()
    return {
        "rows": rows,
        "sums": {
            "rate": sum(rates) if rates else None,
            **{
                name: sum(getattr(stats, name) for stats in known)
                if len(known) == len(rows)
                else None
                for name in ("stored", "open", "leased")
            },
        },
        "active": [row.crawl.name for row in rows if row.crawl.state == "active"],
        "system": system,
        "all_away": bool(away) and _all(request, len(away)),
        "why": whys[0] if whys and not away else "",
        "plot": figures.plot(crawls),
        "silent": figures.silent() if any(stats.leased for stats in known) else [],
        "alerts": request.shared.get("alerts", lambda: open_alerts(request.service)),
        "stuck": [row for row in rows if row.stats is not None and row.stats.stuck],
    }


def _all(request: PageRequest, away: int) -> bool:
    """Return whether ``away`` is the number of all Redis nodes."""
    identity = request.service.store.frontier()
    return identity is not None and away == len(identity.nodes)


_ORDER = {"active": 0, "paused": 1, "resting": 2, "done": 3}


def _row(request: PageRequest, crawl: Crawl, stats: CrawlStats | None) -> Row:
    rate = request.figures.rate(crawl.name) if crawl.state == "active" else None
    return Row(crawl, stats, rate)


def _early(request: PageRequest) -> None:
    """Raise Unavailable if the store is away; without Redis the page has less."""
    request.figures.crawls()


VIEWS = (View(name="overview", path="/monitor/", part=part, early=_early, nav=True, plots=True),)
